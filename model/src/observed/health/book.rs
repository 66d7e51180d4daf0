//! What the agents say of the endpoints that they check: the last word of each, up to [`WORDS_KEPT_MAX`].
//!
//! It lives in memory: nothing is lost with it, because what was decided is on record and agents that meet a new server say
//! everything again.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    kinds::endpoint_health::CheckKey,
    wire::report::{CheckReport, CheckState},
};
use crate::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
};

/// Words remembered, one for each node and endpoint that it checks: some 300 bytes each, so 60 MB. Of more, nothing is
/// kept; an endpoint that nobody speaks of stays as it was decided last.
pub const WORDS_KEPT_MAX: usize = 200_000;

/// What a report says of its node's checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthNews {
    /// The Services of which something differs from before, each whole.
    pub services: BTreeMap<ServiceKey, Vec<CheckReport>>,
    /// Whether the node checks nothing of Services that are not named.
    pub is_complete: bool,
}

/// What a node says of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What it holds of it.
    pub state: CheckState,
    /// Since when.
    pub since: Timestamp,
    /// The result that led there, in words.
    pub message: String,
}

/// What one node says of the endpoints of one Service.
type Part = BTreeMap<CheckKey, Word>;

/// What all agents have said.
#[derive(Debug, Default)]
pub struct HealthBook {
    pages: BTreeMap<ServiceKey, BTreeMap<Name, Part>>,
    /// The Services that a node speaks of.
    nodes: BTreeMap<Name, BTreeSet<ServiceKey>>,
    words: usize,
    /// How often a word was not kept because [`WORDS_KEPT_MAX`] is reached.
    pub refused: u64,
}

impl HealthBook {
    /// Takes what a node's agent reports; gives the Services of which it holds something else than before.
    pub fn take(&mut self, node: &Name, news: HealthNews) -> BTreeSet<ServiceKey> {
        let HealthNews { mut services, is_complete } = news;
        if is_complete {
            for known in self.nodes.get(node).into_iter().flatten() {
                services.entry(known.clone()).or_default();
            }
        }
        let mut changed = BTreeSet::new();
        for (service, reports) in services {
            if self.put(node, &service, reports) {
                changed.insert(service);
            }
        }
        changed
    }

    /// Says whether a state differs from before.
    fn put(&mut self, node: &Name, service: &ServiceKey, reports: Vec<CheckReport>) -> bool {
        let before = self.remove(node, service);
        let mut part = Part::new();
        for CheckReport { address, port, state, since, message } in reports {
            if self.words + part.len() >= WORDS_KEPT_MAX {
                self.refused += 1;
                continue;
            }
            part.insert(CheckKey { address, port }, Word { state, since, message });
        }
        let states = |part: &Part| part.iter().map(|(key, word)| (*key, word.state)).collect::<Vec<_>>();
        let is_news = states(&before) != states(&part);
        if !part.is_empty() {
            self.words += part.len();
            self.nodes.entry(node.clone()).or_default().insert(service.clone());
            self.pages.entry(service.clone()).or_default().insert(node.clone(), part);
        }
        is_news
    }

    fn remove(&mut self, node: &Name, service: &ServiceKey) -> Part {
        let Some(page) = self.pages.get_mut(service) else { return Part::new() };
        let part = page.remove(node).unwrap_or_default();
        if page.is_empty() {
            self.pages.remove(service);
        }
        if let Some(services) = self.nodes.get_mut(node) {
            services.remove(service);
            if services.is_empty() {
                self.nodes.remove(node);
            }
        }
        self.words -= part.len();
        part
    }

    /// What a node says of an endpoint.
    #[must_use]
    pub fn word(&self, service: &ServiceKey, key: &CheckKey, node: &Name) -> Option<&Word> {
        self.pages.get(service)?.get(node)?.get(key)
    }

    /// The Services that a node speaks of.
    pub fn services_of(&self, node: &Name) -> impl Iterator<Item = &ServiceKey> {
        self.nodes.get(node).into_iter().flatten()
    }

    /// Forgets Nodes and Services that no longer exist.
    pub fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_service: impl Fn(&ServiceKey) -> bool) {
        let spoken = self.nodes.iter().flat_map(|(node, services)| services.iter().map(move |of| (node, of)));
        let gone: Vec<_> = spoken
            .filter(|(node, service)| !has_node(node) || !has_service(service))
            .map(|(node, service)| (node.clone(), service.clone()))
            .collect();
        for (node, service) in gone {
            self.remove(&node, &service);
        }
    }

    /// How many words are kept.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.words
    }
}
