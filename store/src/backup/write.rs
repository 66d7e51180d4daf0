//! Writer of backups: returns the contents of a store as lines.

use std::iter;

use model::primitives::quantity::{Position, Timestamp};
use sha2::{Digest, Sha256};

use super::wire;
use crate::Contents;

/// Returns the lines of a backup of a store at `position`, each with its line end. The concatenated lines are
/// the backup file.
pub fn lines(
    made_at: Timestamp,
    position: Position,
    contents: Contents,
) -> impl Iterator<Item = String> + Send {
    let Contents { revision: _, objects, history, history_floor, vault } = contents;
    let head = iter::once_with(move || wire::head(made_at, position, history_floor));
    let objects = objects.into_iter().map(|object| wire::object(&object));
    let vault = vault.into_iter().map(|(key, body)| wire::vault(&key, &body));
    let history = history.into_iter().map(|entry| wire::entry(&entry));
    let mut rest = head.chain(objects).chain(vault).chain(history);
    let mut sum = Some((Sha256::new(), 0));
    iter::from_fn(move || {
        if let Some(line) = rest.next() {
            if let Some((digest, count)) = &mut sum {
                digest.update(line.as_bytes());
                *count += 1;
            }
            return Some(line);
        }
        let (digest, count) = sum.take()?;
        Some(wire::end(count, &digest.finalize()))
    })
}
