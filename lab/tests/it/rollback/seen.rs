//! Observed state of a cluster for comparison: kernel listings, relay configurations, announcements and
//! routes, as lines by location.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    thread,
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::deployment::Cluster,
    host::listings::{self, sorted},
    processes::routers::{Frr, learned},
};
use serde_json::{Value, json};

use super::stage::APPLY_SET;

/// Observed lines by location, such as `node1 nft …`, `node1 announced` or `router routes`.
pub(crate) type Seen = BTreeMap<String, Vec<String>>;

pub(crate) fn of(cluster: &Cluster, router: Option<&Frr>) -> Result<Seen> {
    let mut seen = Seen::new();
    thread::scope(|scope| {
        let nodes: Vec<_> =
            cluster.agents.keys().map(|node| (node, scope.spawn(move || of_node(cluster, node)))).collect();
        for (node, looked) in nodes {
            let listing = looked.join().expect("looking does not panic")?;
            seen.extend(listing.into_iter().map(|(place, lines)| (format!("{node} {place}"), lines)));
        }
        anyhow::Ok(())
    })?;
    if let Some(router) = router {
        relays(cluster, &mut seen)?;
        let routes = learned(&router.namespace)?;
        seen.insert("router routes".to_owned(), sorted(routes.iter().map(route)));
    }
    let records = cluster.api.get_json("/v1/addresses")?;
    let records = records["items"].as_array().cloned().unwrap_or_default();
    seen.insert("records".to_owned(), sorted(records.iter().map(record)));
    Ok(seen)
}

/// Returns the lines of all listings of one node.
pub(crate) fn lines_of<'a>(seen: &'a Seen, node: &'a str) -> impl Iterator<Item = &'a str> {
    let of_node = seen.iter().filter(move |(place, _)| place.split(' ').next() == Some(node));
    of_node.flat_map(|(_, lines)| lines).map(String::as_str)
}

/// Returns the lines that `later` contains and `earlier` does not, at all locations whose name starts with
/// `place`.
pub(crate) fn lines_beyond(earlier: &Seen, later: &Seen, place: &str) -> Vec<String> {
    let none = Vec::new();
    let mut beyond = Vec::new();
    for (place, lines) in later.iter().filter(|(name, _)| name.starts_with(place)) {
        let mut known = earlier.get(place).unwrap_or(&none).clone();
        for line in lines {
            match known.iter().position(|other| other == line) {
                Some(index) => drop(known.swap_remove(index)),
                None => beyond.push(line.clone()),
            }
        }
    }
    sorted(beyond)
}

/// Returns the locations whose listings differ between two observations.
pub(crate) fn places_that_differ<'a>(before: &'a Seen, after: &'a Seen) -> BTreeSet<&'a String> {
    let places = before.keys().chain(after.keys());
    places.filter(|place| before.get(*place) != after.get(*place)).collect()
}

/// Formats the differences between two observations, by location.
pub(crate) fn difference(before: &Seen, after: &Seen) -> String {
    let mut text = String::new();
    let none = Vec::new();
    for place in places_that_differ(before, after) {
        let (was, is) = (before.get(place).unwrap_or(&none), after.get(place).unwrap_or(&none));
        writeln!(text, "\n{place}").expect("a String takes everything");
        for (sign, these, those) in [('-', was, is), ('+', is, was)] {
            for line in these.iter().filter(|line| !those.contains(line)) {
                writeln!(text, "  {sign} {line}").expect("a String takes everything");
            }
        }
    }
    text
}

fn of_node(cluster: &Cluster, node: &str) -> Result<listings::Listing> {
    let place = cluster.place(node)?;
    let is_ipvs = lab::host::guest::is_inside();
    let mut listing = if is_ipvs { listings::of_ipvs(place)? } else { listings::of(place)? };
    let agent = cluster.agent(node)?;
    let announced = agent.get_json("/v1/announcements")?;
    let announced = announced.as_object().context("a map of addresses")?;
    let word =
        |(address, part): (&String, &Value)| format!("{address} {} {}", part["role"], part["interfaces"]);
    listing.insert("announced".to_owned(), sorted(announced.iter().map(word)));
    let routes = agent.get_json("/v1/routes")?;
    let told = |(prefix, route): (&String, &Value)| {
        let peers = route["peers"].as_object().into_iter().flatten();
        let peers: Vec<_> = peers.map(|(peer, told)| format!("{peer} {}", told["text"])).collect();
        format!("{prefix} {} {} {}", route["addresses"], peers.join(" "), route["withheld"])
    };
    let routes = routes.as_object().context("a map of prefixes")?;
    listing.insert("routes told".to_owned(), sorted(routes.iter().map(told)));
    let checks = agent.get_json("/v1/health-checks")?;
    let checks = checks.as_object().context("a map of Services")?;
    listing.insert("checks".to_owned(), sorted(checks.keys().cloned()));
    Ok(listing)
}

/// Adds the configuration of the relays to the observed state. Relays have no listing tool, so the
/// configuration is taken from a plan that removes all Services.
fn relays(cluster: &Cluster, seen: &mut Seen) -> Result<()> {
    let path = format!("/v1/plan?applySet={APPLY_SET}&prune=true&pruneLimit=5000");
    let kept = json!({"apiVersion": "tidegate/v1", "kind": "AddressPool", "metadata": {"name": "spare"}, "spec": {"addresses": ["192.0.2.0/30"]}});
    let plan = cluster.api.send_json("POST", &path, &json!([kept]))?.success()?.json();
    for (node, plan) in plan["nodes"].as_object().into_iter().flatten() {
        ensure!(plan["error"].is_null(), "{node}: {plan:#}");
        for change in plan["preview"]["kernel"].as_array().into_iter().flatten() {
            let (place, line) = (change["place"].as_str(), change["line"].as_str());
            let (place, line) = (place.context("a place")?, line.context("a line")?);
            if change["change"] == "removed" && place.contains("relay") {
                seen.entry(format!("{node} {place}")).or_default().push(line.to_owned());
            }
        }
    }
    Ok(())
}

fn route(route: &Value) -> String {
    let hops = route["nexthops"].as_array().cloned().unwrap_or_else(|| vec![route.clone()]);
    let hops = sorted(hops.iter().map(|hop| format!("{}{}", hop["gateway"], hop["via"]["host"])));
    format!("{} over {}", route["dst"], hops.join(" "))
}

/// Formats the record of an address: the Services that hold it, and the candidate nodes in order. The epoch is
/// omitted, because it only increases.
fn record(record: &Value) -> String {
    let spec = &record["spec"];
    let order = &spec["announcement"];
    let nodes = order["candidates"].as_array().into_iter().flatten().map(|one| one["node"].to_string());
    let nodes: Vec<_> = nodes.collect();
    format!("{} {} {} {}", spec["address"], spec["services"], nodes.join(" "), order["advertisements"])
}
