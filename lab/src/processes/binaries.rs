//! Locates the binaries under test: next to the current executable, in the same target directory, or in the
//! directory set by [`DIRECTORY`].

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Environment variable that sets a different directory of binaries. Long runs use a copy that no build replaces
/// meanwhile.
pub const DIRECTORY: &str = "TIDEGATE_BINARIES";

/// Returns the path of a built binary of this workspace.
///
/// # Errors
/// Returns an error with the build command if the binary is not built.
pub fn find(name: &str) -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return find_in(Some(Path::new(&directory)), name);
    }
    let own = std::env::current_exe().context("cannot determine the path of this executable")?;
    // Test executables are in `deps`, binaries one directory above.
    let directories = own.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = directories.map(|directory| directory.join(name)).collect();
    match candidates.iter().find(|path| is_executable(path)) {
        Some(path) => Ok(path.clone()),
        None => {
            bail!("`{name}` is not built: run `cargo build --workspace` first (looked for {candidates:?})")
        }
    }
}

/// Same as [`find`] if `directory` is `None`. Otherwise, returns the path of the binary in that directory.
///
/// # Errors
/// Same as [`find`], or an error if the directory does not contain the binary.
pub fn find_in(directory: Option<&Path>, name: &str) -> Result<PathBuf> {
    let Some(directory) = directory else {
        return find(name);
    };
    let path = directory.join(name);
    ensure!(is_executable(&path), "`{name}` is not in the given directory of binaries: {}", path.display());
    Ok(path)
}

/// Returns the target directory of this build.
///
/// # Errors
/// Returns an error if this executable is not inside a target directory.
pub fn target_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot determine the path of this executable")?;
    let directories = own.ancestors().skip(1);
    // Test executables are in `target/debug/deps`, binaries in `target/debug`.
    let profile = directories.into_iter().find(|directory| !directory.ends_with("deps"));
    let target =
        profile.and_then(Path::parent).context("this executable is not inside a target directory")?;
    Ok(target.to_owned())
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
