//! `GET /v1/status`: how it is going, on one page.

use axum::extract::State;
use http::HeaderMap;
use model::{
    quantity::{Position, Timestamp},
    resource::{Kind, Object},
    status::{Condition, ConditionStatus, ConditionType},
};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::{ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    error::{Answer, Code},
    negotiate::{form, render},
    openapi::{Doc, OBJECT_TYPES, Route, Routes},
    params::{ApiQuery, NoQuery},
    security::{Permission, Subject, Verb},
    view::{Shower, View},
};

/// Problems listed; whoever has more needs a list, not a summary.
const PROBLEMS_MAX: usize = 100;

/// Names in one message.
const NAMES_MAX: usize = 10;

/// How it is going.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterStatus {
    /// Where the published state is in history.
    position: Position,
    /// The version of this server.
    version: &'static str,
    /// This control server among those of its store.
    replica: Replica,
    /// Whether anybody who reaches this server may do anything.
    insecure: bool,
    /// The Nodes.
    nodes: NodeTotals,
    /// The Services.
    services: ServiceTotals,
    /// Objects by kind.
    objects: BTreeMap<&'static str, usize>,
    /// What is not as it should be, Nodes first; at most 100.
    #[schema(max_items = 100)]
    problems: Vec<ClusterProblem>,
}

/// A control server among those of its store.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Replica {
    /// What it is called.
    name: String,
    /// Whether it does what is to be done once: it decides who announces addresses, which Nodes are lost, and which
    /// endpoints are healthy.
    is_leader: bool,
    /// Whether there can be others: the store takes the writes of several.
    is_shared: bool,
}

/// The Nodes.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = NodeTotals)]
struct NodeTotals {
    /// How many there are.
    total: usize,
    /// Of these, whose agent reports.
    connected: usize,
    /// Of these, which have everything, read back.
    converged: usize,
}

/// The Services.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServiceTotals {
    /// How many there are.
    total: usize,
    /// Of these, which are ready.
    ready: usize,
    /// Of these, which are not.
    not_ready: usize,
}

/// Something that is not as it should be.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterProblem {
    /// The object, as kind and name.
    #[schema(example = "Service default/web")]
    object: String,
    /// Since when, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The machine word.
    reason: String,
    /// The same in words.
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("status", "Cluster", "Says how it is going: counts, and what is not as it should be.")
        .answer::<ClusterStatus>(200, "The summary.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/status")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, status)
            .done(),
    )
}

async fn status(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let view = app.view();
    let shower = view.shower();
    let mut problems = Vec::new();
    let nodes = count_nodes(&view, &shower, &mut problems);
    note_gone(&app, &mut problems);
    note_held(&app, &mut problems);
    let services = count_services(&view, &shower, &mut problems);
    note_announcing(&view, &shower, &mut problems);
    let snapshot = &view.published().snapshot;
    let status = ClusterStatus {
        position: view.published().position(),
        version: env!("CARGO_PKG_VERSION"),
        replica: Replica {
            name: app.settings.replica_name.clone(),
            is_leader: app.leadership.holds(),
            is_shared: app.store.is_shared(),
        },
        insecure: app.settings.is_insecure,
        nodes,
        services,
        objects: Kind::ALL.into_iter().map(|kind| (kind.as_str(), snapshot.count(kind))).collect(),
        problems,
    };
    Ok(render(form, &status))
}

fn count_nodes(view: &View<'_>, shower: &Shower<'_>, problems: &mut Vec<ClusterProblem>) -> NodeTotals {
    let mut totals = NodeTotals { connected: view.table().connected(), ..NodeTotals::default() };
    for object in view.published().snapshot.list(Kind::Node, None, None) {
        let Some(status) = shower.node(object) else { continue };
        totals.total += 1;
        totals.converged += usize::from(holds(&status.conditions, ConditionType::Converged));
        let since = status.last_report.filter(|_| !holds(&status.conditions, ConditionType::Connected));
        note(object, &status.conditions, since, problems);
    }
    totals
}

fn count_services(view: &View<'_>, shower: &Shower<'_>, problems: &mut Vec<ClusterProblem>) -> ServiceTotals {
    let mut totals = ServiceTotals::default();
    for object in view.published().snapshot.list(Kind::Service, None, None) {
        let Some(status) = shower.service(object) else { continue };
        let is_ready = holds(&status.conditions, ConditionType::Ready);
        totals.total += 1;
        totals.ready += usize::from(is_ready);
        totals.not_ready += usize::from(!is_ready);
        note(object, &status.conditions, None, problems);
    }
    totals
}

/// Notes pools and Advertisements that announce nothing, and peers that no node has.
fn note_announcing(view: &View<'_>, shower: &Shower<'_>, problems: &mut Vec<ClusterProblem>) {
    let snapshot = &view.published().snapshot;
    for object in snapshot.list(Kind::AddressPool, None, None) {
        note(
            object,
            &shower.pool(object).map(|status| status.conditions).unwrap_or_default(),
            None,
            problems,
        );
    }
    for object in snapshot.list(Kind::Advertisement, None, None) {
        let conditions = shower.advertisement(object).map(|status| status.conditions).unwrap_or_default();
        note(object, &conditions, None, problems);
    }
    for object in snapshot.list(Kind::BgpPeer, None, None) {
        let conditions = shower.bgp_peer(object).map(|status| status.conditions).unwrap_or_default();
        note(object, &conditions, None, problems);
    }
}

/// Notes that more Nodes are silent than may count as gone at once.
fn note_gone(app: &Shared, problems: &mut Vec<ClusterProblem>) {
    let held = app.nodes.gone().held;
    let names: Vec<_> = held.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    if let Some(first) = names.first() {
        problems.push(ClusterProblem {
            object: format!("Node {first}"),
            since: None,
            reason: "TooManySilent".to_owned(),
            message: format!(
                "{} silent Nodes are not taken out of service, because so many are silent at once: {}",
                held.len(),
                names.join(", ")
            ),
            hint: Some(
                "see whether this server is cut off; delete the Nodes that are really gone".to_owned(),
            ),
        });
    }
}

/// Notes that endpoints are used although they are unhealthy.
fn note_held(app: &Shared, problems: &mut Vec<ClusterProblem>) {
    let guard = app.health.guard();
    let Some((service, key, first)) = guard.held().next() else { return };
    let (held, checked) = (guard.held_count(), guard.checked());
    problems.push(ClusterProblem {
        object: format!("Service {service}"),
        since: Some(first.since),
        reason: "HealthGuardHeld".to_owned(),
        message: format!(
            "{held} of {checked} checked endpoints stay in service although they are unhealthy, because so many became \
             so at once; the first is {key}: {}",
            first.message
        ),
        hint: Some(
            "see whether the checks or the network are at fault; `tidegate health --confirm` takes them out".to_owned(),
        ),
    });
}

fn holds(conditions: &[Condition], wanted: ConditionType) -> bool {
    conditions.iter().any(|one| one.condition_type == wanted && one.status == ConditionStatus::True)
}

/// Notes the first condition that does not hold: the others follow from it more often than not.
fn note(
    object: &Object,
    conditions: &[Condition],
    since: Option<Timestamp>,
    problems: &mut Vec<ClusterProblem>,
) {
    if problems.len() >= PROBLEMS_MAX {
        return;
    }
    let Some(first) = conditions.iter().find(|one| one.status != ConditionStatus::True) else { return };
    let Condition { condition_type: _, status: _, reason, message, hint } = first.clone();
    problems.push(ClusterProblem { object: object.key().to_string(), since, reason, message, hint });
}
