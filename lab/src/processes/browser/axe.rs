//! Accessibility checks with axe-core, which is fetched for tests only and is not part of the product.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Browser, kept_directory};
use crate::host::shell;

/// The npm manifest; the lock file next to it pins the version and the checksum of axe-core, and `npm ci`
/// rejects a package that differs.
const MANIFEST: &str = include_str!("axe/package.json");
const LOCK: &str = include_str!("axe/package-lock.json");

/// Lock that keeps tests of this process from fetching axe-core at the same time.
static FETCH: Mutex<()> = Mutex::new(());

/// Violation of an accessibility rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Rule identifier, such as `color-contrast`.
    pub rule: String,
    /// Severity: minor, moderate, serious or critical.
    pub impact: String,
    /// Human-readable description with the affected elements.
    pub text: String,
}

impl Finding {
    /// Returns true if the violation blocks users: its impact is serious or critical.
    #[must_use]
    pub fn is_serious(&self) -> bool {
        matches!(self.impact.as_str(), "serious" | "critical")
    }
}

impl Browser {
    /// Runs axe-core on the current page with its WCAG 2.2 AA and best-practice rules, and returns the
    /// violations.
    ///
    /// # Errors
    /// Returns an error if axe-core cannot be fetched or does not run.
    pub fn axe(&mut self) -> Result<Vec<Finding>> {
        let source = fs::read_to_string(library()?).context("axe-core cannot be read")?;
        self.script(&format!("if (!window.axe) {{ {source} }}"), &[])?;
        let found = self.script_later(
            "const done = arguments[arguments.length - 1]; \
             axe.run(document, {resultTypes: ['violations']}).then( \
                 (result) => done({violations: result.violations, passes: result.passes.length}), \
                 (error) => done({error: String(error)}));",
            &[],
        )?;
        ensure!(found["error"].is_null(), "axe-core failed: {found}");
        ensure!(found["passes"].as_u64().unwrap_or(0) > 0, "axe-core checked no element");
        Ok(found["violations"].as_array().into_iter().flatten().map(finding).collect())
    }

    /// Asserts that axe-core reports no violation with serious or critical impact.
    ///
    /// # Errors
    /// Returns the violations with serious or critical impact.
    pub fn expect_accessible(&mut self) -> Result<()> {
        let serious: Vec<_> =
            self.axe()?.into_iter().filter(Finding::is_serious).map(|found| found.text).collect();
        ensure!(serious.is_empty(), "{} serious axe-core findings:\n{}", serious.len(), serious.join("\n"));
        Ok(())
    }
}

fn finding(found: &Value) -> Finding {
    /// Maximum number of elements listed per violated rule.
    const PLACES_MAX: usize = 5;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    let nodes = found["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let places: Vec<String> = nodes
        .iter()
        .take(PLACES_MAX)
        .map(|node| {
            format!(
                "  {} {}",
                node["target"],
                node["failureSummary"].as_str().unwrap_or_default().replace('\n', " ")
            )
        })
        .collect();
    let (rule, impact) = (text("id"), text("impact"));
    let text = format!("{impact} {rule}: {} ({} elements)\n{}", text("help"), nodes.len(), places.join("\n"));
    Finding { rule, impact, text }
}

/// Returns the path of the axe-core script. Fetches it once per target directory.
fn library() -> Result<PathBuf> {
    let directory = kept_directory()?.join("axe");
    let path = directory.join("node_modules/axe-core/axe.min.js");
    let _one = FETCH.lock().unwrap_or_else(PoisonError::into_inner);
    let is_current = |file: &Path| fs::read_to_string(file).is_ok_and(|text| text == LOCK);
    if path.exists() && is_current(&directory.join("fetched-by.json")) {
        return Ok(path);
    }
    // Fetched into a temporary directory and renamed, because other test programs may fetch concurrently.
    let aside = tempfile::Builder::new().prefix("axe-").tempdir_in(kept_directory()?)?;
    fs::write(aside.path().join("package.json"), MANIFEST)?;
    fs::write(aside.path().join("package-lock.json"), LOCK)?;
    let at = aside.path().to_str().context("the target directory's path is text")?;
    shell::run("npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", at])
        .context("axe-core cannot be fetched")?;
    fs::write(aside.path().join("fetched-by.json"), LOCK)?;
    let _ = fs::remove_dir_all(&directory);
    let fetched = aside.keep();
    if fs::rename(&fetched, &directory).is_err() {
        // Another program installed the same version first.
        let _ = fs::remove_dir_all(&fetched);
    }
    ensure!(path.exists(), "npm did not install {}", path.display());
    Ok(path)
}
