//! Batching of changes into SQL statements. Each statement costs a round trip to the connection's thread,
//! usually more than its work; a batch costs only one.

use std::{collections::BTreeSet, ops::Range};

use model::cluster::change::ChangeKind;

use crate::group::EncodedChange;

/// Numbers of rows per statement, largest first. Only a few sizes, because each statement is prepared and
/// cached.
pub(super) const BATCHES: &[usize] = &[32, 8, 1];
/// Single row per statement: slow, but identifies the row that does not match the stored state.
pub(super) const ONE_BY_ONE: &[usize] = &[1];

/// Splits changes into ranges that one SQL statement can apply: all changes of a range have the same type and
/// distinct keys. Applying the ranges in order is equivalent to applying each change.
pub(super) fn runs(changes: &[&EncodedChange]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut keys = BTreeSet::new();
    let mut start = 0;
    for (at, change) in changes.iter().enumerate() {
        if changes[start].kind != change.kind || keys.contains(change.key.as_str()) {
            runs.push(start..at);
            keys.clear();
            start = at;
        }
        keys.insert(change.key.as_str());
    }
    if start < changes.len() {
        runs.push(start..changes.len());
    }
    runs
}

/// Splits rows into slices of the given sizes. Each slice has the largest size that the remaining rows fill.
/// `sizes` must be in descending order and end with 1.
pub(super) fn pieces<'a, T>(rows: &'a [T], sizes: &'a [usize]) -> impl Iterator<Item = &'a [T]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let size = sizes.iter().copied().find(|&size| size <= rest.len())?;
        let (piece, after) = rest.split_at(size);
        rest = after;
        Some(piece)
    })
}

/// Returns the SQL statement for `rows` changes of one type. Additions and modifications bind key and body of
/// each row, deletions only the key. The number of affected rows equals `rows` if and only if every change
/// matches the stored state.
pub(super) fn sql(kind: ChangeKind, rows: usize) -> String {
    let pairs = repeated("(?, ?)", rows);
    match kind {
        ChangeKind::Added => {
            format!("INSERT INTO objects (key, body) VALUES {pairs} ON CONFLICT (key) DO NOTHING")
        }
        ChangeKind::Modified => format!(
            "UPDATE objects SET body = new.column2 FROM (VALUES {pairs}) AS new WHERE objects.key = new.column1"
        ),
        ChangeKind::Deleted => format!("DELETE FROM objects WHERE key IN ({})", repeated("?", rows)),
    }
}

/// Returns the SQL statement that appends `rows` commits to the change log; binds revision, time and body of
/// each.
pub(super) fn log_sql(rows: usize) -> String {
    format!("INSERT INTO changes (revision, at, body) VALUES {}", repeated("(?, ?, ?)", rows))
}

/// Returns the SQL statement that stores `rows` history entries; binds revision, time, origin, head and body
/// of each.
pub(super) fn history_sql(rows: usize) -> String {
    let rows = repeated("(?, ?, ?, ?, ?)", rows);
    format!("INSERT INTO history (revision, at, by_server, head, body) VALUES {rows}")
}

fn repeated(row: &str, rows: usize) -> String {
    vec![row; rows].join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_the_kind_changes_or_a_key_comes_again() {
        use ChangeKind::{Added, Deleted, Modified};
        let change = |(kind, key): (ChangeKind, &str)| EncodedChange {
            kind,
            key: key.to_owned(),
            body: Box::default(),
        };
        let changes =
            [(Added, "a"), (Added, "b"), (Modified, "a"), (Modified, "a"), (Deleted, "a"), (Deleted, "b")];
        let changes: Vec<_> = changes.map(change).into();
        let changes: Vec<_> = changes.iter().collect();
        assert_eq!(runs(&changes), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(runs(&[]), []);
    }

    #[test]
    fn pieces_are_as_large_as_the_sizes_allow_and_leave_nothing_out() {
        let rows: Vec<_> = (0..43).collect();
        let sizes: Vec<_> = pieces(&rows, BATCHES).map(<[_]>::len).collect();
        assert_eq!(sizes, [32, 8, 1, 1, 1]);
        assert_eq!(pieces(&rows, BATCHES).flatten().copied().collect::<Vec<_>>(), rows);
        assert_eq!(pieces(&rows, ONE_BY_ONE).count(), 43);
    }
}
