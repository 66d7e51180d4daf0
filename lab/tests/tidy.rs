//! Source rules that the compiler does not check: allowed dependencies, purity, maximum file length, and the
//! state of every row of the feature table (`docs/reference/features.md`).
//!
//! The test is a separate program, so that many build recipes can run it quickly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

#[path = "tidy/advisories.rs"]
mod advisories;
#[path = "tidy/allowance.rs"]
mod allowance;
#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/features.rs"]
mod features;
#[path = "tidy/functions.rs"]
mod functions;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/mutants.rs"]
mod mutants;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/recipes.rs"]
mod recipes;
#[path = "tidy/rooms.rs"]
mod rooms;
mod rows;
#[path = "tidy/trials.rs"]
mod trials;
#[path = "tidy/versions.rs"]
mod versions;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use model::kinds::node::ProxyMode;
use serde_json::Value;

/// Maximum length of a source file in lines.
const FILE_LINES_MAX: usize = 600;

/// Workspace members that each member may depend on.
const MAY_USE: [(&str, &[&str]); 33] = [
    ("model", &[]),
    ("store", &["model"]),
    ("man-pages", &[]),
    ("allocator", &[]),
    (
        "api",
        &[
            "allocator",
            "base",
            "man-pages",
            "model",
            "reference-pages",
            "settings",
            "store",
            "tls-trust",
            "traces",
        ],
    ),
    ("bfd", &[]),
    ("bgp", &[]),
    ("tls-trust", &[]),
    ("client", &["base", "tls-trust"]),
    ("settings", &[]),
    ("traces", &["base", "model", "tls-trust"]),
    ("base", &["model"]),
    ("kernel", &["model"]),
    ("attach-socket", &[]),
    ("network", &["attach-socket", "kernel", "model"]),
    ("cni", &["attach-socket", "model", "network"]),
    ("conntrack", &["base", "kernel", "model"]),
    ("dataplane", &["base", "kernel", "model"]),
    ("health", &["base", "kernel", "model"]),
    ("bfd-runner", &["base", "bfd"]),
    ("announce", &["base", "bfd", "bfd-runner", "kernel", "model"]),
    ("speaker", &["base", "bfd", "bfd-runner", "bgp", "kernel", "model"]),
    (
        "node-agent",
        &[
            "allocator",
            "announce",
            "attach-socket",
            "base",
            "bfd",
            "bfd-runner",
            "bgp",
            "client",
            "conntrack",
            "daemon",
            "dataplane",
            "health",
            "kernel",
            "man-pages",
            "model",
            "network",
            "reference-pages",
            "settings",
            "speaker",
            "tls-trust",
            "traces",
        ],
    ),
    ("translate", &["model"]),
    ("cli", &["base", "client", "man-pages", "model", "reference-pages", "settings", "traces", "translate"]),
    ("daemon", &["base", "man-pages", "settings"]),
    (
        "dns",
        &[
            "allocator",
            "base",
            "client",
            "daemon",
            "model",
            "reference-pages",
            "replica",
            "settings",
            "tls-trust",
        ],
    ),
    ("gateway", &["base", "client", "daemon", "model", "reference-pages", "replica", "settings"]),
    ("replica", &["base", "client", "model"]),
    ("sync", &["base", "client", "daemon", "man-pages", "model", "reference-pages", "settings", "translate"]),
    ("reference-pages", &["model"]),
    ("lab", &["base", "client", "man-pages", "model"]),
    ("bench", &["lab"]),
];

/// External crates for I/O, async runtimes, clocks or randomness. Pure crates (those without I/O, clock and
/// randomness) must not use them.
const RUNTIME: [&str; 10] =
    ["tokio", "hyper", "axum", "reqwest", "nix", "sqlx", "async-trait", "tracing-subscriber", "rand", "mio"];
const PURE_CRATES: [&str; 4] = ["model", "bfd", "bgp", "translate"];

/// Names of files that must be pure in every crate: no I/O, no clock.
const PURE_FILES: [&str; 7] =
    ["plan.rs", "render.rs", "parse.rs", "machine.rs", "wire.rs", "desired.rs", "listing.rs"];
/// File names that the folder of every proxy mode must have.
const MODE_FILES: [&str; 5] = ["desired.rs", "commit.rs", "trace.rs", "preview.rs", "listing.rs"];
/// File names that the folders of all proxy modes except userspace must have. Userspace mode has none of
/// them, because code in the nftables folder programs the rules that redirect its traffic to the relay.
const KERNEL_MODE_FILES: [&str; 5] = ["plan.rs", "render.rs", "parse.rs", "mirror.rs", "verify.rs"];
const IMPURE: [&str; 11] = [
    "tokio",
    "nix::",
    "std::fs",
    "std::process",
    "std::net::Tcp",
    "std::net::Udp",
    "TcpStream",
    "UdpSocket",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
];

#[test]
fn members_depend_only_in_the_agreed_direction_and_pure_crates_on_no_runtime() {
    let metadata = metadata();
    let members: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let packages = metadata["packages"].as_array().unwrap();
    let found: BTreeSet<_> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(found, members, "a new member needs a line in MAY_USE");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let (_, allowed) = MAY_USE.iter().find(|(member, _)| *member == name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let uses = dependency["name"].as_str().unwrap();
            // `MAY_USE` applies to development dependencies too, `RUNTIME` to normal dependencies only.
            assert!(!members.contains(uses) || allowed.contains(&uses), "{name} must not depend on {uses}");
            let pure = PURE_CRATES.contains(&name) && dependency["kind"].is_null();
            assert!(!(pure && RUNTIME.contains(&uses)), "{name} is pure and must not depend on {uses}");
        }
    }
}

#[test]
fn at_most_one_tls_provider_is_locked_and_it_is_not_aws_lc() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let locked: BTreeSet<_> =
        lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    for forbidden in ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"] {
        assert!(!locked.contains(forbidden), "{forbidden} came in");
    }
}

#[test]
fn pure_files_stay_pure_and_no_file_is_too_long_and_nothing_is_ignored() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            faults.push(format!("{} has {lines} lines, more than {FILE_LINES_MAX}", path.display()));
        }
        let attribute = ["#[", "ignore"].concat();
        if text.contains(&attribute) {
            faults.push(format!("{} ignores a test", path.display()));
        }
        if PURE_FILES.contains(&name) {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|line| IMPURE.iter().any(|word| line.contains(word))) {
                faults.push(format!("{} must be pure: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn proxy_modes_have_the_same_file_names_for_the_same_idea() {
    let sources = sources();
    for mode in ProxyMode::ALL {
        let has =
            |file: &str| sources.iter().any(|(path, _)| path.ends_with(format!("{}/{file}", mode.as_str())));
        let of_kernel = KERNEL_MODE_FILES.iter().filter(|_| *mode != ProxyMode::Userspace);
        let missing: Vec<_> = MODE_FILES.iter().chain(of_kernel).filter(|file| !has(file)).collect();
        assert!(missing.is_empty(), "mode {} has no {missing:?}", mode.as_str());
    }
}

#[test]
fn imports_between_rooms_point_down_and_no_root_is_crowded() {
    let mut faults = Vec::new();
    for (member, _) in MAY_USE {
        let sources = sources_of(member);
        let root_files = sources.iter().filter(|(path, _)| path.components().count() == 1).count();
        if root_files > rooms::ROOT_FILES_MAX {
            faults.push(format!("{member}/src has {root_files} files, more than {}", rooms::ROOT_FILES_MAX));
        }
        let Some((_, order)) = rooms::ROOMS.iter().find(|(name, _)| *name == member) else { continue };
        for (path, text) in &sources {
            let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
            let room = first.trim_end_matches(".rs");
            if path.ends_with("tests.rs") {
                continue;
            }
            for import in rooms::upward(order, room, &rooms::imports(text)) {
                faults.push(format!("{member}/src/{} imports {import}, which is above it", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn an_upward_import_is_found_in_a_path_and_in_a_tree_and_not_in_unit_tests() {
    let text = "use crate::{\n    base::{a, b},\n    http::c,\n};\nfn x() { crate::server::run() }\n#[cfg(test)]\nmod tests {\n    use crate::tasks;\n}\n";
    let found = rooms::imports(text);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["base", "http", "server"]);
    assert_eq!(rooms::upward(&["base", "http", "server"], "http", &found), ["server"]);
}

#[test]
fn no_function_is_longer_than_a_hundred_lines() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap();
        for (name, lines, _) in functions::lengths(&text) {
            if lines <= functions::FUNCTION_LINES_MAX {
                continue;
            }
            faults.push(format!("{}: {name} has {lines} lines", path.display()));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// No workspace member has a larger share of banned words in its comments than the golden file permits.
/// `UPDATE_GOLDEN=1` writes the current shares if none is larger.
#[test]
fn prose_gets_plainer_and_never_less_plain() {
    let mut members: BTreeMap<String, prose::Prose> = BTreeMap::new();
    for (path, text) in sources() {
        let member = path.strip_prefix(root()).unwrap().components().next().unwrap();
        members.entry(member.as_os_str().to_str().unwrap().to_owned()).or_default().add(&text);
    }
    let golden = root().join("lab/tests/tidy/prose.txt");
    let ceilings = prose::ceilings(&fs::read_to_string(&golden).unwrap_or_default());
    let higher = |(member, prose): &(&String, &prose::Prose)| {
        let (banned, whats) = ceilings.get(*member).copied().unwrap_or((300, 200));
        prose.banned_share() > banned || prose.what_rate() > whats
    };
    let higher: Vec<_> = members.iter().filter(higher).collect();
    if higher.is_empty() && std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, prose::render(&members)).unwrap();
    }
    assert!(higher.is_empty(), "more banned openers or `what` than before: {higher:?}");
}

#[test]
fn banned_openers_and_the_word_what_are_counted() {
    let mut prose = prose::Prose::default();
    prose.add(
        "/// What it is.\n/// Really.\nfn a() {}\n/// Returns what was sent.\nfn b() {}\n// What for.\n",
    );
    assert_eq!(prose, prose::Prose { docs: 2, banned: 1, words: 10, whats: 3 });
}

#[test]
fn rows_are_found_in_names_and_in_comments_of_tests_only() {
    let text =
        "/// F001, F018–F020: x.\n#[test]\nfn f003_f004_y() {}\n/// F099 is no test.\nfn helper() {}\n";
    let rows: Vec<_> = ["F001", "F003", "F004", "F018", "F019", "F020"].map(str::to_owned).to_vec();
    assert_eq!(tests_with_rows(text), [("f003_f004_y".to_owned(), rows.into_iter().collect())]);
}

/// Returns the test functions of a file, each with the feature rows (such as `F018`) in its name and in the
/// comment above it. Tests without a row are omitted.
fn tests_with_rows(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut tests = Vec::new();
    let (mut comment, mut is_test) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//") {
            comment += words;
        } else if line.starts_with("#[") {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        } else {
            let function =
                line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let (Some(name), true) = (function, is_test) {
                let rows = rows_in(&format!("{comment} {}", name.replace('_', " ").to_uppercase()));
                tests.push((name.to_owned(), rows));
            }
            (comment, is_test) = (String::new(), false);
        }
    }
    tests.retain(|(_, rows)| !rows.is_empty());
    tests
}

/// Returns the feature rows that a text names: single rows such as `F018`, and all rows of a range such as
/// `F018–F020`.
fn rows_in(text: &str) -> BTreeSet<String> {
    let number = |word: &str| -> Option<u32> {
        let digits = word.strip_prefix('F')?;
        (digits.len() == 3).then(|| digits.parse().ok()).flatten()
    };
    let mut rows = BTreeSet::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '–') {
        let (first, last) = word.split_once('–').unwrap_or((word, word));
        if let (Some(first), Some(last)) = (number(first), number(last)) {
            rows.extend((first..=last).map(|row| format!("F{row:03}")));
        }
    }
    rows
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the Rust files in the `src` of a workspace member: path below `src`, and text.
fn sources_of(member: &str) -> Vec<(PathBuf, String)> {
    let nested = root().join("node-agent").join(member);
    let home = if nested.is_dir() { nested } else { root().join(member) }.join("src");
    let below = |(path, text): (PathBuf, String)| Some((path.strip_prefix(&home).ok()?.to_owned(), text));
    sources().into_iter().filter_map(below).collect()
}

/// Returns all Rust files of the workspace: path and text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    // Members without a directory in the root are below `node-agent/`, which is a member as well.
    let members = MAY_USE.iter().map(|(member, _)| root().join(member));
    let mut open: Vec<_> = members.filter(|directory| directory.is_dir()).collect();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}
