//! Check of external crates against known vulnerabilities, without network: `advisories.txt` has a line for each
//! advisory of the RustSec database, with the versions that are not affected. `cargo deny check` uses the database itself.
//!
//! `ADVISORY_DB=DIR UPDATE_GOLDEN=1 cargo test -p lab --test tidy advisories` writes the file from a checkout of
//! `https://github.com/rustsec/advisory-db`.

use std::{cmp::Ordering, fmt::Write, fs, path::Path};

use crate::root;

/// Snapshot of the database, below the root of the repository.
const SNAPSHOT: &str = "lab/tests/tidy/advisories.txt";
/// Minimum number of advisories in a complete snapshot.
const ADVISORIES_MIN: usize = 900;

/// Advisory about one crate.
struct Advisory<'a> {
    id: &'a str,
    package: &'a str,
    /// Requirements on versions that are not affected; one of them is sufficient.
    not_affected: Vec<&'a str>,
}

impl<'a> Advisory<'a> {
    /// Parses a line such as `RUSTSEC-2024-0019 mio | >= 0.8.11 | < 0.7.2`.
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.split('|').map(str::trim);
        let (id, package) = parts.next()?.split_once(' ')?;
        Some(Self { id, package, not_affected: parts.filter(|part| !part.is_empty()).collect() })
    }

    fn affects(&self, version: &str) -> bool {
        !self.not_affected.iter().any(|requirement| satisfies(version, requirement))
    }
}

/// Version in the order of precedence (semver 2.0): numbers, then a release after its pre-releases.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Version<'a>([u64; 3], bool, &'a str);

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Self {
        let text = text.split('+').next().unwrap_or_default();
        let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
        let mut parsed = numbers.split('.').map(|number| number.trim().parse().unwrap());
        let parts = [0; 3].map(|none| parsed.next().unwrap_or(none));
        Self(parts, pre.is_empty(), pre)
    }
}

/// Returns true if a version satisfies all comparisons of a requirement, such as `>= 1.2.3, < 2`.
fn satisfies(version: &str, requirement: &str) -> bool {
    requirement.split(',').all(|comparison| {
        let comparison = comparison.trim();
        let number = comparison.trim_start_matches(['<', '>', '=', '^', '~', ' ']);
        let operator = comparison[..comparison.len() - number.len()].trim();
        let (version, bound) = (Version::parse(version), Version::parse(number));
        let order = version.cmp(&bound);
        match operator {
            ">=" => order != Ordering::Less,
            ">" => order == Ordering::Greater,
            "<=" => order != Ordering::Greater,
            "<" => order == Ordering::Less,
            "=" => order == Ordering::Equal,
            // A requirement without an operator is a caret requirement.
            "^" | "" => order != Ordering::Less && is_compatible(version.0, bound.0),
            "~" => order != Ordering::Less && version.0[..2] == bound.0[..2],
            _ => panic!("unknown operator in `{comparison}`"),
        }
    })
}

/// Returns true if the leftmost number of `bound` that is not zero, and all before it, are equal in `version`.
fn is_compatible(version: [u64; 3], bound: [u64; 3]) -> bool {
    let first = bound.iter().position(|number| *number > 0).unwrap_or(2);
    version[..=first] == bound[..=first]
}

/// Returns the text between the first `start` and the next `end` after it.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split_once(end).map(|(found, _)| found)
}

/// Returns the lines of the snapshot for the advisories in a checkout of the database. Withdrawn advisories and mere
/// notices are left out.
fn read_database(directory: &Path) -> String {
    let mut lines = Vec::new();
    for package in fs::read_dir(directory.join("crates")).unwrap() {
        for file in fs::read_dir(package.unwrap().path()).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let text = between(&text, "```toml\n", "```").unwrap();
            if text.contains("\nwithdrawn = ") || text.contains("\ninformational = \"notice\"") {
                continue;
            }
            let (id, package) = (between(text, "\nid = \"", "\""), between(text, "\npackage = \"", "\""));
            let mut line = format!("{} {} ", id.unwrap(), package.unwrap());
            for key in ["\npatched = [", "\nunaffected = ["] {
                let list = between(text, key, "]").unwrap_or_default();
                for requirement in list.split('"').skip(1).step_by(2) {
                    write!(line, "| {requirement} ").unwrap();
                }
            }
            lines.push(line.trim_end().to_owned() + "\n");
        }
    }
    lines.sort();
    lines.concat()
}

#[test]
fn no_crate_has_a_known_vulnerability() {
    let path = root().join(SNAPSHOT);
    if let (Ok(directory), Ok(_)) = (std::env::var("ADVISORY_DB"), std::env::var("UPDATE_GOLDEN")) {
        fs::write(&path, read_database(Path::new(&directory))).unwrap();
    }
    let snapshot = fs::read_to_string(&path).unwrap();
    let advisories: Vec<_> = snapshot.lines().map(|line| Advisory::parse(line).unwrap()).collect();
    assert!(advisories.len() >= ADVISORIES_MIN, "{} advisories", advisories.len());
    let policy = fs::read_to_string(root().join("deny.toml")).unwrap();
    let mut found = Vec::new();
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let lock = fs::read_to_string(root().join(lock)).unwrap();
        for package in lock.split("[[package]]").skip(1).filter(|package| package.contains("\nsource = ")) {
            let name = between(package, "\nname = \"", "\"").unwrap();
            let version = between(package, "\nversion = \"", "\"").unwrap();
            let affecting = advisories.iter().filter(|one| one.package == name && one.affects(version));
            let affecting = affecting.filter(|one| !policy.contains(one.id));
            found.extend(affecting.map(|one| format!("{}: {name} {version}", one.id)));
        }
    }
    found.dedup();
    assert!(found.is_empty(), "known vulnerabilities: {found:#?}");
}

#[test]
fn requirements_on_versions_are_compared_like_semver() {
    for (version, requirement, expected) in [
        ("1.2.3", ">= 1.2.3", true),
        ("1.2.3", "> 1.2.3", false),
        ("1.10.0", ">= 1.9.0, < 2", true),
        ("2.0.0", ">= 1.9.0, < 2", false),
        ("0.24.9", "^0.24.3", true),
        ("0.25.0", "^0.24.3", false),
        ("1.9.0", "^1.2.0", true),
        ("0.13.10", "0.13.10", true),
        ("1.0.0-alpha.1", ">= 1.0.0", false),
        ("1.0.0", "< 1.0.0-0", false),
        ("0.2.1", "=0.2.0", false),
    ] {
        assert_eq!(satisfies(version, requirement), expected, "{version} {requirement}");
    }
    let line = "RUSTSEC-2024-0019 mio | >= 0.8.11 | < 0.7.2";
    let affected = |version| Advisory::parse(line).unwrap().affects(version);
    assert!(affected("0.8.10") && !affected("0.8.11") && !affected("0.7.1"));
    assert!(Advisory::parse("RUSTSEC-2024-0436 paste").unwrap().affects("1.0.15"), "no version is patched");
}
