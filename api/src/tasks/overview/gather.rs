//! Computation of the overview from the statuses of all objects, with `model::overview`.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use model::{
    kinds::resource::{Kind, Object, ServiceKey},
    observed::{
        lag::LagBrief,
        rollup::network_room,
        status::{ConditionType, EndpointCounts},
    },
    primitives::{name::Name, quantity::Timestamp},
    views::overview::{
        BfdSessionTotals, BgpSessionTotals, ConvergenceBrief, EndpointTotals, Impact, NodeRow, NodeTotals,
        Overview, PoolTotals, Replica, ServiceRow, ServiceStateTotals, SlowestNode, Subject, Totals,
        affects::Forms,
        memory::StatusFinding,
        nodes::{self, NodeInput, node_key, two_digits},
        others,
        problems::{problems, worst_by_object},
        services,
    },
    wire::report::PeerState,
};

use crate::{
    context::server_state::ServerState,
    state::{
        object_view::{ObjectRenderer, View},
        overview_announced::{AnnouncementSummary, announced, holds},
        overview_cache::{CarriedState, Counts},
        overview_services::{Look, ServiceRowCache},
        published::Published,
    },
};

/// Parts of the overview that are collected from the objects.
#[derive(Default)]
struct GatheredParts {
    services: Vec<Arc<ServiceRow>>,
    nodes: Vec<NodeRow>,
    findings: Vec<StatusFinding>,
    endpoints: EndpointCounts,
    pools: PoolTotals,
    counts: Counts,
}

/// Computes the current overview, and the counts of Nodes and Services. The last value is the time from which the
/// overview may differ although its other inputs stay the same; `None` if time has no influence.
pub(super) fn gather(
    app: &ServerState,
    published: Arc<Published>,
    known: &mut CarriedState,
) -> (Overview, Counts, Option<Timestamp>) {
    let CarriedState { memory, writes, kept, http } = known;
    let view = app.view_of(published);
    let renderer = view.renderer();
    let now = app.source.now();
    let mut gathered = GatheredParts::default();
    let announced = announced(&view, &renderer);
    let lag = app.observations.convergence.brief(
        &view.table().views(),
        view.published().nodes_head(),
        Instant::now(),
    );
    let look = Look { view: &view, renderer: &renderer, announced: &announced };
    gather_services(look, kept, &mut gathered);
    gather_nodes(&view, &renderer, &announced, &lag, &mut gathered);
    gather_others(app, &view, &renderer, &mut gathered);
    let http_until = http.gather(&view, &mut gathered.findings);
    let GatheredParts { mut services, mut nodes, mut findings, endpoints, pools, counts } = gathered;
    let mut is_moving = memory.update(&mut findings, now);
    explain_rows(&findings, &mut services, &mut nodes);
    let totals = totals(&view, &services, &nodes, endpoints, pools, &announced);
    is_moving |=
        lag.waiting_ms.iter().any(Option::is_some) || findings.iter().any(|one| one.aspect == "Drift");
    let (problems, problems_total) = problems(&findings, writes);
    let overview = Overview {
        position: view.published().position(),
        at: now,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        replica: Replica {
            name: app.settings.replica_name.clone(),
            is_leader: app.leadership.holds(),
            is_shared: app.store.is_shared(),
        },
        insecure: app.settings.is_insecure,
        read_only: app.settings.page.is_read_only,
        is_whole: true,
        totals,
        convergence: convergence(lag),
        services,
        nodes,
        problems,
        problems_total,
    };
    (overview, counts, if is_moving { Some(now) } else { http_until })
}

fn gather_services(look: Look<'_>, kept: &mut ServiceRowCache, into: &mut GatheredParts) {
    let (shares, worked_out) = kept.look(look);
    tracing::debug!(services = shares.len(), worked_out, "recomputed the overview");
    for share in shares {
        into.services.push(Arc::clone(&share.row));
        into.findings.extend_from_slice(&share.findings);
        into.endpoints = [into.endpoints, share.endpoints].into_iter().sum();
        into.counts.ready += usize::from(share.is_ready);
    }
}

fn gather_nodes(
    view: &View<'_>,
    renderer: &ObjectRenderer<'_>,
    announced: &AnnouncementSummary,
    lag: &LagBrief,
    into: &mut GatheredParts,
) {
    let published = view.published();
    let programmable = || published.compiled.after(None).filter(|(_, entry)| entry.form.is_programmable());
    let forms = || programmable().map(|(key, entry)| (entry.form.revision, key.clone())).collect();
    let forms = Forms::new(published.epoch, &forms);
    let now = view.now();
    for (view, lag_millis) in view.table().views().iter().zip(&lag.waiting_ms) {
        let Some(object) = published.snapshot.get(&node_key(view.name)) else { continue };
        let Some(status) = renderer.node(object) else { continue };
        let sight = NodeInput {
            view,
            status: &status,
            zone: zone(object),
            lag_millis: *lag_millis,
            addresses: announced.by_owner.get(view.name).copied().unwrap_or_default(),
            sessions: announced.sessions.get(view.name).copied(),
        };
        into.nodes.push(nodes::judge(&sight, &forms, now, &mut into.findings));
        into.counts.connected += usize::from(holds(&status.conditions, ConditionType::Connected));
        into.counts.converged += usize::from(holds(&status.conditions, ConditionType::Converged));
    }
}

fn zone(object: &Object) -> Option<&str> {
    object.as_node()?.zone.as_ref().map(|zone| zone.as_str())
}

fn gather_others(
    app: &ServerState,
    view: &View<'_>,
    renderer: &ObjectRenderer<'_>,
    into: &mut GatheredParts,
) {
    let snapshot = &view.published().snapshot;
    let GatheredParts { findings, pools, .. } = into;
    for object in snapshot.list(Kind::AddressPool, None, None) {
        let Some(status) = renderer.pool(object) else { continue };
        pools.total += 1;
        pools.nearly_full += usize::from(others::is_nearly_full(&status));
        findings.extend(others::pool(object, &status));
    }
    for object in snapshot.list(Kind::Advertisement, None, None) {
        let conditions = renderer.advertisement(object).map(|status| status.conditions).unwrap_or_default();
        findings.extend(others::first(object, &conditions, Impact::Notice));
    }
    for object in snapshot.list(Kind::BgpPeer, None, None) {
        findings.extend(renderer.bgp_peer(object).and_then(|status| others::bgp_peer(object, &status)));
    }
    for object in snapshot.list(Kind::WorkloadNetwork, None, None) {
        let Some(spec) = object.as_workload_network() else { continue };
        let room =
            network_room(snapshot, &object.metadata.name, spec, &view.published().network.service_cidrs);
        findings.extend(others::workload_network(object, &room));
    }
    findings.extend(policies_not_enforced(view, renderer));
    let silent: Vec<Name> = app.observations.nodes.gone().held.iter().cloned().collect();
    findings.extend(others::too_many_silent(&silent));
    let guard = app.observations.health.guard();
    if let Some((service, key, first)) = guard.held().next() {
        let counts = (guard.held_count(), guard.checked());
        let holding = guard.holding().filter(|one| *one != service).cloned();
        findings.push(others::health_held(service, key, first, counts, holding));
    }
    let dns_servers = app.dns_server_problems();
    findings.extend(dns_servers.iter().filter_map(|(name, problems)| others::dns_server(name, problems)));
}

/// Returns the findings of the NetworkPolicies that select Workloads on Nodes which do not enforce network policy; the others have
/// none.
fn policies_not_enforced(view: &View<'_>, renderer: &ObjectRenderer<'_>) -> Vec<StatusFinding> {
    let views = view.table().views();
    let lacking: BTreeSet<_> =
        views.iter().filter(|node| others::lacks_policy(node)).map(|node| node.name).collect();
    if lacking.is_empty() {
        return Vec::new();
    }
    let Published { policy, snapshot, .. } = view.published();
    let judged = policy.policies_on(&lacking).into_iter().filter_map(|key| {
        let object = snapshot.get(&key.object_key())?;
        others::network_policy(object, &renderer.network_policy(object)?)
    });
    judged.collect()
}

fn explain_rows(findings: &[StatusFinding], services: &mut [Arc<ServiceRow>], nodes: &mut [NodeRow]) {
    if findings.is_empty() {
        return;
    }
    let worst = worst_by_object(findings);
    for (about, worst) in &worst {
        let Some(key) = about.object().and_then(|key| ServiceKey::of_object_key(&key)) else { continue };
        let found =
            services.binary_search_by(|row| (&row.namespace, &row.name).cmp(&(&key.namespace, &key.name)));
        if let Some(row) = found.ok().and_then(|at| services.get_mut(at)) {
            services::explain(Arc::make_mut(row), worst);
        }
    }
    for row in nodes {
        match worst.get(&Subject::from(node_key(&row.name))) {
            Some(worst) => nodes::explain(row, worst),
            None => nodes::reset(row),
        }
    }
}

fn totals(
    view: &View<'_>,
    services: &[Arc<ServiceRow>],
    nodes: &[NodeRow],
    endpoints: EndpointCounts,
    pools: PoolTotals,
    announced: &AnnouncementSummary,
) -> Totals {
    let (mut of_services, mut of_nodes) = (ServiceStateTotals::default(), NodeTotals::default());
    services.iter().for_each(|row| of_services.add(row));
    nodes.iter().for_each(|row| of_nodes.add(row.state));
    let mut bfd = BfdSessionTotals::default();
    let connected = view.table().views().into_iter().filter(|view| view.is_connected);
    for peer in connected.filter_map(|view| view.report).flat_map(|report| &report.peers) {
        bfd.total += 1;
        bfd.up += usize::from(peer.state == PeerState::Up);
    }
    let mut bgp = BgpSessionTotals::default();
    for sessions in announced.sessions.values() {
        bgp.total += sessions.total;
        bgp.established += sessions.established;
    }
    let EndpointCounts { total, ready, draining, maintenance, unhealthy, unknown: _, not_checked: _ } =
        endpoints;
    let endpoints = EndpointTotals {
        total: total.into(),
        ready: ready.into(),
        unhealthy: unhealthy.into(),
        draining: u64::from(draining) + u64::from(maintenance),
    };
    Totals {
        services: of_services,
        nodes: Some(of_nodes),
        endpoints,
        addresses: Some(announced.totals),
        bgp_sessions: Some(bgp),
        bfd_sessions: Some(bfd),
        pools: Some(pools),
    }
}

fn convergence(lag: LagBrief) -> ConvergenceBrief {
    let LagBrief { p50_ms, p99_ms, slowest, waiting_ms: _ } = lag;
    let slowest = slowest.map(|(node, took, reason)| SlowestNode {
        node,
        lag_millis: Some(two_digits(took)),
        reason: Some(reason),
    });
    ConvergenceBrief { p50_millis: p50_ms.map(two_digits), p99_millis: p99_ms.map(two_digits), slowest }
}
