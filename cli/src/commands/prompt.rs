//! Prompt on the terminal before a change that the user has not confirmed on the command line.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use crate::{error::Failure, output::Terminal};

/// Maximum length of the answer to the prompt, in bytes.
const ANSWER_BYTES_MAX: u64 = 64;

/// Returns true if stdin is a terminal, so that questions can be answered.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal()
}

/// Asks `question` on the terminal, unless `is_confirmed` is true.
///
/// # Errors
/// Returns an error if the user declines, or if stdin is not a terminal; the hint is `otherwise` then.
pub(crate) fn confirm(
    question: &str,
    is_confirmed: bool,
    otherwise: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if is_confirmed {
        return Ok(());
    }
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(Failure::usage(
            format!("{question} Not confirmed, because stdin is not a terminal"),
            otherwise,
        ));
    }
    terminal.flush()?;
    terminal.note(&format!("{question} [y/N]"));
    let mut answer = String::new();
    input.lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Usage { message: "nothing was changed".to_owned(), hint: None }),
    }
}
