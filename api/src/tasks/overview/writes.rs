//! The writes that may be behind a problem: the end of the history, with the Services whose endpoints they touched.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    cluster::{history::RevisionHead, snapshot::Snapshot},
    kinds::resource::{Kind, Object, ObjectKey, Spec},
    primitives::quantity::Revision,
    views::overview::preceding::{Write, Writes},
};
use store::{HistoryQuery, ObjectFilter};

use crate::{
    base::error_chain::Chain,
    context::server_state::ServerState,
    state::{
        change_ring::{Before, Recent},
        published::Published,
    },
};

/// Entries of the history that are read at once: more writes than one looks through within a moment are no explanation.
const HEADS_MAX: usize = 200;

/// Learns of the writes since the last time. What cannot be read is left out: then a problem has no change beside it.
pub(super) async fn follow(
    app: &ServerState,
    published: &Published,
    writes: &mut Writes,
    written: &mut Revision,
) {
    let head = published.position().revision;
    if head < *written {
        // Another life of the store.
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
            tracing::warn!(error = %Chain(&error), "the history was not read; problems show no change before them");
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

/// What a write wrote, with the Services of endpoints among it: those that it had before, and those that it has.
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
        // Older than what is remembered whole: as far as the objects are still there.
        None => {
            for (_, key) in &head.touched {
                touches
                    .extend(snapshot.get(key).into_iter().flat_map(|object| services_of(snapshot, object)));
            }
        }
    }
    touches
}

/// The Services that an object gives endpoints to.
fn services_of(snapshot: &Snapshot, object: &Object) -> Vec<ObjectKey> {
    let Some(namespace) = &object.metadata.namespace else { return Vec::new() };
    match &object.spec {
        Spec::EndpointSet(spec) => {
            vec![ObjectKey {
                kind: Kind::Service,
                namespace: Some(namespace.clone()),
                name: spec.service.clone(),
            }]
        }
        Spec::Workload(_) => snapshot
            .services_selecting(namespace, &object.metadata.labels)
            .map(|key| key.object_key())
            .collect(),
        Spec::Service(_)
        | Spec::Node(_)
        | Spec::AddressPool(_)
        | Spec::Advertisement(_)
        | Spec::BgpPeer(_)
        | Spec::BfdProfile(_)
        | Spec::EndpointHealth(_)
        | Spec::Address(_) => Vec::new(),
    }
}
