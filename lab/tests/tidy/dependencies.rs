//! Check of external crates: their licenses are in the list of `deny.toml`, and all are from crates.io.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use crate::root;

/// Registry of every external crate.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the licenses that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, list) = text.split_once("\nallow = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns true if a license expression (SPDX) can be satisfied by the allowed licenses. `/` is an older form of
/// `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    // Each operand of AND is a license or an expression in parentheses; only OR occurs without them.
    expression.split(" AND ").all(|part| {
        let part = part.trim().trim_matches(['(', ')']);
        part.split(" OR ").any(|license| allowed.contains(license.trim().trim_end_matches('+')))
    })
}

#[test]
fn external_crates_are_from_crates_io_and_have_allowed_licenses() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        // Crates of other platforms are not downloaded by a build.
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let allowed = allowed();
    let packages = metadata["packages"].as_array().unwrap();
    let external: Vec<_> = packages.iter().filter(|package| !package["source"].is_null()).collect();
    assert!(external.len() > 100 && allowed.contains("MIT"));
    for package in external {
        let name = package["name"].as_str().unwrap();
        assert_eq!(package["source"], REGISTRY, "{name}");
        let license = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(license, &allowed), "{name}: the license `{license}` is not in deny.toml");
    }
}

#[test]
fn a_license_expression_needs_one_operand_of_or_and_all_of_and() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}
