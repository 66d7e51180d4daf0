//! What is compared with, and what listens: tools that know nothing of us.

use std::{
    fs::File,
    io::Read,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lab::host::netns::Namespace;

use super::NODE;
use crate::fixture_cluster::Estate;

/// How long `nft monitor` gets to say what happened last.
const MONITOR_PAUSE: Duration = Duration::from_millis(500);

/// Saves what is in the node's kernel, and loads it into an empty network by the tool of the mode; gives the milliseconds of the
/// loading, or nothing where no tool does that. Nothing is read back.
pub(super) fn load(estate: &Estate) -> Result<Option<f64>> {
    let node = estate.cluster.place(NODE)?;
    let (program, arguments, text): (_, &[&str], _) = match estate.size().mode {
        "nftables" => ("nft", &["-f", "-"], node.run("nft", &["list", "table", "inet", "tidegate"])?),
        "iptables" => ("iptables-restore", &[], node.run("iptables-save", &[])?),
        _ => return Ok(None),
    };
    let empty = Namespace::new("bound")?;
    let begun = Instant::now();
    empty.run_with_input(program, arguments, &text)?;
    Ok(Some(begun.elapsed().as_secs_f64() * 1e3))
}

/// Somebody who hears of every change of rules in a namespace.
#[derive(Debug)]
pub(super) struct Listening {
    child: Child,
    heard: File,
}

/// Begins to listen on the node.
pub(super) fn listen(estate: &Estate) -> Result<Listening> {
    let heard = tempfile::tempfile().context("no temporary file")?;
    let child = Command::new("ip")
        .args(["netns", "exec", estate.cluster.place(NODE)?.name(), "nft", "monitor"])
        .stdin(Stdio::null())
        .stdout(heard.try_clone().context("cannot share a file")?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start nft monitor")?;
    thread::sleep(MONITOR_PAUSE);
    Ok(Listening { child, heard })
}

impl Listening {
    /// The changes that were heard of.
    pub(super) fn events(mut self) -> Result<u64> {
        thread::sleep(MONITOR_PAUSE);
        self.child.kill().context("nft monitor")?;
        self.child.wait().context("nft monitor")?;
        let mut text = String::new();
        std::io::Seek::rewind(&mut self.heard)?;
        self.heard.read_to_string(&mut text).context("what nft monitor said")?;
        let changes = text.lines().filter(|line| line.starts_with("add ") || line.starts_with("delete "));
        Ok(changes.count() as u64)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It has ended already when `events` was asked.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
