//! HAProxy from the distribution, running in a namespace of the lab, and the state of its checked servers.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use anyhow::{Context, Result};

use crate::{
    host::{netns::Namespace, scratch::Scratch, shell},
    processes::process::{Plan, Process},
};

/// Maximum number of connections. Each needs two file descriptors, and limits are low in containers.
const CONNECTIONS_MAX: u32 = 4_096;

/// Running HAProxy that ends when dropped.
#[derive(Debug)]
pub struct Haproxy {
    _process: Process,
    directory: Scratch,
}

impl Haproxy {
    /// Starts HAProxy and waits until it listens. `sections` is the configuration after the section `global`.
    ///
    /// # Errors
    /// Returns its output if HAProxy is not installed or rejects the configuration.
    pub fn start(namespace: &Namespace, sections: &str) -> Result<Self> {
        let directory = Scratch::new("haproxy")?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let global = format!("global\n  maxconn {CONNECTIONS_MAX}\n  stats socket {}\n", path("control"));
        fs::write(path("haproxy.cfg"), global + sections)?;
        let mut process = Process::start(Plan {
            label: "HAProxy".to_owned(),
            namespace: namespace.clone(),
            program: PathBuf::from("haproxy"),
            // In the foreground, as a single process.
            arguments: ["-db", "-f", &path("haproxy.cfg")].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            log: directory.path().join("haproxy.log"),
        })?;
        let control = directory.path().join("control");
        process.wait_ready(|| ask(&control, "show info").map(drop))?;
        Ok(Self { _process: process, directory })
    }

    /// Returns the state of a server, such as `UP` or `DOWN`, and the result code of its last check.
    ///
    /// # Errors
    /// Returns an error if HAProxy does not respond or has no such server.
    pub fn state(&self, backend: &str, server: &str) -> Result<(String, String)> {
        let table = ask(&self.directory.path().join("control"), "show stat")?;
        let mut lines = table.trim_start_matches("# ").lines();
        let names: Vec<_> = lines.next().context("the statistics have a header line")?.split(',').collect();
        let column = |line: &str, name: &str| {
            let place = names.iter().position(|one| *one == name)?;
            line.split(',').nth(place).map(str::to_owned)
        };
        let is_it = |line: &&str| {
            column(line, "pxname").as_deref() == Some(backend)
                && column(line, "svname").as_deref() == Some(server)
        };
        let line = lines.find(is_it).with_context(|| format!("no {backend}/{server} in\n{table}"))?;
        let read = |name: &str| column(line, name).with_context(|| format!("no column {name} in\n{table}"));
        Ok((read("status")?, read("check_code")?))
    }

    /// Returns the installed version.
    ///
    /// # Errors
    /// Returns an error if HAProxy is not installed.
    pub fn version() -> Result<String> {
        let text = shell::run("haproxy", &["-v"])?;
        Ok(text.lines().next().unwrap_or("HAProxy of unknown version").to_owned())
    }
}

fn ask(control: &std::path::Path, question: &str) -> Result<String> {
    let mut stream = UnixStream::connect(control).context("HAProxy's stats socket does not exist")?;
    writeln!(stream, "{question}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
