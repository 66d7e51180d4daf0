//! `describe` sections of NetworkPolicies. Pure functions.

use model::kinds::{
    network_policy::{IpBlock, PolicyPeer, PolicyPort, PolicyType},
    service::TargetPort,
};

use crate::{
    terminal::table::Table,
    views::{
        columns::policy::{selector, types},
        typed::{NetworkPolicy, words},
    },
};

use super::Page;

pub(crate) fn policy(page: &mut Page, object: &NetworkPolicy) {
    let (spec, found) = (&object.spec, &object.status);
    page.section("Network policy");
    page.field("Selector", &selector(&spec.selector));
    page.field("Types", &types(spec));
    let without = match found.without_address {
        0 => String::new(),
        without => format!(", {without} of them without an address of their own"),
    };
    page.field("Selected", &format!("{} workloads{without}", found.selected));
    if spec.applies_to(PolicyType::Ingress) {
        let rules = spec.ingress.iter().map(|rule| (&*rule.from, &*rule.ports));
        direction(page, "Ingress", "FROM", &rules.collect::<Vec<_>>());
    }
    if spec.applies_to(PolicyType::Egress) {
        let rules = spec.egress.iter().map(|rule| (&*rule.to, &*rule.ports));
        direction(page, "Egress", "TO", &rules.collect::<Vec<_>>());
    }
}

/// Lists the rules of a direction with a line for each peer.
fn direction(page: &mut Page, title: &str, peers: &'static str, rules: &[(&[PolicyPeer], &[PolicyPort])]) {
    page.section(title);
    if rules.is_empty() {
        page.line("  <none: all connections are dropped>");
        return;
    }
    let mut table = Table::new(vec!["RULE", peers, "PORTS"]);
    for (index, (peers, ports)) in rules.iter().enumerate() {
        let ports = if ports.is_empty() { "<all>".to_owned() } else { list(ports.iter().map(port)) };
        let peers =
            if peers.is_empty() { vec!["<all>".to_owned()] } else { peers.iter().map(peer).collect() };
        for peer in peers {
            table.push(vec![index.to_string().into(), peer.into(), ports.clone().into()]);
        }
    }
    page.table(&table);
}

fn list(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

fn peer(peer: &PolicyPeer) -> String {
    let PolicyPeer { workload_selector, namespace_selector, ip_block } = peer;
    if let Some(IpBlock { cidr, except }) = ip_block {
        let except = if except.is_empty() { String::new() } else { format!(" except {}", words(except)) };
        return format!("{cidr}{except}");
    }
    let workloads = workload_selector.as_ref().map_or_else(|| "<all>".to_owned(), selector);
    let namespaces = namespace_selector.as_ref().map(|one| format!(" in namespaces {}", selector(one)));
    format!("workloads {workloads}{}", namespaces.unwrap_or_default())
}

fn port(port: &PolicyPort) -> String {
    let PolicyPort { protocol, port, end_port } = port;
    let protocol = protocol.as_str();
    match (port, end_port) {
        (None, _) => protocol.to_owned(),
        (Some(TargetPort::Name(name)), _) => format!("{name}/{protocol}"),
        (Some(TargetPort::Number(first)), None) => format!("{first}/{protocol}"),
        (Some(TargetPort::Number(first)), Some(last)) => format!("{first}-{last}/{protocol}"),
    }
}
