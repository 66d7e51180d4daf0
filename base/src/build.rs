//! Build of the running program: version, commit, date and target.

use std::sync::LazyLock;

/// Version of the program, as in `Cargo.toml`, for example `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit from which the program was built, as given by the environment variable `TIDEGATE_BUILD_COMMIT` of the
/// build. `None` if it was not set.
pub const COMMIT: Option<&str> = option_env!("TIDEGATE_BUILD_COMMIT");
/// Date of the commit (RFC 3339), as given by `TIDEGATE_BUILD_DATE`. `None` if it was not set.
pub const DATE: Option<&str> = option_env!("TIDEGATE_BUILD_DATE");
/// Target triple of the build, for example `x86_64-unknown-linux-gnu`, as given by `TIDEGATE_BUILD_TARGET`. `None` if
/// it was not set.
pub const TARGET: Option<&str> = option_env!("TIDEGATE_BUILD_TARGET");

static TEXT: LazyLock<String> = LazyLock::new(|| describe(VERSION, COMMIT, DATE, TARGET));

/// Returns the text that programs print for `--version`, after their name: version, and commit, date and target of the
/// build in parentheses, or `development build` if none of them was recorded.
#[must_use]
pub fn text() -> &'static str {
    &TEXT
}

/// Formats a version with the details of a build that are known, for example
/// `0.1.0 (commit 4f2a9c1, 2026-11-28T14:02:11Z, x86_64-unknown-linux-gnu)`.
#[must_use]
pub fn describe(version: &str, commit: Option<&str>, date: Option<&str>, target: Option<&str>) -> String {
    let commit = commit.map(|commit| format!("commit {commit}"));
    let details: Vec<&str> = [commit.as_deref(), date, target].into_iter().flatten().collect();
    if details.is_empty() {
        format!("{version} (development build)")
    } else {
        format!("{version} ({})", details.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_the_build_recorded() {
        assert_eq!(describe("1.2.3", None, None, None), "1.2.3 (development build)");
        let whole = describe(
            "1.2.3",
            Some("4f2a9c1"),
            Some("2026-11-28T14:02:11Z"),
            Some("x86_64-unknown-linux-gnu"),
        );
        assert_eq!(whole, "1.2.3 (commit 4f2a9c1, 2026-11-28T14:02:11Z, x86_64-unknown-linux-gnu)");
        assert_eq!(describe("1.2.3", Some("4f2a9c1"), None, None), "1.2.3 (commit 4f2a9c1)");
        assert!(text().starts_with(VERSION), "{}", text());
    }
}
