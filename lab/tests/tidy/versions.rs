//! Check that all files with the version of the project have the same one, and that the changelog describes it.
//! `packaging/release/version.sh` sets it.

use std::fs;

use crate::root;

/// Text before the version, in each file that has it.
const PLACES: [(&str, &str); 9] = [
    ("Cargo.toml", "\nversion = \""),
    ("fuzz/Cargo.toml", "\nversion = \""),
    ("clients/python/pyproject.toml", "\nversion = \""),
    ("packaging/helm/tidegate/Chart.yaml", "\nversion: "),
    ("packaging/helm/tidegate/Chart.yaml", "\nappVersion: "),
    ("packaging/kubernetes/kustomization.yaml", "newTag: "),
    ("compose.yaml", "image: tidegate-api:"),
    ("compose.yaml", "image: tidegate-agent:"),
    ("docs/tutorials/docker-compose-lab.md", "\ntidegate-api:"),
];

#[test]
fn all_files_have_the_same_version_which_the_changelog_describes() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, before) in PLACES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let found: Vec<_> = text
            .split(before)
            .skip(1)
            .map(|rest| rest.split(|end: char| end.is_whitespace() || "\"}".contains(end)).next().unwrap())
            .collect();
        assert!(!found.is_empty(), "{file} has no `{}`", before.trim());
        assert!(found.iter().all(|one| *one == version), "{file} has {found:?} after `{}`", before.trim());
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(changelog.contains(&format!("\n## [{version}] - ")), "CHANGELOG.md has no section [{version}]");
}
