//! Entry point of `tidegate-gateway`: parses the settings and runs the gateway.

use std::process::ExitCode;

use gateway::{args::RULES, run::run};

fn main() -> ExitCode {
    daemon::start::main(RULES, run)
}
