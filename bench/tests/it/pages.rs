//! Test that the benchmark pages in the repository match their stored results.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bench::targets;
use serde_json::{Value, json};

/// Benchmarks without stored results.
const NOT_YET_RUN: [&str; 1] = ["http"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks")
}

#[test]
fn every_page_and_plot_is_made_of_the_figures_beside_it() {
    let directory = directory();
    let files = targets::pages(&directory).unwrap();
    let is_missing = |page: &&targets::BenchmarkPage| !directory.join(format!("{}.json", page.name)).exists();
    let missing: Vec<_> = targets::BENCHMARKS.iter().filter(is_missing).map(|page| page.name).collect();
    assert_eq!(missing, NOT_YET_RUN);
    // A page and a plot per benchmark, and the index page.
    assert_eq!(files.len(), 2 * (targets::BENCHMARKS.len() - missing.len()) + 1);
    for (name, made) in files {
        let path = directory.join(&name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &made).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == made, "{name}: run `bench pages` and read the diff");
    }
}

/// Renders the index page from modified soak results and returns the row of the soak test.
fn row_of(soak: &Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("soak.json"), soak.to_string()).unwrap();
    let files = targets::pages(directory.path()).unwrap();
    let (_, first) = files.last().unwrap();
    first.lines().find(|line| line.contains("[soak](soak.md) |")).unwrap().to_owned()
}

#[test]
fn a_soak_that_was_too_slow_or_too_short_or_grew_or_found_something_has_not_met_its_target() {
    let mut soak: Value = serde_json::from_slice(&fs::read(directory().join("soak.json")).unwrap()).unwrap();
    assert!(row_of(&soak).contains("| **no** |"), "it grew by more than 5 %: {}", row_of(&soak));
    for sample in soak["points"][0]["samples"].as_array_mut().unwrap() {
        if sample["in_use_kib"].is_u64() {
            sample["in_use_kib"] = json!(1_000);
        }
    }
    assert!(row_of(&soak).contains("| yes |"), "{}", row_of(&soak));
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 5] = [
        ("/requests", |requests| *requests = json!(89_000)),
        ("/took/secs", |secs| *secs = json!(1_799)),
        ("/wrong", |wrong| *wrong = json!(["a rule is left"])),
        ("/is_growth_judged", |is_judged| *is_judged = json!(false)),
        ("/samples", |samples| {
            let last = samples.as_array_mut().unwrap().last_mut().unwrap();
            last["in_use_kib"] = json!(last["in_use_kib"].as_u64().unwrap() * 2);
        }),
    ];
    for (what, change) in changes {
        let mut worse = soak.clone();
        change(worse["points"][0].pointer_mut(what).unwrap());
        assert!(row_of(&worse).contains("| **no** |"), "{what}: {}", row_of(&worse));
    }
}
