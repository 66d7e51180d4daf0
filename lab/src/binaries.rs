//! Finds the binaries under test: next to the executable that asks, in the same target directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The path of a built binary of this workspace.
///
/// # Errors
/// It is not built; the error says how to.
pub fn find(name: &str) -> Result<PathBuf> {
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

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
