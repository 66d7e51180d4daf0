//! The same benchmark on the second kernel, for what is counted there: its times mean little.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Options, Point};
use crate::say::Say;

/// The mode that is measured there.
pub(super) const MODE: &str = "ipvs";
/// What is counted is the same each time, and everything is slow there.
const ROUNDS_MAX: u16 = 3;
const GROUPS_MAX: u16 = 3;
const CHANGES_MAX: u16 = 40;
/// Endpoints of each Service: a hundred thousand of them are programmed in minutes, half a million are not.
const ENDPOINTS_MAX: u8 = 2;
/// Memory of the guest, for the control server, the agent and the kernel with the most Services.
const MEMORY: &str = "6144M";
/// When the guest is ended, in seconds.
const TIMEOUT_SECS: &str = "3000";

/// What the guest has found.
#[derive(Debug, Deserialize)]
struct Written {
    host: Machine,
    points: Vec<Point>,
}

#[derive(Debug, Deserialize)]
struct Machine {
    kernel: String,
}

/// Points, and the kernel on which they were measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) kernel: String,
    pub(super) points: Vec<Point>,
}

/// Runs this benchmark there.
///
/// # Errors
/// The guest or this program is not installed, or the benchmark fails there.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<Measured> {
    ensure!(!lab::guest::is_inside(), "the second kernel has no IPVS either: see `lab/setup.sh`");
    let directory = tempfile::Builder::new().prefix("tidegate-bench-").tempdir()?;
    let sizes: Vec<_> = options.sizes.iter().map(u32::to_string).collect();
    let mut command = lab::guest::command(&lab::binaries::find("bench")?);
    command
        .arg("--busy-anyway")
        .arg(format!("--out={}", directory.path().display()))
        .args(["change", "--modes", MODE])
        .arg(format!("--rounds={}", options.rounds.min(ROUNDS_MAX)))
        .arg(format!("--groups={}", options.groups.min(GROUPS_MAX)))
        .arg(format!("--changes={}", options.changes.min(CHANGES_MAX)))
        .arg(format!("--sizes={}", sizes.join(",")))
        .arg(format!("--endpoints={}", options.endpoints.min(ENDPOINTS_MAX)))
        .env("GUEST_MEMORY", MEMORY)
        .env("GUEST_TIMEOUT", TIMEOUT_SECS);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the guest")?;
    let told = child.stdout.take().context("its words are piped")?;
    let mut others = String::new();
    for line in BufReader::new(told).lines() {
        let line = line.context("what the guest says")?;
        if line.starts_with(MODE) || line.starts_with("  group") {
            say(&format!("guest: {line}"))?;
        } else {
            // Its page, which is a part of ours, or why there is none.
            others = others + &line + "\n";
        }
    }
    let status = child.wait().context("the guest")?;
    ensure!(status.success(), "the benchmark failed in the guest: {status}\n{others}");
    let path = directory.path().join("change.json");
    let file = File::open(&path).with_context(|| format!("the guest wrote no {}", path.display()))?;
    let Written { host, points } = serde_json::from_reader(BufReader::new(file)).context("what it wrote")?;
    Ok(Measured { kernel: host.kernel, points })
}
