//! Test helper that compares generated pages with the checked-in pages in `docs/reference/`.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

/// Folder of the checked-in reference pages.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference");
/// Environment variable that makes [`check`] write pages instead of comparing them.
const UPDATE: &str = "UPDATE_GOLDEN";

/// Compares a generated page with the file below `docs/reference/`. If `UPDATE_GOLDEN` is set, writes the file
/// instead.
///
/// # Errors
/// Returns an error with the first differing line if the page is not current, or if the file cannot be read or
/// written.
pub fn check(name: &str, page: &str) -> Result<(), String> {
    let path = Path::new(PAGES).join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if is_update() {
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        return fs::write(&path, page).map_err(failed);
    }
    let found = fs::read_to_string(&path).map_err(failed)?;
    if found == page {
        return Ok(());
    }
    let differing = found.lines().zip(page.lines()).position(|(found, wanted)| found != wanted);
    let line = differing.unwrap_or_else(|| found.lines().count().min(page.lines().count()));
    Err(format!(
        "docs/reference/{name} is not current from line {} on: run the test with {UPDATE}=1 and review the diff; \
         generated: {}",
        line + 1,
        page.lines().nth(line).unwrap_or("(end)")
    ))
}

/// Compares a set of generated pages with a folder below `docs/reference/`, as [`check`] does. Pages that are no
/// longer generated are errors, and are removed if `UPDATE_GOLDEN` is set.
///
/// # Errors
/// Returns the errors of [`check`], and an error if the folder contains a page that is not in `pages`.
pub fn check_folder(folder: &str, pages: &[(String, String)]) -> Result<(), String> {
    for (name, page) in pages {
        check(&format!("{folder}/{name}"), page)?;
    }
    let generated: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for path in files(&Path::new(PAGES).join(folder)).map_err(|error| format!("{folder}: {error}"))? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if generated.contains(name) {
            continue;
        }
        if !is_update() {
            return Err(format!("docs/reference/{folder}/{name} is no longer generated: remove it"));
        }
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn is_update() -> bool {
    env::var_os(UPDATE).is_some()
}
