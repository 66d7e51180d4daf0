//! Translation of a `vrrp_instance` block of keepalived: its addresses become a pool, and one node announces
//! each of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{
    kinds::{address_pool::POOL_RANGES_MAX, advertisement::InterfaceName, metadata::Labels},
    primitives::{name::Name, net::IpFamily},
};
use serde_json::{Map, json};

use super::{parse::Item, server::place};
use crate::{draft::Draft, pool, virtual_server::pool_spec};

/// Translates a `vrrp_instance` block: adds a pool and an advertisement to the draft for each interface with
/// addresses. Returns the pool of each address.
pub(super) fn instance(draft: &mut Draft, item: &Item) -> BTreeMap<IpAddr, Name> {
    let mut moved = BTreeMap::new();
    let own = item.children.iter().find(|setting| setting.keyword() == "interface");
    let own = own.map(|setting| setting.argument().to_owned()).unwrap_or_default();
    let mut by_interface: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for setting in &item.children {
        match setting.keyword() {
            "interface" => draft.report.mapped(&place(setting), "interfaces of the Advertisement"),
            "virtual_ipaddress" | "virtual_ipaddress_excluded" => {
                for entry in &setting.children {
                    match address(draft, entry, &own) {
                        Ok((_, address)) if draft.homes.contains_key(&address) => {
                            draft
                                .report
                                .ignored(&place(entry), "already an address of this or another instance");
                        }
                        Ok((interface, address)) => {
                            by_interface.entry(interface).or_default().push(address);
                        }
                        Err(reason) => draft.report.ignored(&place(entry), &reason),
                    }
                }
            }
            _ => super::rest(setting, "", &mut draft.report),
        }
    }
    for (interface, mut addresses) in by_interface {
        addresses.sort();
        addresses.dedup();
        if addresses.len() > POOL_RANGES_MAX {
            let said =
                format!("only the first {POOL_RANGES_MAX} addresses, the maximum number of ranges of a pool");
            draft.report.ignored("virtual_ipaddress", &said);
            addresses.truncate(POOL_RANGES_MAX);
        }
        let named = if interface == own { String::new() } else { format!("-{interface}") };
        let name = format!("vrrp-{}{named}", item.argument());
        let Some(name) = pool::name(&name, "name", &mut draft.report) else { continue };
        if draft.pools.contains_key(&name) {
            draft.report.ignored("name", &format!("duplicate addresspool/{name}; it is left out"));
            continue;
        }
        announce(draft, &name, &interface, &addresses);
        moved.extend(addresses.into_iter().map(|address| (address, name.clone())));
    }
    draft.homes.extend(moved.clone());
    moved
}

fn announce(draft: &mut Draft, name: &Name, interface: &str, addresses: &[IpAddr]) {
    draft.pools.insert(name.clone(), (Labels::default(), pool_spec(addresses)));
    let mut spec =
        Map::from_iter([("type".to_owned(), json!("L2")), ("addressPools".to_owned(), json!([name]))]);
    match InterfaceName::try_from(interface.to_owned()) {
        Ok(interface) => drop(spec.insert("interfaces".to_owned(), json!(BTreeSet::from([interface])))),
        Err(error) => draft.report.ignored(&format!("interface {interface}"), &error),
    }
    draft.report.approximated(
        "virtual_ipaddress",
        &format!(
            "advertisement/{name}: one node with the interface announces each address, chosen by the \
             agents; restrict the nodes with nodeSelectors"
        ),
    );
    draft.announced.insert(name.clone());
    draft.advertisements.insert(name.clone(), spec);
}

/// Parses an entry of `virtual_ipaddress` into its interface and address.
fn address(draft: &mut Draft, entry: &Item, own: &str) -> Result<(String, IpAddr), String> {
    let text = entry.keyword();
    let parsed = text.parse::<IpNet>().map(|net| (net.addr(), net.prefix_len()));
    let (address, length) = match parsed {
        Ok((address, length)) => (address, Some(length)),
        Err(_) => (text.parse().map_err(|_| format!("`{text}` is not a numeric address"))?, None),
    };
    let mut interface = own.to_owned();
    let mut words = entry.arguments().iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("dev", Some(device)) => interface.clone_from(device),
            ("brd" | "scope" | "label" | "peer", Some(value)) => draft.report.ignored(
                &format!("{word} {value} (line {})", entry.line),
                "the address is not configured on an interface; agents answer for it",
            ),
            (other, _) => draft.report.ignored(&format!("{other} (line {})", entry.line), "not supported"),
        }
    }
    if interface.is_empty() {
        return Err("no interface is given".to_owned());
    }
    draft.report.mapped(&place(entry), "in the pool");
    if length.is_some_and(|length| length != IpFamily::of(address).bits()) {
        let said = "the network is that of the interface; only the address itself is announced";
        draft.report.note(&place(entry), said);
    }
    Ok((interface, address))
}
