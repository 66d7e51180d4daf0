//! A benchmark on the second kernel (`lab/guest.sh`), for what this one does not have.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use lab::host::scratch::Scratch;
use serde::{Deserialize, de::DeserializeOwned};

use crate::progress::Say;

/// How the guest is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    /// Its memory, for the control server, the agent and the kernel.
    pub(crate) memory: &'static str,
    /// When it is ended.
    pub(crate) timeout_secs: u32,
}

/// What a benchmark wrote there: its machine, and its list of `P`, by whichever name.
#[derive(Debug, Deserialize)]
pub(crate) struct Written<P> {
    /// The guest.
    pub(crate) host: Machine,
    /// What was measured.
    #[serde(alias = "series")]
    pub(crate) points: Vec<P>,
}

/// As far as a page says it.
#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    /// The version of its kernel.
    pub(crate) kernel: String,
}

impl Guest {
    /// Runs a benchmark of this program there; lines of it that are progress are told.
    ///
    /// # Errors
    /// The guest or this program is not installed, or the benchmark fails there.
    pub(crate) fn measure<P: DeserializeOwned>(
        self,
        benchmark: &str,
        arguments: &[String],
        is_progress: &dyn Fn(&str) -> bool,
        say: Say<'_>,
    ) -> Result<Written<P>> {
        ensure!(!lab::host::guest::is_inside(), "the second kernel has no IPVS either: see `lab/setup.sh`");
        let directory = Scratch::new("bench")?;
        let mut command = lab::host::guest::command(&lab::processes::binaries::find("bench")?);
        command
            .arg("--busy-anyway")
            .arg(format!("--out={}", directory.path().display()))
            .arg(benchmark)
            .args(arguments)
            .env("GUEST_MEMORY", self.memory)
            .env("GUEST_TIMEOUT", self.timeout_secs.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the guest")?;
        let told = child.stdout.take().context("its words are piped")?;
        let mut others = String::new();
        for line in BufReader::new(told).lines() {
            let line = line.context("what the guest says")?;
            if is_progress(&line) {
                say(&format!("guest: {line}"))?;
            } else {
                // Its page, which is a part of ours, or why there is none.
                others = others + &line + "\n";
            }
        }
        let status = child.wait().context("the guest")?;
        ensure!(status.success(), "the benchmark failed in the guest: {status}\n{others}");
        let path = directory.path().join(format!("{benchmark}.json"));
        let file = File::open(&path).with_context(|| format!("the guest wrote no {}", path.display()))?;
        serde_json::from_reader(BufReader::new(file)).context("what it wrote")
    }
}
