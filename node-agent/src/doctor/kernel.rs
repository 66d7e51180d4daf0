//! Reads nf_tables chains, policy routing rules and interfaces from the kernel, for `judge` to evaluate.
//! Changes nothing.

use std::{collections::BTreeMap, io};

use kernel::{
    netlink::{
        route,
        socket::{Netlink, Protocol},
        uapi::{NLM_F_DUMP, NLM_F_REQUEST},
        wire::{Attributes, Message, netfilter_header},
    },
    nftables::uapi,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, link::LinkMessage, rule::RuleMessage};

use super::{
    chains::{Chain, Family, RULES_MAX, Rule, TableLocation},
    parse::{self, Link, RoutingRule},
};

/// Reads all nf_tables chains with their rules, reduced to the aspects that `tidegate-agent doctor` checks.
///
/// # Errors
/// Returns an I/O error if access is denied, or the ruleset changes during every attempt.
pub(super) fn chains() -> io::Result<Vec<Chain>> {
    let mut netlink = Netlink::open(Protocol::Netfilter)?;
    let of_all_families = |kind| Message {
        kind,
        flags: NLM_F_REQUEST | NLM_F_DUMP,
        header: netfilter_header(0, 0),
        attributes: Attributes::default(),
    };
    let mut chains =
        netlink.dump(&of_all_families(uapi::NFT_MSG_GETCHAIN), Vec::new, |chains, message| {
            chains.extend(parse::chain(message)?);
            Ok(())
        })?;
    let numbers: BTreeMap<_, _> = chains
        .iter()
        .enumerate()
        .map(|(index, chain): (_, &Chain)| ((chain.place.clone(), chain.name.clone()), index))
        .collect();
    let index = |place: &TableLocation, chain: &str| numbers.get(&(place.clone(), chain.to_owned())).copied();
    let begin = || (0_usize, BTreeMap::<usize, (usize, Vec<Rule>)>::new());
    let (_, rules) =
        netlink.dump(&of_all_families(uapi::NFT_MSG_GETRULE), begin, |(seen, rules), message| {
            *seen += 1;
            if *seen > RULES_MAX {
                return Ok(());
            }
            let counted = |place: &TableLocation, chain: &str| {
                index(place, chain).map_or(0, |index| {
                    let (total, _) = rules.entry(index).or_default();
                    *total += 1;
                    *total
                })
            };
            if let Some((place, chain, rule)) = parse::rule(message, counted)?
                && rule.matters()
                && let Some(index) = index(&place, &chain)
            {
                rules.entry(index).or_default().1.push(rule);
            }
            Ok(())
        })?;
    for (index, (total, matter)) in rules {
        if let Some(chain) = chains.get_mut(index) {
            (chain.rules_total, chain.rules) = (total, matter);
        }
    }
    Ok(chains)
}

/// Reads the policy routing rules that match a packet mark.
///
/// # Errors
/// Returns an I/O error if access is denied.
pub(super) fn routing_rules() -> io::Result<Vec<RoutingRule>> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let mut found = Vec::new();
    for (family, number) in [(Family::Ip, AddressFamily::Inet), (Family::Ip6, AddressFamily::Inet6)] {
        let mut request = RuleMessage::default();
        request.header.family = number;
        let request = route::request(&RouteNetlinkMessage::GetRule(request), NLM_F_DUMP);
        found.extend(netlink.dump(&request, Vec::new, |rules, answer| {
            rules.extend(parse::routing_rule(family, &route::parse(answer)?));
            Ok(())
        })?);
    }
    Ok(found)
}

/// Reads the interfaces with their MTU and kind.
///
/// # Errors
///
/// Returns an I/O error if access is denied.
pub(super) fn links() -> io::Result<Vec<Link>> {
    let request = route::request(&RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
    Netlink::open(Protocol::Route)?.dump(&request, Vec::new, |links, answer| {
        links.extend(parse::link(route::parse(answer)?));
        Ok(())
    })
}
