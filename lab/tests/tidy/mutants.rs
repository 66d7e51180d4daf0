//! Tests of the stored result of the mutation run (`lab/mutants.sh`).

use std::fs;

use crate::root;

const PAGE: &str = "docs/contributing/mutation-score.md";
const SCRIPT: &str = "lab/mutants.sh";

#[test]
fn the_mutation_score_is_stored_and_each_survivor_is_explained() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let scores = page.lines().filter(|line| line.starts_with("Score: ")).count();
    assert_eq!(scores, 1, "{PAGE} has one line that `make test` prints");
    let unexplained: Vec<_> = page.lines().filter(|line| line.ends_with("| not explained |")).collect();
    assert!(unexplained.is_empty(), "survivors without explanation: {unexplained:#?}");
}

#[test]
fn the_files_of_the_mutation_run_exist() {
    let script = fs::read_to_string(root().join(SCRIPT)).unwrap();
    let parts: Vec<_> = script.lines().filter(|line| line.starts_with("  \"")).collect();
    assert!(parts.len() >= 5, "{SCRIPT} lists its parts");
    for file in parts.iter().flat_map(|part| part.trim().trim_matches('"').split(' ').skip(3)) {
        let (directory, _) = file.rsplit_once('/').unwrap();
        // A star stands for names; the directory before the first one has to exist.
        let directory = directory.split("/*").next().unwrap();
        assert!(root().join(directory).is_dir(), "{SCRIPT} names {file}");
        assert!(file.contains('*') || root().join(file).is_file(), "{SCRIPT} names {file}");
    }
}
