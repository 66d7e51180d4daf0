//! Command `tidegate-cni`: reads the invocation, has the agent carry it out, and writes the answer.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use cni::{
    CniCode, CniError,
    parse::{self, CONFIG_BYTES_MAX},
    render, run,
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut config = Vec::new();
    let limit = u64::try_from(CONFIG_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let read = std::io::stdin().take(limit).read_to_end(&mut config);
    let answer = read
        .map_err(|error| CniError::new(CniCode::Io, "the configuration cannot be read", error))
        .and_then(|_| execute(&config));
    let (value, code) = match answer {
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (Some(render::failure(parse::answer_version(&config), &error)), ExitCode::FAILURE),
    };
    if let Some(value) = value {
        // Without standard output, the runtime sees the exit code only.
        let _gone = writeln!(std::io::stdout(), "{value}");
    }
    code
}

fn execute(config: &[u8]) -> Result<Option<Value>, CniError> {
    let invocation = parse::parse(|name| std::env::var(name).ok(), config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| CniError::new(CniCode::Io, "the runtime cannot be started", error))?;
    runtime.block_on(run::run(invocation))
}
