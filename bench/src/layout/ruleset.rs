//! Full ruleset and change transactions of each layout.

use std::net::Ipv4Addr;

use super::{
    Layout,
    listing::Listing,
    peer,
    served::{self, ADDED, BenchService},
};
use crate::fixture_cluster::Estate;
use anyhow::{Result, ensure};

/// Family and name of Tidegate's table.
const TABLE: &str = "inet tidegate";
const NODE: &str = "node1";

/// Full ruleset of a layout, with a sequence of changes after which the ruleset is the same as before.
#[derive(Debug)]
pub(super) struct Ruleset {
    pub(super) layout: Layout,
    pub(super) whole: String,
    /// Changes in order: addition of a Service, replacement of one of its endpoints, and removal of the Service.
    pub(super) steps: [Step; 3],
}

/// Change of a ruleset that `nft` loads as one transaction.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) text: String,
    /// Commands that delete the chains left empty by the transaction; not part of the measurement.
    pub(super) sweep: String,
}

impl Ruleset {
    /// Returns the family and the name of the ruleset's table.
    pub(super) fn table(&self) -> String {
        match self.layout {
            Layout::Tidegate => TABLE.to_owned(),
            Layout::ServiceChains | Layout::EndpointChains => format!("ip {}", peer::TABLE),
        }
    }
}

/// Returns the ruleset that Tidegate's agent programs on the node of a fixture cluster, and the changes that it
/// makes when a Service is added, changed and removed. Also returns that Service.
pub(super) fn ours(estate: &Estate) -> Result<(Ruleset, Changing)> {
    let [before, after] = served::added_endpoints(estate.size().endpoints);
    // The first Service of its kind leaves chains and numbers that the next one reuses.
    come(estate, &before)?;
    go(estate)?;
    let whole = saved(estate)?;
    come(estate, &before)?;
    let added = saved(estate)?;
    let std::net::IpAddr::V4(address) = estate.cluster.cluster_ip(&format!("default/{ADDED}"), 0)? else {
        anyhow::bail!("the primary address of a Service in the fixture cluster is not IPv4");
    };
    come(estate, &after)?;
    let changed = saved(estate)?;
    go(estate)?;
    let listings = [&whole, &added, &changed, &saved(estate)?].map(|text| Listing::parse(text));
    let [whole_listing, added, changed, removed] = listings;
    let (whole_listing, added, changed, removed) = (whole_listing?, added?, changed?, removed?);
    let left = whole_listing.changed_into(&removed, TABLE)?;
    ensure!(left.is_empty(), "a removed Service left elements behind: {left}");
    let step = |before: &Listing, after: &Listing| {
        let text = before.changed_into(after, TABLE)?;
        ensure!(!text.is_empty(), "a change had no effect on the ruleset");
        Ok(Step { text, sweep: String::new() })
    };
    let steps = [step(&whole_listing, &added)?, step(&added, &changed)?, step(&changed, &whole_listing)?];
    let served = |endpoints| BenchService { name: format!("default/{ADDED}"), address, endpoints };
    let changing = Changing { before: served(before), after: served(after) };
    Ok((Ruleset { layout: Layout::Tidegate, whole, steps }, changing))
}

/// Creates the Service that the measured changes add to a ruleset, or replaces its endpoints if it exists.
fn come(estate: &Estate, endpoints: &[Ipv4Addr]) -> Result<()> {
    estate.cluster.apply_objects(&served::added_objects(endpoints))?;
    estate.wait_converged()
}

/// Deletes the Service that the measured changes add to a ruleset.
fn go(estate: &Estate) -> Result<()> {
    for kind in ["endpointsets", "services"] {
        let path = format!("/v1/namespaces/default/{kind}/{ADDED}");
        estate.cluster.api.send("DELETE", &path, &[], String::new())?.success()?;
    }
    estate.wait_converged()
}

/// Service that the measured changes add to a ruleset, before and after the replacement of its last endpoint.
#[derive(Debug)]
pub(super) struct Changing {
    pub(super) before: BenchService,
    pub(super) after: BenchService,
}

/// Returns the ruleset of a layout other than Tidegate's for `services`, with the steps that add, modify and
/// remove the Service in `changing`.
pub(super) fn peer(layout: Layout, services: &[BenchService], changing: &Changing) -> Ruleset {
    let Changing { before, after } = changing;
    let steps = [
        Step { text: peer::added(layout, before), sweep: String::new() },
        Step {
            text: peer::changed(layout, before, after),
            sweep: peer::swept_after_change(layout, before, after),
        },
        Step { text: peer::removed(layout, after), sweep: peer::swept_after_removal(layout, after) },
    ];
    Ruleset { layout, whole: peer::whole(layout, services), steps }
}

/// Returns the `nft` listing of the table that the agent programmed on the node. Element counters are removed
/// from the text: when it is loaded, the kernel creates the counters that the map declares, as it does for
/// the agent.
fn saved(estate: &Estate) -> Result<String> {
    let words: Vec<_> = ["list", "table"].into_iter().chain(TABLE.split(' ')).collect();
    Ok(estate.cluster.place(NODE)?.run("nft", &words)?.replace(" counter packets 0 bytes 0", ""))
}
