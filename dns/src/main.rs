//! Entry point of `tidegate-dns`: parses the settings and runs the server.

use std::process::ExitCode;

use dns::{args::RULES, run::run};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;

fn main() -> ExitCode {
    daemon::start::main(RULES, run)
}
