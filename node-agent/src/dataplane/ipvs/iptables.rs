//! Runs the tools of iptables: when the backend starts, when its rules were disturbed, and in the end. Never for a Service.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
};

use model::primitives::net::IpFamily;

/// Which kind of iptables, by the infix of its tools' names: the machine's choice, else the legacy one.
const FLAVOURS: [&str; 2] = ["", "-legacy"];
/// How long the lock of the tables is waited for, in seconds.
const LOCK_SECONDS: &str = "10";

/// The tools that work in this kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Iptables {
    flavour: &'static str,
}

impl Iptables {
    /// Finds the tools: the first kind that can list the tables.
    pub(super) fn find() -> io::Result<Self> {
        let mut refusal = io::Error::from(io::ErrorKind::NotFound);
        for flavour in FLAVOURS {
            let found = Self { flavour };
            match found.list(IpFamily::V4, "nat") {
                Ok(_) => return Ok(found),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// Lists a table.
    pub(super) fn list(self, family: IpFamily, table: &str) -> io::Result<String> {
        let tool = self.tool(family, "save");
        let output =
            Command::new(&tool).args(["-t", table]).output().map_err(|error| named(&tool, &error))?;
        if !output.status.success() {
            return Err(refused(&tool, &output.stderr));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }

    /// Carries out a script of `iptables-restore`, as a whole or not at all.
    pub(super) fn restore(self, family: IpFamily, script: &str) -> io::Result<()> {
        let tool = self.tool(family, "restore");
        let mut child = Command::new(&tool)
            .args(["--noflush", "-w", LOCK_SECONDS])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| named(&tool, &error))?;
        // Dropped at once, so that the tool sees the end.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(script.as_bytes()));
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(refused(&tool, &output.stderr));
        }
        written
    }

    fn tool(self, family: IpFamily, verb: &str) -> String {
        let program = match family {
            IpFamily::V4 => "iptables",
            IpFamily::V6 => "ip6tables",
        };
        format!("{program}{}-{verb}", self.flavour)
    }
}

fn named(tool: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{tool}: {error}"))
}

fn refused(tool: &str, stderr: &[u8]) -> io::Error {
    let words = String::from_utf8_lossy(stderr);
    io::Error::other(format!("{tool}: {}", words.trim()))
}
