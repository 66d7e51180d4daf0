//! Subcommands that another program of Tidegate carries out, in place of this process.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use crate::{args::Demo, error::Failure};

/// Name of the program that runs the demonstration, and of its package.
const LAB: &str = "tidegate-lab";

/// Replaces this process with `tidegate-lab`. Returns only if that fails.
pub(crate) fn demo(Demo { arguments }: &Demo) -> Failure {
    replace_process(LAB, arguments.iter().cloned(), "it runs a cluster in network namespaces of this machine")
}

/// Replaces this process with another program of Tidegate: the one in the directory of this program, otherwise the one
/// on PATH. Returns only if that fails; `reason` ends the hint.
pub(crate) fn replace_process(
    program: &str,
    arguments: impl IntoIterator<Item = OsString>,
    reason: &str,
) -> Failure {
    let path = beside(program, std::env::current_exe().ok()).unwrap_or_else(|| program.into());
    let error = Command::new(&path).args(arguments).exec();
    Failure::Usage {
        message: format!("cannot run {}: {error}", path.display()),
        hint: Some(format!("install {program} in the directory of this program or on PATH; {reason}")),
    }
}

/// Returns the path of `program` in the same directory as the program `own`, or `None` if it is not there.
fn beside(program: &str, own: Option<PathBuf>) -> Option<PathBuf> {
    let path = own?.with_file_name(OsStr::new(program));
    path.is_file().then_some(path)
}
