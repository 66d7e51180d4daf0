//! Runs command-line tools that the lab needs, such as `ip`, `nft` and `conntrack`. Tidegate itself does not
//! use these functions.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Runs a program to completion and returns its stdout.
///
/// # Errors Returns an error if the program cannot be started, or, with its stderr, if the exit status is not 0.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_with_input(program, arguments, "")
}

/// Runs a program like [`run`], with text for its stdin.
///
/// # Errors
/// Same as [`run`].
pub fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let line = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}` (is it installed? `make setup` installs it)", line()))?;
    let mut stdin = child.stdin.take().expect("stdin was configured as a pipe");
    // A tool that exits without reading its input explains that on stderr, which is the better error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| format!("cannot wait for `{}`", line()))?;
    if !output.status.success() {
        bail!("`{}` failed ({}): {}", line(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
