//! The `tidegate-sync` command.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
