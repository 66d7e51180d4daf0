//! State that would result from a simulated write. As for a real write, the write is validated, the endpoints
//! of the affected Services are computed, and announcing nodes are selected, but nothing is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::{
    admission::admit::{self, AdmittedWrite, Entropy, Operation, Outcome, Refusal, Request},
    cluster::change::{Change, Commit},
    compile::affected,
    kinds::resource::{Kind, ServiceKey},
    observed::{
        announcements::AnnouncementBook,
        assign::{AssignmentAction, AssignmentInputs, ClusterView, assign},
        rollup::NodeView,
    },
    primitives::name::Name,
    wire::report::Report,
};

use crate::{
    base::error::Problem,
    context::server_state::ServerState,
    security::Access,
    state::{
        node_reports::Table,
        published::{Published, Step},
    },
    write::refusal::{held_in_words, refused},
};

/// Result of a simulated write.
pub(super) struct Candidate {
    /// State after the write and after the assignment of announcing nodes.
    pub(super) published: Published,
    /// Outcome of the simulated write for each object.
    pub(super) outcomes: Vec<Outcome>,
    /// Description of the guard (limit on the removals of one write) that would reject the write; empty if
    /// there is none.
    pub(super) guards: Vec<String>,
}

/// Simulates a write on the state `published`, without committing it. Returns a problem if the write is
/// rejected for a reason other than a guard.
pub(super) fn of(
    app: &ServerState,
    access: &Access,
    published: &Published,
    request: &Request,
) -> Result<Candidate, Problem> {
    let entropy = app.source.draw();
    let try_admit = |request: &Request| admit::admit(&published.snapshot, &app.cluster, request, &entropy);
    let (admitted, guards) = match try_admit(request) {
        Err(Refusal::GuardHeld(held)) => {
            let confirmed = Request { confirmed: true, ..request.clone() };
            (try_admit(&confirmed), vec![held_in_words(&held)])
        }
        admitted => (admitted, Vec::new()),
    };
    let AdmittedWrite { snapshot, changes, outcomes } =
        admitted.map_err(|refusal| refused(refusal, access))?;
    if changes.is_empty() {
        return Ok(Candidate { published: published.clone(), outcomes, guards });
    }
    let commit = Commit { revision: snapshot.revision(), at: entropy.now, changes: changes.clone() };
    let before = published.snapshot.clone();
    let next = published.advance(vec![Step { before, after: snapshot, commit }]);
    let concerned = concerned(published, &next, &changes);
    let published = announced(app, next, &concerned, &entropy);
    Ok(Candidate { published, outcomes, guards })
}

/// Returns the load balancer addresses whose announcing node may be affected by the changes.
fn concerned(before: &Published, after: &Published, changes: &[Change]) -> BTreeSet<IpAddr> {
    let is_everywhere = |change: &Change| match change.object.spec.kind() {
        Kind::Node | Kind::Advertisement => true,
        Kind::AddressPool
        | Kind::BfdProfile
        | Kind::DnsZone
        | Kind::Certificate
        | Kind::WorkloadNetwork
        | Kind::NetworkPolicy
        | Kind::Block
        | Kind::Attachment
        | Kind::Gateway
        | Kind::HttpRoute
        | Kind::TlsRoute
        | Kind::BgpPeer
        | Kind::Workload
        | Kind::Service
        | Kind::EndpointSet
        | Kind::EndpointHealth
        | Kind::Address => false,
    };
    if changes.iter().any(is_everywhere) {
        return after.addresses.after(None).map(|(address, _)| *address).collect();
    }
    let services: BTreeSet<ServiceKey> =
        changes.iter().flat_map(|change| affected(&before.snapshot, &after.snapshot, change)).collect();
    let of_services = services.iter().flat_map(|service| after.snapshot.addresses_of(service));
    let records = changes.iter().filter_map(|change| change.object.as_address()).map(|record| record.address);
    of_services.chain(records).collect()
}

/// Returns the state after announcing nodes have been selected for `addresses`, on the assumption that all
/// reporting nodes have programmed and verified the state `next`.
fn announced(
    app: &ServerState,
    next: Published,
    addresses: &BTreeSet<IpAddr>,
    entropy: &Entropy,
) -> Published {
    if addresses.is_empty() {
        return next;
    }
    let operations = {
        let table = app.observations.nodes.table(&next.snapshot, entropy.now);
        decide(&next, &table, &app.observations.announcements(), addresses)
    };
    let request = Request { operations, confirmed: true, ..Request::default() };
    match admit::admit(&next.snapshot, &app.cluster, &request, entropy) {
        Ok(AdmittedWrite { snapshot, changes, .. }) if !changes.is_empty() => {
            let commit = Commit { revision: snapshot.revision(), at: entropy.now, changes };
            let before = next.snapshot.clone();
            next.advance(vec![Step { before, after: snapshot, commit }])
        }
        // Validation does not reject decisions of the server; if it did, the decision would not be committed
        // either.
        Ok(_) | Err(_) => next,
    }
}

fn decide(
    next: &Published,
    table: &Table,
    book: &AnnouncementBook,
    addresses: &BTreeSet<IpAddr>,
) -> Vec<Operation> {
    let views = table.views();
    // A node is a candidate once it has verified the Services. Assume that all nodes have, except for current
    // failures.
    let position = next.position();
    let verified = |view: &NodeView<'_>| {
        let report = view.report?;
        Some(Report { received: position, applied: position, verified: position, ..report.clone() })
    };
    let reports: Vec<Option<Report>> = views.iter().map(verified).collect();
    let views: Vec<NodeView<'_>> = views
        .iter()
        .zip(&reports)
        .map(|(view, report)| NodeView { report: report.as_ref(), ..*view })
        .collect();
    let compiled = |key: &ServiceKey| next.compiled.get(key).map(|entry| Arc::clone(&entry.form));
    let scene =
        ClusterView { snapshot: &next.snapshot, epoch: next.epoch, nodes: &views, compiled: &compiled };
    let mut owned: BTreeMap<Name, usize> = BTreeMap::new();
    for (_, entry) in next.addresses.after(None) {
        if let Some(first) = entry.form.announcement.candidates.first() {
            *owned.entry(first.node.clone()).or_default() += 1;
        }
    }
    let mut operations = Vec::new();
    for address in addresses {
        let inputs = AssignmentInputs { book, owned: &owned, may_wait: false };
        let AssignmentAction::Record(announcement) = assign(&scene, &inputs, *address).action else {
            continue;
        };
        let record = next.snapshot.address(*address).and_then(|object| object.as_address());
        let Some(record) = record else { continue };
        let first = |candidates: &[model::kinds::address::Candidate]| {
            candidates.first().map(|first| first.node.clone())
        };
        if let Some(from) = first(&record.announcement.candidates)
            && let Some(count) = owned.get_mut(&from)
        {
            *count = count.saturating_sub(1);
        }
        if let Some(to) = first(&announcement.candidates) {
            *owned.entry(to).or_default() += 1;
        }
        let if_epoch = record.announcement.epoch;
        operations.push(Operation::SetAnnouncer { address: *address, if_epoch, announcement });
    }
    operations
}
