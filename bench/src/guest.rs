//! Benchmark runs in the guest VM of `lab/guest.sh`, whose kernel has features that the host's kernel lacks.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use lab::host::scratch::Scratch;
use serde::{Deserialize, de::DeserializeOwned};

use crate::progress::Say;

/// Start parameters of the guest VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    /// Memory for the control server, the agent and the kernel.
    pub(crate) memory: &'static str,
    /// Maximum duration of the guest run in seconds; afterwards the VM is killed.
    pub(crate) timeout_secs: u32,
}

/// Results of a benchmark in the guest VM. The measured points are in the JSON field `points` or `series`.
#[derive(Debug, Deserialize)]
pub(crate) struct GuestResults<P> {
    /// Description of the guest machine.
    pub(crate) host: Machine,
    /// Measured points of the benchmark.
    #[serde(alias = "series")]
    pub(crate) points: Vec<P>,
}

/// Fields of a machine description that the pages of guest results use.
#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    /// Kernel release of the guest.
    pub(crate) kernel: String,
}

impl Guest {
    /// Runs a benchmark of this program in the guest VM and forwards its progress lines.
    ///
    /// # Errors
    /// Returns an error if the guest or this program is not installed, or if the benchmark fails in the
    /// guest.
    pub(crate) fn measure<P: DeserializeOwned>(
        self,
        benchmark: &str,
        arguments: &[String],
        is_progress: &dyn Fn(&str) -> bool,
        say: Say<'_>,
    ) -> Result<GuestResults<P>> {
        ensure!(!lab::host::guest::is_inside(), "the second kernel has no IPVS either; see `lab/setup.sh`");
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
        let told = child.stdout.take().context("stdout was configured as a pipe")?;
        let mut others = String::new();
        for line in BufReader::new(told).lines() {
            let line = line.context("reading the output of the guest")?;
            if is_progress(&line) {
                say(&format!("guest: {line}"))?;
            } else {
                // The page of the guest run, which is part of the host's page, or an error message.
                others = others + &line + "\n";
            }
        }
        let status = child.wait().context("the guest")?;
        ensure!(status.success(), "the benchmark failed in the guest: {status}\n{others}");
        let path = directory.path().join(format!("{benchmark}.json"));
        let file = File::open(&path).with_context(|| format!("the guest wrote no {}", path.display()))?;
        serde_json::from_reader(BufReader::new(file)).context("parsing the results of the guest")
    }
}
