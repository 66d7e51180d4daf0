//! Tests of the pure modules of the status page (`web/`) by Node.js: layout of the map, folding of changes, ticks
//! of charts, words of conditions. The tests are in `lab/page/`.

use std::{fs, path::Path, process::Command};

/// All tests in `lab/page/` pass.
#[test]
fn modules_of_the_page_without_a_document_do_what_their_tests_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let files: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".test.mjs"))
        .collect();
    assert!(!files.is_empty(), "no test in {}", directory.display());
    let output = Command::new("node").arg("--no-warnings").arg("--test").args(&files).output();
    let output = output.expect("lab/setup.sh installs Node.js");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
