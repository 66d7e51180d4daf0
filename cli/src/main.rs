//! Entry point of the `tidegate` command, which parses the arguments and runs the subcommand.

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(cli::run(std::env::args_os().collect()).await.as_u8())
}
