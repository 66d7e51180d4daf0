//! Index of the rules that refuse requests.
//!
//! Invariant: no request that a refusal covers reaches an endpoint, unless a rule with a more specific host name applies, or a rule
//! with a more specific path that the refusal leaves alone.

use std::sync::Arc;

use imbl::OrdMap;

use super::{
    decide::unmet,
    head::RequestHead,
    hosts::{HostMap, rank_of},
    objects::HttpObjectKey,
    path::{normal_path, without_backslashes, without_parameters},
    table::{RouteEntry, subtract},
};
use crate::{
    kinds::http_route::{HttpRouteMatch, PathMatchType, RefusalComparison},
    primitives::{hostname_pattern::HostnamePattern, quantity::Port},
};

/// Match of a rule that refuses requests, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusalEntry {
    pub(super) entry: RouteEntry,
    /// Host name of the route, `*` for every host name.
    pub(super) host: Box<str>,
    pub(super) match_type: PathMatchType,
    /// Path in normal form, without final slash if it is a prefix.
    pub(super) path: Box<str>,
    /// Listeners at which the refusal applies; `None` stands for all.
    listeners: Option<RefusingListeners>,
}

/// Ports and host names of listeners.
pub(super) type RefusingListeners = Arc<[(Port, Option<HostnamePattern>)]>;

/// Refusals of one host name by their paths in lower case. Clones share all data. The cost of a request depends on the number
/// of different lengths of the paths, not on the number of refusals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RefusalIndex {
    paths: OrdMap<Box<str>, Vec<RefusalEntry>>,
    /// Number of the paths by their length in bytes.
    lengths: OrdMap<usize, usize>,
}

/// Listener of a request, as the rank of its host name, and the rule that would apply without refusals.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusalRival {
    pub(super) listener: usize,
    pub(super) rule: Option<RuleRank>,
}

/// Specificity of a rule: numbers that are higher for more specific host names and paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleRank {
    pub(super) host: usize,
    pub(super) path: usize,
}

impl RefusalIndex {
    pub(super) fn insert(
        &mut self,
        host: &str,
        one: &HttpRouteMatch,
        entry: &RouteEntry,
        listeners: Option<RefusingListeners>,
    ) {
        let path = path_of(one);
        let entries = self.paths.entry(path.to_ascii_lowercase().into()).or_default();
        if entries.is_empty() {
            *self.lengths.entry(path.len()).or_default() += 1;
        }
        let (host, match_type) = (host.into(), one.path.match_type);
        entries.push(RefusalEntry { entry: entry.clone(), host, match_type, path, listeners });
    }

    /// Removes the refusals of a route at the path of a match.
    pub(super) fn remove(&mut self, one: &HttpRouteMatch, route: &HttpObjectKey) {
        let path = path_of(one).to_ascii_lowercase();
        let Some(entries) = self.paths.get_mut(path.as_str()) else { return };
        entries.retain(|one| {
            let id = &one.entry.rule.id;
            id.namespace != route.namespace || id.route != route.name
        });
        if entries.is_empty() {
            self.paths.remove(path.as_str());
            subtract(&mut self.lengths, &path.len());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the refusals that cover a path in normal form, the longest one first.
    fn covering<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a RefusalEntry> {
        let lower = path.to_ascii_lowercase();
        let lengths = self.lengths.range(..=path.len()).rev().map(|(length, _)| *length);
        let entries = lengths.filter_map(move |length| self.paths.get(lower.get(..length)?));
        entries.flatten().filter(move |one| one.covers(path))
    }
}

impl RefusalEntry {
    fn covers(&self, path: &str) -> bool {
        let Some(refusal) = &self.entry.rule.refusal else { return false };
        let Some((start, rest)) = path.split_at_checked(self.path.len()) else { return false };
        if *start != *self.path && !(refusal.ignore_case && start.eq_ignore_ascii_case(&self.path)) {
            return false;
        }
        match (self.match_type, refusal.comparison) {
            (PathMatchType::Exact, _) => rest.is_empty(),
            (PathMatchType::PathPrefix, RefusalComparison::Characters) => true,
            (PathMatchType::PathPrefix, RefusalComparison::PathElements) => {
                rest.is_empty() || rest.starts_with('/')
            }
        }
    }

    /// Returns true if the refusal applies at the listener of a request.
    fn is_at(&self, head: &RequestHead<'_>, listener: usize) -> bool {
        let Some(listeners) = &self.listeners else { return true };
        listeners.iter().any(|(port, name)| {
            *port == head.port
                && rank_of(name.as_ref()) == listener
                && name.as_ref().is_none_or(|name| name.matches(head.host))
        })
    }

    /// Returns true if the refusal precedes the rule that would apply without it.
    fn precedes(&self, host: usize, rival: Option<RuleRank>) -> bool {
        let Some(rival) = rival else { return true };
        let covers_longer = self.entry.rule.refusal.as_ref().is_some_and(|one| one.covers_longer_paths);
        let rank = match self.match_type {
            PathMatchType::Exact => usize::MAX,
            PathMatchType::PathPrefix => self.path.len(),
        };
        host > rival.host || (host == rival.host && (covers_longer || rank >= rival.path))
    }
}

/// Returns the refusal of a request, if there is one. `path` is the path of the request in normal form.
pub(super) fn refusal_of<'a>(
    refusals: &'a HostMap<RefusalIndex>,
    head: &RequestHead<'a>,
    path: &str,
    rival: RefusalRival,
) -> Option<&'a RefusalEntry> {
    refusals.ranked(head.host).find_map(|(host, index)| {
        let find = |path: &str| {
            let mut covering = index.covering(path);
            covering.find(|one| {
                one.is_at(head, rival.listener)
                    && one.precedes(host, rival.rule)
                    && unmet(&one.entry, head).is_none()
            })
        };
        let slashed = without_backslashes(path);
        let spellings = [Some(path), slashed.as_deref()];
        spellings
            .into_iter()
            .flatten()
            .find_map(|path| find(path).or_else(|| find(&without_parameters(path)?)))
    })
}

/// Returns the path of a match in normal form, without final slash if it is a prefix.
fn path_of(one: &HttpRouteMatch) -> Box<str> {
    let path = normal_path(&one.path.value);
    match one.path.match_type {
        PathMatchType::Exact => path.into(),
        PathMatchType::PathPrefix => path.trim_end_matches('/').into(),
    }
}
