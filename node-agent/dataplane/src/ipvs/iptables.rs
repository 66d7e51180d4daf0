//! Execution of the iptables tools: at start, after another program changed the rules, and at cleanup. A
//! change of a Service runs no tool.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
};

use model::primitives::net::IpFamily;

/// Infix of the tool names: empty for the machine's default flavor, which is tried first, then `-legacy`.
const FLAVOURS: [&str; 2] = ["", "-legacy"];
/// Time to wait for the xtables lock, in seconds.
const LOCK_SECONDS: &str = "10";

/// iptables tools of the flavor that works on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Iptables {
    flavour: &'static str,
}

impl Iptables {
    /// Selects the first flavor whose tools can list the tables.
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

    /// Returns the `iptables-save` listing of one table.
    pub(super) fn list(self, family: IpFamily, table: &str) -> io::Result<String> {
        let tool = self.tool(family, "save");
        let output =
            Command::new(&tool).args(["-t", table]).output().map_err(|error| named(&tool, &error))?;
        if !output.status.success() {
            return Err(refused(&tool, &output.stderr));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }

    /// Runs an `iptables-restore` script; it is applied as a whole or not at all.
    pub(super) fn restore(self, family: IpFamily, script: &str) -> io::Result<()> {
        let tool = self.tool(family, "restore");
        let mut child = Command::new(&tool)
            .args(["--noflush", "-w", LOCK_SECONDS])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| named(&tool, &error))?;
        // Standard input is dropped at once, so that the tool receives end of file.
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
