//! Entry point of the `tidegate` command, which parses the arguments and runs the subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Ends the process if a shell asks for the words that complete a command line.
    cli::answer_completion();
    run()
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> ExitCode {
    ExitCode::from(cli::run(std::env::args_os().collect()).await.as_u8())
}
