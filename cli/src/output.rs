//! Output streams of the process: results on stdout, everything else on stderr.

use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write};

use crate::{error::Failure, terminal::style::Style, views::render};

/// Output of one run of a command that is repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CapturedOutput {
    /// Text for stdout.
    pub(crate) result: String,
    /// Text for stderr.
    pub(crate) notes: String,
}

/// Output streams of the process, with their color settings.
pub(crate) struct Terminal {
    out: BufWriter<Stdout>,
    err: Stderr,
    /// Output collected instead of printed, while a command is repeated.
    captured: Option<CapturedOutput>,
    /// Style of stdout: colors only if it is a terminal.
    pub(crate) style: Style,
    err_style: Style,
}

impl Terminal {
    /// Opens the streams of the process, with color on terminals unless `NO_COLOR` is set to a non-empty
    /// value.
    pub(crate) fn of_process() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
        let (out, err) = (io::stdout(), io::stderr());
        let style = Style { color: wanted && out.is_terminal() };
        let err_style = Style { color: wanted && err.is_terminal() };
        Self { out: BufWriter::new(out), err, captured: None, style, err_style }
    }

    /// Collects the output from now on instead of printing it.
    pub(crate) fn begin_capture(&mut self) {
        self.captured = Some(CapturedOutput::default());
    }

    /// Returns the collected output; later output is printed.
    pub(crate) fn end_capture(&mut self) -> CapturedOutput {
        self.captured.take().unwrap_or_default()
    }

    /// Writes a result to stdout.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(captured) = &mut self.captured {
            captured.result.push_str(text);
            return Ok(());
        }
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Flushes the results printed so far; used by watches after each event.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a message on stderr on a line of its own. Write errors are ignored.
    pub(crate) fn note(&mut self, text: &str) {
        if let Some(captured) = &mut self.captured {
            captured.notes.push_str(&format!("{text}\n"));
            return;
        }
        let _printed = self.out.flush();
        let _nobody_listens = self.err.write_all(format!("{text}\n").as_bytes());
    }

    /// Prints the failure of the command with its hints.
    pub(crate) fn report(&mut self, failure: &Failure) {
        let _printed = self.out.flush();
        let text = render::failure(failure, self.err_style);
        let _nobody_listens = self.err.write_all(text.as_bytes());
    }
}
