//! Measurement of the time to load the rules with `nft` or `iptables-restore`, as a baseline for the agent,
//! and a recorder of rule changes.

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

/// Pause before `nft monitor` is stopped, so that it can print its last events.
const MONITOR_PAUSE: Duration = Duration::from_millis(500);

/// Saves the rules of the node and loads them into an empty network with `nft` or `iptables-restore`. Returns the
/// load time in milliseconds, or `None` for modes without such a tool. The loaded rules are not read back.
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

/// Recorder of all rule changes in a network namespace.
#[derive(Debug)]
pub(super) struct Listening {
    child: Child,
    heard: File,
}

/// Starts to record the rule changes on the node with `nft monitor`.
pub(super) fn listen(estate: &Estate) -> Result<Listening> {
    let heard = tempfile::tempfile().context("cannot create a temporary file")?;
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
    /// Stops the recorder and returns the number of recorded rule changes.
    pub(super) fn events(mut self) -> Result<u64> {
        thread::sleep(MONITOR_PAUSE);
        self.child.kill().context("nft monitor")?;
        self.child.wait().context("nft monitor")?;
        let mut text = String::new();
        std::io::Seek::rewind(&mut self.heard)?;
        self.heard.read_to_string(&mut text).context("reading the output of nft monitor")?;
        let changes = text.lines().filter(|line| line.starts_with("add ") || line.starts_with("delete "));
        Ok(changes.count() as u64)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Already ended if `events` was called.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
