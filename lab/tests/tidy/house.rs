//! Limits for the source of each workspace member: type names, import cycles, lengths of functions and files,
//! nesting depth, and wording of comments.
//!
//! `cargo test -p lab --test tidy house -- --nocapture` prints the table.

use std::{fmt::Write as _, fs};

use crate::{MAY_USE, cycles, functions, names::Names, prose::Prose, root, sources_of};

/// Workspace members with a larger import cycle than allowed, each with the number of files in the cycle.
/// Entries may only be removed or lowered.
const LARGE_CYCLES: [(&str, usize); 0] = [];

/// Exclusive limit of the share of doc comments with a banned opener, in hundredths of a percent.
const BANNED_SHARE_MAX: usize = 300;
/// Exclusive limit of [`Prose::what_rate`].
const WHAT_RATE_MAX: usize = 200;

#[test]
fn import_cycles_have_at_most_four_files() {
    let mut faults = Vec::new();
    for (member, _) in MAY_USE {
        let cycle = cycles::largest(&sources_of(member));
        let known = LARGE_CYCLES.iter().find(|(name, _)| *name == member);
        if cycle.len() > known.map_or(cycles::CYCLE_FILES_MAX, |(_, files)| *files) {
            faults.push(format!("{member}/src has an import cycle of {} files: {cycle:?}", cycle.len()));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Only type names in the golden file may be defined twice in a crate or be participles. `UPDATE_GOLDEN=1` removes
/// all other names from the file.
#[test]
fn a_type_name_is_defined_once_in_a_crate_and_is_no_bare_participle() {
    let mut page = String::from("# member: type names defined more than once · bare participles\n");
    let golden = root().join("lab/tests/tidy/names.txt");
    let before = fs::read_to_string(&golden).unwrap_or_default();
    let mut faults = Vec::new();
    for (member, _) in MAY_USE {
        let mut names = Names::default();
        sources_of(member).iter().for_each(|(_, text)| names.add(text));
        let line = before.lines().find_map(|line| line.strip_prefix(&format!("{member}: ")));
        let (repeated, participles) = line.and_then(|line| line.split_once('·')).unwrap_or_default();
        let known = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
        faults.extend(
            names
                .repeated()
                .iter()
                .filter(|name| !known(repeated, name))
                .map(|name| format!("{member}: {name} is defined more than once")),
        );
        faults.extend(
            names
                .participles()
                .iter()
                .filter(|name| !known(participles, name))
                .map(|name| format!("{member}: {name} is a bare participle")),
        );
        let joined =
            |names: std::collections::BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(" ");
        let (repeated, participles) = (joined(names.repeated()), joined(names.participles()));
        if !(repeated.is_empty() && participles.is_empty()) {
            writeln!(page, "{member}: {repeated} · {participles}").unwrap();
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() && (faults.is_empty() || before.is_empty()) {
        fs::write(&golden, &page).unwrap();
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
#[allow(clippy::print_stdout, reason = "the table is the result")]
fn the_house_is_measured_and_within_its_limits() {
    println!("member functions >70 longest files >600 longest nested>=6 banned% what/1000 root-files cycle");
    let mut all = Prose::default();
    for (member, _) in MAY_USE {
        let sources = sources_of(member);
        let mut prose = Prose::default();
        sources.iter().for_each(|(_, text)| prose.add(text));
        sources.iter().for_each(|(_, text)| all.add(text));
        let lengths: Vec<_> = sources.iter().flat_map(|(_, text)| functions::lengths(text)).collect();
        let lines: Vec<_> = sources.iter().map(|(_, text)| text.lines().count()).collect();
        println!(
            "{member} {} {} {} {} {} {} {} {:.2} {:.2} {} {}",
            lengths.len(),
            lengths.iter().filter(|(_, lines, _)| *lines > 70).count(),
            lengths.iter().map(|(_, lines, _)| *lines).max().unwrap_or(0),
            lines.len(),
            lines.iter().filter(|lines| **lines > 600).count(),
            lines.iter().max().unwrap_or(&0),
            lengths.iter().filter(|(_, _, nesting)| *nesting >= 6).count(),
            hundredths(prose.banned_share()),
            hundredths(prose.what_rate()),
            sources.iter().filter(|(path, _)| path.components().count() == 1).count(),
            cycles::largest(&sources).len(),
        );
    }
    println!(
        "all: {:.2} % banned openers, {:.2} what/1000",
        hundredths(all.banned_share()),
        hundredths(all.what_rate())
    );
    assert!(
        all.banned_share() < BANNED_SHARE_MAX,
        "{} of {} doc comments open with a banned word",
        all.banned,
        all.docs
    );
    assert!(all.what_rate() < WHAT_RATE_MAX, "{} of {} words are \"what\"", all.whats, all.words);
}

#[test]
fn a_cycle_is_found_between_siblings_and_not_between_parent_and_child() {
    let file = |path: &str, text: &str| (path.into(), text.to_owned());
    let sources = [
        file("a.rs", "mod b;\nmod c;\nuse crate::d::X;"),
        file("a/b.rs", "use super::{c::Y, Z};"),
        file("a/c.rs", "fn f() { crate::d::g() }\n// crate::a::b\n"),
        file("d.rs", "use crate::{a::b::W, e};"),
        file("e.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::c;\n}"),
    ];
    let cycle = cycles::largest(&sources);
    let expected: Vec<std::path::PathBuf> = ["a/b.rs", "a/c.rs", "d.rs"].map(Into::into).to_vec();
    assert_eq!(cycle, expected);
}

#[test]
fn repeated_names_and_participles_are_found() {
    let mut names = Names::default();
    names.add("pub struct Held;\nstruct Feed;\npub(crate) enum Lane<T> {\ntype Lane = u8;\n    type Item = u8;\nstruct Plan;\nstruct Plan;\nstruct WantedObjects;\n");
    assert_eq!(names.repeated().into_iter().collect::<Vec<_>>(), ["Lane"]);
    assert_eq!(names.participles().into_iter().collect::<Vec<_>>(), ["Held"]);
}

#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn hundredths(value: usize) -> f64 {
    value as f64 / 100.0
}
