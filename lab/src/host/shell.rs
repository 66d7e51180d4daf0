//! Runs the administration tools of the harness: `ip`, `nft`, `conntrack`. The product itself starts no tool.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Runs a program to its end and returns what it wrote to stdout.
///
/// # Errors
/// It cannot be started, or ends with another status than 0; then stderr is in the error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_with_input(program, arguments, "")
}

/// As [`run`], with text for stdin.
///
/// # Errors
/// As [`run`].
pub fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let line = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}` (is it installed? `make setup` installs it)", line()))?;
    let mut stdin = child.stdin.take().expect("stdin was asked to be a pipe");
    // A tool that ends without reading its input says why on stderr; that is the better error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| format!("cannot wait for `{}`", line()))?;
    if !output.status.success() {
        bail!("`{}` failed ({}): {}", line(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
