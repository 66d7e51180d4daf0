//! Import cycles between the source files of a crate.
//!
//! An edge leads from a file to each file of the same crate that one of its paths names. A module and its own
//! descendants may name each other: edges between them do not count. Unit tests are ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Maximum number of files in an import cycle.
pub(crate) const CYCLE_FILES_MAX: usize = 4;

/// Module path of a file below the crate root, such as `["a", "b"]`.
type Module = Vec<String>;

/// Returns the largest import cycle among source files with paths below `src`, in order of their paths; empty if
/// there is none.
pub(crate) fn largest(sources: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let modules: BTreeMap<Module, usize> =
        sources.iter().enumerate().filter_map(|(at, (path, _))| Some((module(path)?, at))).collect();
    let mut edges: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); sources.len()];
    for (own, at) in &modules {
        for named in paths(&sources[*at].1, own) {
            let target = (1..=named.len()).rev().find_map(|length| modules.get_key_value(&named[..length]));
            if let Some((other, target)) = target
                && !other.starts_with(own)
                && !own.starts_with(other)
            {
                edges[*at].insert(*target);
            }
        }
    }
    let reaches: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reachable(&edges, from)).collect();
    let cycle = |at: usize| -> Vec<usize> {
        reaches[at].iter().copied().filter(|other| reaches[*other].contains(&at)).collect()
    };
    let largest = (0..edges.len()).map(cycle).max_by_key(Vec::len).unwrap_or_default();
    largest.into_iter().map(|at| sources[at].0.clone()).collect()
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        open.extend(edges[at].iter().filter(|next| seen.insert(**next)));
    }
    seen
}

/// Returns the module of a file, or `None` for unit tests and for the roots of binaries.
fn module(path: &Path) -> Option<Module> {
    let mut parts: Module = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts.iter().any(|part| part == "tests" || part == "main") {
        return None;
    }
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] {
        parts.pop();
    }
    Some(parts)
}

/// Returns the module and item paths of the same crate that a file names outside of its unit tests. `own` is the
/// module of the file.
fn paths(text: &str, own: &[String]) -> Vec<Module> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        expand(&[], &code[at + "crate::".len()..], &mut found);
    }
    for (at, _) in code.match_indices("super::") {
        // In a chain `super::super::`, only the last `super` is expanded; `levels` counts the others.
        let rest = &code[at + "super::".len()..];
        if rest.starts_with("super::") {
            continue;
        }
        let levels = 1 + code[..at]
            .bytes()
            .rev()
            .collect::<Vec<_>>()
            .chunks(7)
            .take_while(|chunk| *chunk == b"::repus")
            .count();
        let base = own.get(..own.len().saturating_sub(levels)).unwrap_or_default();
        expand(base, rest, &mut found);
    }
    found
}

/// Adds the paths at the beginning of `text` to `found`: one for `a::b`, or one for each branch of a use tree. The
/// paths are relative to `base`.
fn expand(base: &[String], text: &str, found: &mut Vec<Module>) {
    let mut at = text.trim_start();
    let mut path = base.to_vec();
    loop {
        if let Some(tree) = at.strip_prefix('{') {
            for branch in branches(tree) {
                expand(&path, branch, found);
            }
            return;
        }
        let length = at.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(at.len());
        if length == 0 {
            break;
        }
        path.push(at[..length].to_owned());
        let Some(rest) = at[length..].strip_prefix("::") else { break };
        at = rest;
    }
    found.push(path);
}

/// Returns the branches of a use tree, whose opening brace is already consumed.
fn branches(tree: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                found.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            found.push(&tree[start..at]);
            break;
        }
    }
    found.retain(|branch| !branch.trim().is_empty());
    found
}
