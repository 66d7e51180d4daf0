//! Finds the binaries under test: next to the executable that asks, in the same target directory, or where [`DIRECTORY`] says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The variable that names another directory of binaries: a run of many minutes needs some that no build replaces meanwhile.
pub const DIRECTORY: &str = "TIDEGATE_BINARIES";

/// The path of a built binary of this workspace.
///
/// # Errors
/// It is not built; the error says how to.
pub fn find(name: &str) -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let path = Path::new(&directory).join(name);
        ensure!(
            is_executable(&path),
            "`{name}` is not in the directory that {DIRECTORY} names: {}",
            path.display()
        );
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot tell where this executable is")?;
    // Test executables are in `deps`, binaries one above.
    let directories = own.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = directories.map(|directory| directory.join(name)).collect();
    match candidates.iter().find(|path| is_executable(path)) {
        Some(path) => Ok(path.clone()),
        None => {
            bail!("`{name}` is not built: run `cargo build --workspace` first (looked for {candidates:?})")
        }
    }
}

/// The target directory of this build.
///
/// # Errors
/// This executable is in none.
pub fn target_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this executable is")?;
    let directories = own.ancestors().skip(1);
    // Test executables are in `target/debug/deps`, binaries in `target/debug`.
    let profile = directories.into_iter().find(|directory| !directory.ends_with("deps"));
    let target = profile.and_then(Path::parent).context("this executable is in no target directory")?;
    Ok(target.to_owned())
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
