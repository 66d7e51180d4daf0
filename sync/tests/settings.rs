//! The file of settings: what it may say, what wins over it, and how mistakes are told.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{ffi::OsString, fs};

use sync::{
    args::{Cli, Source},
    settings::{Call, read},
};

/// Reads a command line with a file; without the variables of whoever runs the tests.
fn call(file: &str, arguments: &[&str]) -> Result<Call, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sync.toml");
    fs::write(&path, file).unwrap();
    let mut all: Vec<OsString> = vec!["tidegate-sync".into(), "--config".into(), path.into()];
    all.extend(arguments.iter().map(OsString::from));
    read(all).map_err(|error| error.to_string())
}

fn follow(file: &str, arguments: &[&str]) -> Cli {
    match call(file, arguments).unwrap() {
        Call::Follow(cli) => *cli,
        Call::Manual(_) => panic!("nobody asked for the manual"),
    }
}

fn paths(cli: &Cli) -> Vec<String> {
    match &cli.source {
        Source::Files(arguments) => {
            arguments.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
        }
        Source::Docker(_) | Source::Dns(_) | Source::Kubernetes(_) => panic!("another source"),
    }
}

const WHOLE: &str = r#"
api = ["http://192.0.2.1:7440", "http://192.0.2.2:7440"]
prune-limit = 3
allow-empty = true
source = "lab"
[files]
paths = ["/etc/tidegate/objects.d", "-odd"]
"#;

#[test]
fn a_file_with_one_source_is_all_that_has_to_be_said() {
    let cli = follow(WHOLE, &[]);
    assert_eq!(paths(&cli), ["/etc/tidegate/objects.d", "-odd"]);
    assert_eq!(cli.global.api.len(), 2);
    assert_eq!((cli.global.prune_limit, cli.global.allow_empty), (Some(3), true));
    assert_eq!(cli.global.source_id.as_ref().map(ToString::to_string), Some("lab".to_owned()));
}

#[test]
fn what_the_command_line_says_wins_over_the_file() {
    let cli = follow(WHOLE, &["files", "--prune-limit", "9", "--", "/srv"]);
    assert_eq!(paths(&cli), ["/srv"]);
    assert_eq!(cli.global.prune_limit, Some(9));
    assert_eq!(cli.global.api.len(), 2, "what is not said there still comes from the file");
    let cli = follow(WHOLE, &["--api", "http://127.0.0.1:1"]);
    assert_eq!(cli.global.api[0].as_str(), "http://127.0.0.1:1/");
    assert_eq!(cli.global.api.len(), 1);
}

#[test]
fn every_source_finds_its_own_table() {
    let both =
        "[dns]\nnames = [\"web=backend.example:80\"]\nttl-min = 7\n[docker]\nnode-address = \"192.0.2.7\"\n";
    match follow(both, &["dns"]).source {
        Source::Dns(arguments) => assert_eq!((arguments.names.len(), arguments.ttl_min), (1, 7)),
        Source::Files(_) | Source::Docker(_) | Source::Kubernetes(_) => panic!("another source"),
    }
    let said = call(both, &[]).unwrap_err();
    assert!(said.contains("several sources"), "{said}");
}

#[test]
fn mistakes_name_the_file_the_setting_and_what_may_be_said() {
    for (file, words) in [
        ("", "names no source: write a table [files]"),
        ("x = 1\n[files]\npaths = [\"/a\"]", "`x` is no setting of every source; there are api,"),
        ("once = true\n[files]\npaths = [\"/a\"]", "`once` is no setting"),
        ("[files]\npath = \"/a\"", "`path` is no setting of files; there are paths"),
        ("[file]\npaths = [\"/a\"]", "[file] is no source"),
        ("[files]\n", "<DIR|FILE>"),
        ("allow-empty = 1\n[files]\npaths = [\"/a\"]", "`allow-empty` must be true or false"),
        ("listen = true\n[files]\npaths = [\"/a\"]", "`listen` must be a text"),
        ("listen = \"0.0.0.0:1\"\n[files]\npaths = [\"/a\"]", "must be on loopback"),
        ("api = [", "is no TOML"),
    ] {
        let said = call(file, &[]).unwrap_err();
        assert!(said.contains("sync.toml: ") && said.contains(words), "{file:?} says {said}");
    }
    // Also of a source that is not followed here.
    let said = call("[files]\npaths = [\"/a\"]\n[dns]\nnames = [1.5]", &["files"]).unwrap_err();
    assert!(said.contains("sync.toml: `names` must be a text"), "{said}");
    let said = call(&"#".repeat(1 << 20), &[]).unwrap_err();
    assert!(said.contains("is longer than 262144 bytes"), "{said}");
}

#[test]
fn a_file_is_named_that_cannot_be_read_and_a_wrong_command_line_is_not_blamed_on_it() {
    let missing = ["tidegate-sync", "--config=/nonexistent/sync.toml"].map(OsString::from).to_vec();
    let said = read(missing).unwrap_err().to_string();
    assert!(said.contains("/nonexistent/sync.toml: cannot be read"), "{said}");
    let said = call(WHOLE, &["--listen", "x"]).unwrap_err();
    assert!(!said.contains("sync.toml") && said.contains("--listen"), "{said}");
}

/// The example that the package installs says nothing but what it explains; without its marks it is right.
#[test]
fn the_example_of_the_package_can_be_used_as_it_stands_without_its_comment_marks() {
    let example = fs::read_to_string("../packaging/etc/tidegate/sync.toml").unwrap();
    let said = call(&example, &[]).unwrap_err();
    assert!(said.contains("names no source"), "{said}");
    for source in ["files", "docker", "dns", "kubernetes"] {
        let mut text = String::new();
        for line in example.lines() {
            match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => text.push_str(setting),
                _ => text.push_str(line),
            }
            text.push('\n');
        }
        follow(&text, &[source]);
    }
}
