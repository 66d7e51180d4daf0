//! Feature table: `docs/reference/features.md` has all rows with their tests and states, and the README lists the rows
//! without code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
};

use model::kinds::node::ProxyMode;

use crate::{root, rows, rows_in, sources, tests_with_rows};

const PAGE: &str = "docs/reference/features.md";
const HEAD: &str = "# Features and their proofs\n\nEach row is a sentence that the tests named beside it would refute if it did not \
                    hold. Written by\n`UPDATE_GOLDEN=1 cargo test -p lab --test tidy` from the names and comments of the \
                    tests.\n\n- **proved**: tests prove the whole sentence.\n- **not proved**: no test proves a part of \
                    the sentence, which the state names.\n- **not built**: there is no code.\n\n";

/// Returns the tests that name each row.
fn proofs() -> BTreeMap<String, BTreeSet<String>> {
    let mut proofs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        for (test, rows) in tests_with_rows(&text) {
            for row in rows {
                proofs.entry(row).or_default().insert(format!("`{file}` · `{test}`"));
            }
        }
    }
    proofs
}

/// Renders the page. Returns also the errors: rows whose tests contradict their state.
fn render(proofs: &BTreeMap<String, BTreeSet<String>>, not_built: &[(&str, &str)]) -> (String, Vec<String>) {
    let not_built: BTreeSet<_> = not_built.iter().flat_map(|(ids, _)| rows_in(ids)).collect();
    let not_proved: BTreeMap<_, _> = rows::NOT_PROVED.iter().copied().collect();
    let (mut table, mut faults) = (String::new(), Vec::new());
    let mut counts = [0; 3];
    for (row, sentence) in rows::all() {
        let tests: Vec<_> = proofs.get(row).into_iter().flatten().cloned().collect();
        let (state, index) = match (not_built.contains(row), not_proved.get(row)) {
            (true, None) => ("not built".to_owned(), 2),
            (false, Some(clause)) => (format!("not proved: {clause}"), 1),
            (false, None) => ("proved".to_owned(), 0),
            (true, Some(_)) => {
                faults.push(format!("{row} is both not built and not proved"));
                continue;
            }
        };
        if index != 1 && tests.is_empty() == (index == 0) {
            faults.push(format!("{row} is {state}, but {} tests name it", tests.len()));
        }
        counts[index] += 1;
        writeln!(table, "| {row} | {sentence} | {state} | {} |", tests.join("<br>")).unwrap();
    }
    let [proved, not_proved, not_built] = counts;
    let page = format!(
        "{HEAD}Features: {proved} proved, {not_proved} not proved, {not_built} not built.\n\n| row | works when | state | \
         proved by |\n|---|---|---|---|\n{table}"
    );
    (page, faults)
}

#[test]
fn every_row_of_the_feature_table_has_its_state_and_its_tests_and_the_list_is_current() {
    let (page, faults) = render(&proofs(), rows::NOT_BUILT);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let golden = root().join(PAGE);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &page).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&golden).unwrap_or_default(),
        page,
        "run UPDATE_GOLDEN=1 cargo test -p lab --test tidy"
    );
}

#[test]
fn the_feature_table_has_every_row_once() {
    let rows = rows::all();
    let ids: Vec<_> = rows.iter().map(|(id, _)| (*id).to_owned()).collect();
    let all: Vec<_> = (1..=rows::ROWS).map(|number| format!("F{number:03}")).collect();
    assert_eq!(ids, all);
    assert!(rows.iter().all(|(_, sentence)| sentence.len() > 10), "each row has a sentence");
    let unknown: Vec<_> =
        rows::NOT_PROVED.iter().filter(|(id, _)| !all.contains(&(*id).to_owned())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_row_without_a_test_or_with_a_test_of_absent_code_is_found() {
    let mut proofs = proofs();
    proofs.remove("F007");
    proofs.insert("F160".to_owned(), ["a test".to_owned()].into());
    let not_built = [rows::NOT_BUILT, &[("F160", "a row with a test")]].concat();
    let (_, faults) = render(&proofs, &not_built);
    assert_eq!(faults, ["F007 is proved, but 0 tests name it", "F160 is not built, but 1 tests name it"]);
}

/// F058: the published benchmark has the rate, latency and throughput of each mode, measured on one machine.
#[test]
fn f058_the_published_benchmark_has_every_mode() {
    let page = fs::read_to_string(root().join("docs/benchmarks/connections.md")).unwrap();
    for mode in ProxyMode::ALL {
        let row =
            page.lines().find(|line| line.starts_with(&format!("| tidegate-{}, 10000 ", mode.as_str())));
        let row = row.unwrap_or_else(|| panic!("no row of {}", mode.as_str()));
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells[2].ends_with("µs") && cells[6].ends_with("Gbit/s"), "{row}");
        assert!(cells[4].parse::<u32>().is_ok_and(|rate| rate > 0), "{row}");
    }
}

#[test]
fn the_readme_lists_what_is_not_built() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (ids, subject) in rows::NOT_BUILT {
        let item = format!("{subject} ({ids})");
        assert!(readme.contains(&item), "README.md does not list {item:?}");
    }
}
