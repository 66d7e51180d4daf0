//! Rules that do or do not apply to a request, with the reason of each.

use std::collections::BTreeSet;

use super::{HttpCandidate, HttpParent, RuleOutcome};
use crate::{
    http::{
        attach::attach,
        decide::{UnmetCondition, unmet},
        head::RequestHead,
        hosts::HostMap,
        objects::{HttpObjectKey, HttpObjects},
        path::normal_path,
        refusal::{RefusalEntry, RefusalIndex, RefusalRival, RuleRank, refusal_of},
        state::HttpState,
        table::{PathCandidate, PathIndex, PortRoutes, RouteEntry},
    },
    kinds::{
        condition_reason::ConditionReason,
        http_route::{HttpRouteSpec, ParentRef, PathMatchType},
        resource::Kind,
    },
};

/// Maximum number of rules in an explanation.
const CANDIDATES_MAX: usize = 50;

/// Rules of an explanation.
pub(super) struct RuleCandidates {
    pub(super) shown: Vec<HttpCandidate>,
    /// Number of the rules that are not shown.
    pub(super) omitted: usize,
    /// Parents of the routes of the shown rules.
    pub(super) parents: Vec<HttpParent>,
}

/// Rules in the order in which they are shown. A rule with several host names or listeners is shown once, at the place where
/// it comes nearest to the request.
#[derive(Default)]
struct RuleList {
    seen: BTreeSet<(HttpObjectKey, usize, usize)>,
    routes: BTreeSet<HttpObjectKey>,
    rules: Vec<HttpCandidate>,
}

/// Entry of the table with its place.
#[derive(Clone, Copy)]
struct PlacedEntry<'a> {
    entry: &'a RouteEntry,
    host: &'a str,
    match_type: PathMatchType,
    path: &'a str,
}

impl RuleCandidates {
    pub(super) fn of<'a>(state: &'a HttpState, head: &RequestHead<'a>) -> Self {
        let mut list = RuleList::default();
        let ports = &state.table().routes.ports;
        let owner = ports.get(&head.port).and_then(|listeners| listeners.ranked(head.host).next());
        if let Some((rank, hosts)) = owner {
            list.add_owner(&state.table().routes.refusals, (rank, hosts), head);
        }
        let owner = owner.map(|(_, hosts)| hosts);
        if let Some(listeners) = ports.get(&head.port) {
            list.add_listeners(listeners, owner);
        }
        for (port, listeners) in ports.iter().filter(|(port, _)| **port != head.port) {
            let message = format!("is attached to listeners of port {port}");
            for (_, hosts) in listeners.patterns() {
                list.add_hosts(hosts, RuleOutcome::Port, &message);
            }
        }
        list.finish(state)
    }
}

impl RuleList {
    /// Adds the rules of the listener to which the request belongs.
    fn add_owner<'a>(
        &mut self,
        refusals: &'a HostMap<RefusalIndex>,
        (listener, hosts): (usize, &'a HostMap<PathIndex>),
        head: &RequestHead<'a>,
    ) {
        let request_path = &*normal_path(head.path);
        let patterns: Vec<_> = hosts.patterns().collect();
        let matching: Vec<_> = hosts
            .candidates(head.host)
            .filter_map(|paths| patterns.iter().find(|(_, one)| std::ptr::eq(*one, paths)))
            .collect();
        let ranked = hosts
            .ranked(head.host)
            .flat_map(|(host, paths)| paths.candidates(request_path).map(move |one| (host, one)));
        let mut ranked = ranked.filter(|(_, one)| unmet(one.entry, head).is_none());
        let rule = ranked.next().map(|(host, one)| RuleRank { host, path: one.rank });
        let rival = RefusalRival { listener, rule };
        let refusal = refusal_of(refusals, head, request_path, rival);
        let mut winner = refusal.map(|RefusalEntry { entry, host, match_type, path, .. }| PlacedEntry {
            entry,
            host,
            match_type: *match_type,
            path,
        });
        if let Some(refusal) = winner {
            self.add(refusal, RuleOutcome::Applies, "refuses requests for this path".to_owned());
        }
        for (host, paths) in &matching {
            for PathCandidate { entry, matched: path, .. } in paths.candidates(request_path) {
                let is_exact = paths.entries().any(|(one, match_type, _)| {
                    std::ptr::eq(one, entry) && match_type == PathMatchType::Exact
                });
                let match_type = if is_exact { PathMatchType::Exact } else { PathMatchType::PathPrefix };
                let placed = PlacedEntry { entry, host, match_type, path };
                let (outcome, message) = match (unmet(entry, head), winner) {
                    (Some(condition), _) => unmet_words(condition),
                    (None, None) => {
                        winner = Some(placed);
                        (
                            RuleOutcome::Applies,
                            "is the most specific rule whose conditions are met".to_owned(),
                        )
                    }
                    (None, Some(winner)) => (RuleOutcome::LowerPrecedence, advantage(&winner, &placed)),
                };
                self.add(placed, outcome, message);
            }
        }
        for (host, paths) in &matching {
            for (entry, match_type, path) in paths.entries() {
                let placed = PlacedEntry { entry, host, match_type, path };
                self.add(placed, RuleOutcome::Path, format!("requires {}", path_words(match_type, path)));
            }
        }
        for (host, paths) in &patterns {
            for (entry, match_type, path) in paths.entries() {
                let placed = PlacedEntry { entry, host, match_type, path };
                self.add(placed, RuleOutcome::Hostname, format!("requires the host name {host}"));
            }
        }
    }

    /// Adds the rules of the other listeners of the port.
    fn add_listeners(&mut self, listeners: &PortRoutes, owner: Option<&HostMap<PathIndex>>) {
        let patterns: Vec<_> = listeners.patterns().collect();
        let owner = owner.and_then(|owner| patterns.iter().find(|(_, one)| std::ptr::eq(*one, owner)));
        for (pattern, hosts) in &patterns {
            let message = match owner {
                Some((owner, _)) => format!(
                    "is attached to the listener for {pattern}; the request belongs to the listener for {owner}"
                ),
                None => format!("is attached to the listener for {pattern}"),
            };
            self.add_hosts(hosts, RuleOutcome::Listener, &message);
        }
    }

    fn add_hosts(&mut self, hosts: &HostMap<PathIndex>, outcome: RuleOutcome, message: &str) {
        for (host, paths) in hosts.patterns() {
            for (entry, match_type, path) in paths.entries() {
                let placed = PlacedEntry { entry, host: &host, match_type, path };
                self.add(placed, outcome, message.to_owned());
            }
        }
    }

    fn add(&mut self, placed: PlacedEntry<'_>, outcome: RuleOutcome, message: String) {
        let PlacedEntry { entry, host, match_type, path } = placed;
        let id = &entry.rule.id;
        let route = HttpObjectKey { namespace: id.namespace.clone(), name: id.route.clone() };
        if !self.seen.insert((route.clone(), id.rule, entry.index)) {
            return;
        }
        let end = match match_type {
            PathMatchType::Exact => "",
            PathMatchType::PathPrefix => "/*",
        };
        let rule = id.name.as_ref().map_or_else(|| id.rule.to_string(), ToString::to_string);
        let candidate = HttpCandidate {
            route: route.to_string(),
            rule: Some(rule),
            place: Some(format!("{host}{path}{end}")),
            outcome,
            message,
        };
        self.routes.insert(route);
        self.rules.push(candidate);
    }

    /// Adds the routes that no listener serves, and the parents.
    fn finish(mut self, state: &HttpState) -> RuleCandidates {
        let snapshot = state.snapshot();
        let mut parents = Vec::new();
        for object in snapshot.list(Kind::HttpRoute, None, None) {
            let (Some(namespace), Some(spec)) = (&object.metadata.namespace, object.as_http_route()) else {
                continue;
            };
            let key = HttpObjectKey { namespace: namespace.clone(), name: object.metadata.name.clone() };
            let own = parents_of(state, &key, spec);
            if !self.routes.contains(&key) {
                let refused = own.iter().find_map(|parent| parent.message.clone());
                let message = refused.unwrap_or_else(|| {
                    "its listeners are not served: another Gateway has their port with another protocol"
                        .to_owned()
                });
                let outcome = RuleOutcome::NotAttached;
                let candidate =
                    HttpCandidate { route: key.to_string(), rule: None, place: None, outcome, message };
                self.rules.push(candidate);
            }
            parents.extend(own);
        }
        let omitted = self.rules.len().saturating_sub(CANDIDATES_MAX);
        let shown: Vec<_> = self.rules.into_iter().take(CANDIDATES_MAX).collect();
        let routes: BTreeSet<&str> = shown.iter().map(|candidate| candidate.route.as_str()).collect();
        parents.retain(|parent| routes.contains(parent.route.as_str()));
        RuleCandidates { shown, omitted, parents }
    }
}

fn parents_of(state: &HttpState, route: &HttpObjectKey, spec: &HttpRouteSpec) -> Vec<HttpParent> {
    let objects = HttpObjects::parents_of(state.snapshot(), &route.namespace, spec);
    let parent = |parent: &ParentRef| {
        let problem = attach(&objects, &route.namespace, spec, parent).err();
        let ParentRef { name, namespace, section_name, port } = parent;
        let gateway = format!("{}/{name}", namespace.as_ref().unwrap_or(&route.namespace));
        let section = section_name.as_ref().map(|section| format!("/{section}")).unwrap_or_default();
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let described = problem.map(|problem| problem.describe(&gateway, &route.namespace));
        let (reason, message, hint) = match described {
            Some((reason, message, hint)) => (reason, Some(message), Some(hint.to_owned())),
            None => (ConditionReason::Valid, None, None),
        };
        let parent = format!("{gateway}{section}{port}");
        HttpParent { route: route.to_string(), parent, accepted: problem.is_none(), reason, message, hint }
    };
    spec.parent_refs.iter().map(parent).collect()
}

fn unmet_words(condition: UnmetCondition<'_>) -> (RuleOutcome, String) {
    match condition {
        UnmetCondition::Method(method) => (RuleOutcome::Method, format!("requires the method {method}")),
        UnmetCondition::Header(name, value) => {
            (RuleOutcome::Header, format!("requires the header {name}: {value}"))
        }
        UnmetCondition::QueryParam(name, value) => {
            (RuleOutcome::QueryParam, format!("requires the query parameter {name}={value}"))
        }
    }
}

fn path_words(match_type: PathMatchType, path: &str) -> String {
    match match_type {
        PathMatchType::Exact => format!("the path {path}"),
        PathMatchType::PathPrefix if path.is_empty() => "a path".to_owned(),
        PathMatchType::PathPrefix => format!("the path {path} or one below"),
    }
}

/// Returns the reason for which `winner` precedes `other` although the request meets the conditions of both, in the order of
/// the rules of precedence.
fn advantage(winner: &PlacedEntry<'_>, other: &PlacedEntry<'_>) -> String {
    let id = &winner.entry.rule.id;
    let (one, two) = (winner.entry, other.entry);
    let reason = if one.rule.refusal.is_some() {
        "refuses requests for this path".to_owned()
    } else if winner.host != other.host {
        format!("has the more specific host name {}", winner.host)
    } else if winner.match_type != other.match_type {
        "has the exact path".to_owned()
    } else if winner.path != other.path {
        format!("has the longer path {}", winner.path)
    } else if one.method.is_some() != two.method.is_some() {
        "has a method".to_owned()
    } else if one.headers.len() != two.headers.len() {
        "has more headers".to_owned()
    } else if one.query.len() != two.query.len() {
        "has more query parameters".to_owned()
    } else if one.created != two.created {
        "belongs to an older route".to_owned()
    } else if (&id.namespace, &id.route) != (&two.rule.id.namespace, &two.rule.id.route) {
        "belongs to a route whose name comes first".to_owned()
    } else {
        "comes first in the route".to_owned()
    };
    format!("rule {id} {reason}")
}
