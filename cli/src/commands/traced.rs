//! The span of a command, if the user exports traces: the first of the trace of each write.

use std::{ffi::OsString, time::Duration};

use clap::CommandFactory as _;
use traces::{Export, SpanKind};

use crate::{
    args::Cli,
    commands,
    error::{ExitCode, Failure},
    output::Terminal,
};

/// Maximum time that a command waits at its end for the collector to accept its span.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a command in a span of its own. Nothing is recorded unless the standard environment variables of
/// OpenTelemetry name a collector; an invalid variable is reported and does not stop the command.
pub(crate) async fn run(
    mut cli: Cli,
    arguments: &[OsString],
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let export = Export::from_environment(("tidegate", env!("CARGO_PKG_VERSION"))).unwrap_or_else(|error| {
        terminal.note(&format!("no traces are exported: {error}"));
        None
    });
    let Some(export) = export else { return commands::run(cli, terminal).await };
    let mut span = export.tracer().start("command", SpanKind::Client, None);
    span.set("tidegate.command", name_of(arguments));
    cli.global.trace = span.context();
    let result = commands::run(cli, terminal).await;
    match &result {
        Ok(code) => span.set("process.exit.code", i64::from(code.as_u8())),
        Err(failure) => {
            span.set("process.exit.code", i64::from(failure.exit_code().as_u8()));
            span.fail("the command failed");
        }
    }
    drop(span);
    export.end(PATIENCE).await;
    result
}

/// Returns the name of the subcommand in a command line, without its arguments, which may be secret.
fn name_of(arguments: &[OsString]) -> String {
    let command = Cli::command();
    let found = arguments.iter().skip(1).find_map(|word| command.find_subcommand(word));
    found.map(|command| command.get_name().to_owned()).unwrap_or_default()
}
