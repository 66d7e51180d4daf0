//! Provider of OpenID Connect for tests (`lab/oidc/provider.mjs`), in a process of its own that ends with the test.
//!
//! The tests of `api`, `cli` and `lab` include this file, because none of these crates may depend on another.

#![allow(dead_code, reason = "each crate uses a part")]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Running provider.
pub(crate) struct Provider {
    process: Child,
    /// URL of the issuer, without a slash at the end.
    pub(crate) issuer: String,
}

impl Provider {
    /// Starts a provider on a free port of 127.0.0.1.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a provider with environment variables: `OIDC_TLS` is a directory with a certificate, and `OIDC_NETNS` a
    /// network namespace.
    pub(crate) fn start_with(variables: &[(&str, &Path)]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/oidc/provider.sh");
        let mut process = Command::new(script)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let issuer =
            lines.map(Result::unwrap).find(|line| line.starts_with("http")).expect("the provider runs");
        Self { process, issuer }
    }

    /// Ends the provider.
    pub(crate) fn stop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}
