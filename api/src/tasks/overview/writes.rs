//! Recent writes that may have caused a problem: the end of the history, with the Services that each write
//! affects.

use std::collections::{BTreeMap, BTreeSet};

use ::base::chain;
use model::{
    cluster::{history::RevisionHead, snapshot::Snapshot},
    compile::services_served_by,
    kinds::resource::{Object, ObjectKey},
    primitives::quantity::Revision,
    views::overview::preceding::{Write, Writes},
};
use store::{HistoryQuery, ObjectFilter};

use crate::{
    context::server_state::ServerState,
    state::{
        change_ring::{Before, Recent},
        published::Published,
    },
};

/// Maximum number of history entries read at once. If there are more writes between two documents, the older ones
/// are ignored.
const HEADS_MAX: usize = 200;

/// Reads the writes since the previous call from the history. If the history cannot be read, `writes` stays
/// unchanged, so that new problems in the overview have no preceding write.
pub(super) async fn follow(
    app: &ServerState,
    published: &Published,
    writes: &mut Writes,
    written: &mut Revision,
) {
    let head = published.position().revision;
    if head < *written {
        // Another epoch of the store.
        (*writes, *written) = (Writes::default(), Revision(0));
    }
    let behind = usize::try_from(head.0.saturating_sub(written.0)).unwrap_or(usize::MAX);
    if behind == 0 {
        return;
    }
    let limit = behind.min(HEADS_MAX);
    let query = HistoryQuery { before: Some(head.next()), filter: ObjectFilter::default(), limit };
    let heads = match app.store.history(&query).await {
        Ok(page) => page.heads,
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "cannot read the history; problems show no preceding \
                                                    change"
            );
            return;
        }
    };
    let recent: BTreeMap<Revision, &Recent> = published
        .recent
        .since(*written)
        .map(|commits| commits.map(|commit| (commit.revision, &**commit)).collect())
        .unwrap_or_default();
    for head in heads.into_iter().rev().filter(|head| head.revision > *written) {
        let touches = touches(&published.snapshot, &head, recent.get(&head.revision).copied());
        let RevisionHead { revision, at, origin, touched: _ } = head;
        let (maker, author, message) = (origin.maker, origin.author, origin.message);
        writes.push(Write { revision, at, maker, author, message, touches });
    }
    *written = head;
}

/// Returns the objects that a write has changed, and the Services for which these objects provided endpoints
/// before the write or provide them after it. Without `recent`, only objects that still exist are considered.
fn touches(snapshot: &Snapshot, head: &RevisionHead, recent: Option<&Recent>) -> BTreeSet<ObjectKey> {
    let mut touches: BTreeSet<ObjectKey> = head.touched.iter().map(|(_, key)| key.clone()).collect();
    match recent {
        Some(recent) => {
            for change in &recent.changes {
                touches.extend(services_of(snapshot, &change.object));
                match &change.before {
                    Before::Object(object) => touches.extend(services_of(snapshot, object)),
                    Before::Nothing | Before::Unknown => {}
                }
            }
        }
        // Older than the change ring: use the objects that still exist.
        None => {
            for (_, key) in &head.touched {
                touches
                    .extend(snapshot.get(key).into_iter().flat_map(|object| services_of(snapshot, object)));
            }
        }
    }
    touches
}

/// Returns the Services that an object provides endpoints for.
fn services_of(snapshot: &Snapshot, object: &Object) -> impl Iterator<Item = ObjectKey> {
    services_served_by(snapshot, object).into_iter().map(|key| key.object_key())
}
