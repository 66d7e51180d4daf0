//! History of writes in the etcd store. An in-memory index of the retained entries avoids listing all keys.

use std::collections::{BTreeMap, BTreeSet};

use etcd_client::{KeyValue, TxnOp};
use model::{
    cluster::history::{RevisionEntry, RevisionHead},
    primitives::quantity::Revision,
};
use tokio::sync::Mutex;

use super::{
    Core,
    keys::Space,
    read::{self, ReadAttempts, ReadError, unreadable},
    wire::{self, Row},
};
use crate::{
    HistoryPage, HistoryQuery, StoreError, history,
    window::{Bounds, Entry, Window},
};

/// Number of commit groups whose history is read at once. The heads (author and keys) of these groups take at
/// most 4 MiB, and so do the bodies (objects before and after), unless they are stored in pieces.
const GROUPS_AT_ONCE: usize = 16;
/// Number of history heads (author and keys) per page while the index is built.
const HEADS_AT_ONCE: i64 = 32;

/// Index of the retained history; `None` if the next use must build it from etcd.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<Option<HistoryIndex>>);

#[derive(Debug)]
struct HistoryIndex {
    /// Last revision that the index covers.
    through: Revision,
    of_others: Window,
    of_server: Window,
    /// Last revision of each group with retained history: of client writes at index 0, of server writes at 1.
    groups: [BTreeSet<Revision>; 2],
    floor: Revision,
}

/// Retained history at one etcd revision.
struct View {
    at: i64,
    groups: Vec<Revision>,
    oldest: [Option<Revision>; 2],
    floor: Revision,
}

/// History entry in stored form.
struct StoredEntry {
    row: Row,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Index {
    /// Clears the index after the contents of the store were replaced.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

impl HistoryIndex {
    fn new(floor: Revision) -> Self {
        let (of_others, of_server) = (Window::new(Bounds::HISTORY, []), Window::new(Bounds::SERVER, []));
        Self { through: Revision(0), of_others, of_server, groups: [BTreeSet::new(), BTreeSet::new()], floor }
    }

    fn add(&mut self, last: Revision, is_by_server: bool, entries: &[Entry]) {
        let window = if is_by_server { &mut self.of_server } else { &mut self.of_others };
        let dropped = window.drop_through(entries);
        window.advance(entries, dropped);
        if let Some(dropped) = dropped.filter(|_| !is_by_server) {
            self.floor = self.floor.max(dropped);
        }
        self.groups[usize::from(is_by_server)].insert(last);
    }

    /// Returns the revisions of the oldest retained client entry and of the oldest retained server entry.
    fn oldest(&self) -> [Option<Revision>; 2] {
        [self.of_others.oldest(), self.of_server.oldest()]
    }

    /// Removes groups without retained entries from the index. Client and server groups are removed
    /// separately: server writes are rare, so the oldest retained one may be as old as the store, and a
    /// common limit would keep all client groups.
    fn forget_groups(&mut self) {
        let oldest = self.oldest();
        for (groups, oldest) in self.groups.iter_mut().zip(oldest) {
            if let Some(oldest) = oldest {
                *groups = groups.split_off(&oldest);
            }
        }
    }

    /// Returns the last revision of every group with retained history, oldest first.
    fn all_groups(&self) -> Vec<Revision> {
        let [of_others, of_server] = &self.groups;
        of_others.union(of_server).copied().collect()
    }
}

/// Returns a page of history entries, newest first.
pub(super) async fn list(core: &Core, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
    let mut attempts = ReadAttempts::default();
    loop {
        match try_list(core, query).await {
            Err(broken) if attempts.again(&broken) => {}
            read => return Ok(read?),
        }
    }
}

async fn try_list(core: &Core, query: &HistoryQuery) -> Result<HistoryPage, ReadError> {
    let view = view(core).await?;
    let mut heads = Vec::new();
    let before = query.before.unwrap_or(Revision(u64::MAX));
    let groups: Vec<_> = view.groups.iter().rev().copied().collect();
    // A group that ends after `before` may begin before it.
    let ends_before = groups.partition_point(|last| *last >= before);
    let first = ends_before.saturating_sub(1);
    for some in groups[first..].chunks(GROUPS_AT_ONCE) {
        if heads.len() >= query.limit {
            break;
        }
        for entry in entries(core, &view, some, false).await?.into_iter().rev() {
            let head = entry.decode_head()?;
            if heads.len() < query.limit && head.revision < before && query.filter.matches(&head) {
                heads.push(head);
            }
        }
    }
    Ok(HistoryPage { heads, floor: view.floor })
}

/// Reads at most `limit` history entries from revision `first` on, oldest first.
pub(super) async fn revisions(
    core: &Core,
    first: Revision,
    limit: usize,
) -> Result<Vec<RevisionEntry>, StoreError> {
    let mut attempts = ReadAttempts::default();
    loop {
        match try_revisions(core, first, limit).await {
            Err(broken) if attempts.again(&broken) => {}
            read => return Ok(read?),
        }
    }
}

async fn try_revisions(core: &Core, first: Revision, limit: usize) -> Result<Vec<RevisionEntry>, ReadError> {
    let view = view(core).await?;
    let start = view.groups.partition_point(|last| *last < first);
    let mut found = Vec::new();
    for some in view.groups[start..].chunks(GROUPS_AT_ONCE) {
        if found.len() >= limit {
            break;
        }
        for entry in entries(core, &view, some, true).await? {
            if found.len() < limit && entry.row.0 >= first.0 {
                found.push(entry.decode()?);
            }
        }
    }
    Ok(found)
}

/// Returns the last revision before the oldest retained client entry, the same for server entries (`None` if
/// no entry is retained), and the revision up to which client writes may be missing from the history.
pub(super) async fn outdated(core: &Core) -> Result<([Option<Revision>; 2], Revision), StoreError> {
    let mut attempts = ReadAttempts::default();
    let view = loop {
        match view(core).await {
            Err(broken) if attempts.again(&broken) => {}
            view => break view?,
        }
    };
    let before = |oldest: Option<Revision>| oldest.and_then(|oldest| oldest.0.checked_sub(1)).map(Revision);
    Ok((view.oldest.map(before), view.floor))
}

/// Updates the index from etcd and returns the retained history.
async fn view(core: &Core) -> Result<View, ReadError> {
    let mut index = core.history.0.lock().await;
    let reads = [core.keys.head(), core.keys.history_floor()].map(|key| TxnOp::get(key, None)).to_vec();
    let (at, values) = read::together(&core.link, reads).await?;
    let value = |index: usize| values.get(index).and_then(|values| values.first());
    let head = read::parse_head(value(0), at)?;
    let floor = read::parse_revision("history/floor", value(1))?;
    let was_put_back = index.as_ref().is_some_and(|known| known.through > head.position.revision);
    if was_put_back {
        *index = None;
    }
    let mut known = index.take().unwrap_or_else(|| HistoryIndex::new(floor));
    for is_by_server in [false, true] {
        let space = Space::Heads { is_by_server };
        let start = core.keys.group(space, known.through.next());
        let fresh = read::range(&core.link, start, &core.keys.group_end(space), HEADS_AT_ONCE, at).await?;
        for value in fresh {
            let (last, rows) = rows(core, space, &value, at).await?;
            let entry = |(Row(revision, _, head, body), _)| Entry {
                revision: Revision(revision),
                bytes: head + body,
            };
            let entries: Vec<_> = rows.into_iter().map(entry).collect();
            known.add(last, is_by_server, &entries);
        }
    }
    known.through = head.position.revision;
    known.forget_groups();
    let view = View { at, groups: known.all_groups(), oldest: known.oldest(), floor: known.floor };
    *index = Some(known);
    Ok(view)
}

/// Reads the history entries of several commit groups, oldest first.
async fn entries(
    core: &Core,
    view: &View,
    groups: &[Revision],
    has_bodies: bool,
) -> Result<Vec<StoredEntry>, ReadError> {
    let mut found: BTreeMap<u64, StoredEntry> = BTreeMap::new();
    let spaces = Space::ALL.into_iter().filter(|space| match space {
        Space::Log => false,
        Space::Heads { .. } => true,
        Space::Bodies { .. } => has_bodies,
    });
    for space in spaces {
        let options = etcd_client::GetOptions::new().with_revision(view.at);
        let reads =
            groups.iter().map(|last| TxnOp::get(core.keys.group(space, *last), Some(options.clone())));
        for value in read::together(&core.link, reads.collect()).await?.1.into_iter().flatten() {
            let (_, rows) = rows(core, space, &value, view.at).await?;
            for (row, text) in rows {
                match space {
                    Space::Log => {}
                    Space::Heads { is_by_server } => {
                        let oldest = view.oldest[usize::from(is_by_server)];
                        if oldest.is_some_and(|oldest| oldest.0 <= row.0) {
                            found.insert(row.0, StoredEntry { row, head: text, body: Vec::new() });
                        }
                    }
                    Space::Bodies { .. } => {
                        if let Some(entry) = found.get_mut(&row.0) {
                            entry.body = text;
                        }
                    }
                }
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Decodes a history value (heads or bodies) of one commit group (commits written in one etcd transaction),
/// and reads its pieces if it has any. Returns the revision of the group's last commit, and for each entry
/// its row (with revision and time) and its encoded head or body.
async fn rows(
    core: &Core,
    space: Space,
    value: &KeyValue,
    at: i64,
) -> Result<(Revision, Vec<(Row, Vec<u8>)>), ReadError> {
    let name = String::from_utf8_lossy(value.key()).into_owned();
    let last = core.keys.last_of(space, value.key());
    let last = last.ok_or_else(|| unreadable(&name, "the key contains no revision".to_owned()))?;
    let opened = wire::open(value.value()).map_err(|reason| unreadable(&name, reason))?;
    let stage = core.keys.staged_group(space, last, &opened.envelope.id);
    let payload = read::payload(&core.link, &name, opened, &stage, at).await?;
    let rows = wire::decode_rows(&payload, last.0).map_err(|reason| unreadable(&name, reason))?;
    Ok((last, rows.into_iter().map(|(row, text)| (row, text.to_vec())).collect()))
}

impl StoredEntry {
    fn decode_head(self) -> Result<RevisionHead, StoreError> {
        let Self { row: Row(revision, at, _, _), head, body: _ } = self;
        history::decode_head((revision.cast_signed(), at, head))
    }

    fn decode(self) -> Result<RevisionEntry, StoreError> {
        let Self { row: Row(revision, at, _, _), head, body } = self;
        history::decode((revision.cast_signed(), at, head), &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HISTORY_KEPT;

    /// After one server write and more client writes than are retained, the index contains no group without
    /// retained entries.
    #[test]
    fn groups_of_which_nothing_is_kept_are_forgotten_though_the_server_seldom_writes() {
        let mut known = HistoryIndex::new(Revision(0));
        let entry = |revision| [Entry { revision: Revision(revision), bytes: 10 }];
        known.add(Revision(1), true, &entry(1));
        let newest = 3 * HISTORY_KEPT as u64;
        for revision in 2..=newest {
            known.add(Revision(revision), false, &entry(revision));
            known.forget_groups();
        }
        let groups = known.all_groups();
        assert_eq!(groups.len(), HISTORY_KEPT + 1);
        assert_eq!((groups[0], groups[1]), (Revision(1), Revision(newest + 1 - HISTORY_KEPT as u64)));
    }
}
