//! Output streams of the process: results on stdout, everything else on stderr.

use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write};

use crate::{error::Failure, terminal::style::Style, views::render};

/// Output streams of the process, with their color settings.
pub(crate) struct Terminal {
    out: BufWriter<Stdout>,
    err: Stderr,
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
        Self { out: BufWriter::new(out), err, style, err_style }
    }

    /// Writes a result to stdout.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Flushes the results printed so far; used by watches after each event.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a message on stderr on a line of its own. Write errors are ignored.
    pub(crate) fn note(&mut self, text: &str) {
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
