//! What reports bring that decisions depend on, gathered until the task has time for it.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
    wire::report::Report,
};
use tokio::sync::Notify;

use crate::state::node_reports::{Earlier, LEASE_SECS};

/// What has happened, by what it is about.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Nodes that came back, or are in other networks.
    pub(crate) nodes: BTreeSet<Name>,
    /// Nodes that have verified more.
    pub(crate) verified: BTreeSet<Name>,
    /// Services that failed somewhere, or no longer fail.
    pub(crate) services: BTreeSet<ServiceKey>,
    /// Addresses of which agents said something new.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// Where news is left, and who waits for it is woken.
#[derive(Debug, Default)]
pub(crate) struct Newsroom {
    news: Mutex<News>,
    bell: Notify,
}

impl Newsroom {
    /// Leaves what a report brings. `addresses` are those of which the agent says something new.
    pub(crate) fn report(
        &self,
        node: &Name,
        earlier: &Earlier,
        report: &Report,
        addresses: BTreeSet<IpAddr>,
        now: Timestamp,
    ) {
        let is_over = |at: Timestamp| now.unix_seconds() - at.unix_seconds() > LEASE_SECS;
        let before = earlier.report.as_deref().filter(|_| !earlier.last_report.is_some_and(is_over));
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let mut anything = !addresses.is_empty();
        news.addresses.extend(addresses);
        match before {
            None => anything |= news.nodes.insert(node.clone()),
            Some(before) => {
                if is_other_network(before, report) {
                    anything |= news.nodes.insert(node.clone());
                }
                if before.verified != report.verified {
                    anything |= news.verified.insert(node.clone());
                }
                let failing = |report: &Report| {
                    let failures = report.failures.iter();
                    failures.map(|(key, failure)| (key.clone(), failure.revision)).collect::<BTreeSet<_>>()
                };
                for (service, _) in failing(before).symmetric_difference(&failing(report)) {
                    anything |= news.services.insert(service.clone());
                }
            }
        }
        drop(news);
        if anything {
            self.bell.notify_one();
        }
    }

    /// Waits until there is news.
    pub(crate) async fn wait(&self) {
        self.bell.notified().await;
    }

    /// Takes the news.
    pub(crate) fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a report tells something that decisions depend on, beside what it says of announcements.
pub(crate) fn is_other_network(before: &Report, after: &Report) -> bool {
    (&before.facts.subnets, &before.facts.addresses) != (&after.facts.subnets, &after.facts.addresses)
}
