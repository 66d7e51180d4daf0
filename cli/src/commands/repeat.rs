//! Repetition of a command that prints a state (`-w`): prints its output again whenever it has changed.

use std::time::Duration;

use crate::{
    client::Client,
    error::{ExitCode, Failure},
    output::{CapturedOutput, Terminal},
};

/// Interval between two runs.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Runs `command` once, or until it fails if `is_watch` is true ([`on_change`]).
pub(crate) async fn if_asked<A: Clone>(
    is_watch: bool,
    client: &Client,
    arguments: A,
    terminal: &mut Terminal,
    command: impl AsyncFn(&Client, A, &mut Terminal) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    if is_watch {
        on_change(client, arguments, terminal, command).await
    } else {
        command(client, arguments, terminal).await
    }
}

/// Runs `command` until it fails. After the first run, an unreachable server is reported and the command is tried again.
pub(crate) async fn on_change<A: Clone>(
    client: &Client,
    arguments: A,
    terminal: &mut Terminal,
    command: impl AsyncFn(&Client, A, &mut Terminal) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let (mut last, mut is_lost) = (None::<CapturedOutput>, false);
    loop {
        terminal.begin_capture();
        let result = command(client, arguments.clone(), terminal).await;
        let output = terminal.end_capture();
        match result {
            Ok(_) if last.as_ref() == Some(&output) => is_lost = false,
            Ok(_) => {
                // Outputs are separated by a blank line.
                let gap = if last.is_some() { "\n" } else { "" };
                terminal.print(&format!("{gap}{}", output.result))?;
                if !output.notes.is_empty() {
                    terminal.note(output.notes.trim_end());
                }
                terminal.flush()?;
                (last, is_lost) = (Some(output), false);
            }
            Err(failure) if last.is_some() && failure.exit_code() == ExitCode::Unreachable => {
                if !is_lost {
                    terminal.note(&format!("-- {failure}; trying again"));
                }
                is_lost = true;
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
