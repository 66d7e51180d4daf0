//! What each layout loads, and what each of its changes says.

use std::net::Ipv4Addr;

use super::{
    Layout,
    listing::Listing,
    peer,
    served::{self, ADDED, Served},
};
use crate::fixture_cluster::Estate;
use anyhow::{Result, ensure};

/// The name of our table, with its family.
const TABLE: &str = "inet tidegate";
const NODE: &str = "node1";

/// A ruleset, and changes that follow one another and end where they began.
#[derive(Debug)]
pub(super) struct Ruleset {
    pub(super) layout: Layout,
    pub(super) whole: String,
    /// A Service comes, one of its endpoints becomes another one, it goes.
    pub(super) steps: [Step; 3],
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) text: String,
    /// What removes chains that the transaction has left empty; none of what is measured.
    pub(super) sweep: String,
}

impl Ruleset {
    /// The name of its table, with its family.
    pub(super) fn table(&self) -> String {
        match self.layout {
            Layout::Tidegate => TABLE.to_owned(),
            Layout::ServiceChains | Layout::EndpointChains => format!("ip {}", peer::TABLE),
        }
    }
}

/// What the node of an estate has for its Services, and what the estate's agent makes of changes.
pub(super) fn ours(estate: &Estate) -> Result<(Ruleset, Changing)> {
    let [before, after] = served::added_endpoints(estate.size().endpoints);
    // The first of its kind leaves chains and their numbers to the next.
    come(estate, &before)?;
    go(estate)?;
    let whole = saved(estate)?;
    come(estate, &before)?;
    let added = saved(estate)?;
    let std::net::IpAddr::V4(address) = estate.cluster.cluster_ip(&format!("default/{ADDED}"), 0)? else {
        anyhow::bail!("the first address of a Service of the estate is of IPv4");
    };
    come(estate, &after)?;
    let changed = saved(estate)?;
    go(estate)?;
    let listings = [&whole, &added, &changed, &saved(estate)?].map(|text| Listing::parse(text));
    let [whole_listing, added, changed, removed] = listings;
    let (whole_listing, added, changed, removed) = (whole_listing?, added?, changed?, removed?);
    let left = whole_listing.changed_into(&removed, TABLE)?;
    ensure!(left.is_empty(), "a Service that is gone leaves nothing behind: {left}");
    let step = |before: &Listing, after: &Listing| {
        let text = before.changed_into(after, TABLE)?;
        ensure!(!text.is_empty(), "a change changes something");
        Ok(Step { text, sweep: String::new() })
    };
    let steps = [step(&whole_listing, &added)?, step(&added, &changed)?, step(&changed, &whole_listing)?];
    let served = |endpoints| Served { name: format!("default/{ADDED}"), address, endpoints };
    let changing = Changing { before: served(before), after: served(after) };
    Ok((Ruleset { layout: Layout::Tidegate, whole, steps }, changing))
}

/// The Service comes, or has other endpoints.
fn come(estate: &Estate, endpoints: &[Ipv4Addr]) -> Result<()> {
    estate.cluster.apply_objects(&served::added_objects(endpoints))?;
    estate.wait_converged()
}

/// The Service goes.
fn go(estate: &Estate) -> Result<()> {
    for kind in ["endpointsets", "services"] {
        let path = format!("/v1/namespaces/default/{kind}/{ADDED}");
        estate.cluster.api.send("DELETE", &path, &[], String::new())?.success()?;
    }
    estate.wait_converged()
}

/// The Service that comes, before and after its change.
#[derive(Debug)]
pub(super) struct Changing {
    pub(super) before: Served,
    pub(super) after: Served,
}

/// The same Services and the same changes in another layout.
pub(super) fn peer(layout: Layout, services: &[Served], changing: &Changing) -> Ruleset {
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

/// What the node's agent has put into the kernel, as text. An element does not have its counter spelled out, as the agent does not
/// do either: it gets the one that its map says.
fn saved(estate: &Estate) -> Result<String> {
    let words: Vec<_> = ["list", "table"].into_iter().chain(TABLE.split(' ')).collect();
    Ok(estate.cluster.place(NODE)?.run("nft", &words)?.replace(" counter packets 0 bytes 0", ""))
}
