//! A `vrrp_instance`: the addresses that it moves become a pool, and one node answers for each of them.

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

/// Puts pools and advertisements of an instance into the draft, and tells which pool has which address.
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
                                .ignored(&place(entry), "another instance, or this one, has it already");
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
                format!("only the first {POOL_RANGES_MAX} of its addresses: a pool has no more ranges");
            draft.report.ignored("virtual_ipaddress", &said);
            addresses.truncate(POOL_RANGES_MAX);
        }
        let named = if interface == own { String::new() } else { format!("-{interface}") };
        let name = format!("vrrp-{}{named}", item.argument());
        let Some(name) = pool::name(&name, "name", &mut draft.report) else { continue };
        if draft.pools.contains_key(&name) {
            draft.report.ignored("name", &format!("a second addresspool/{name}; it is left out"));
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
            "advertisement/{name}: one node with the interface answers for each address, which one the agents agree on; \
             nodeSelectors may say which nodes may"
        ),
    );
    draft.announced.insert(name.clone());
    draft.advertisements.insert(name.clone(), spec);
}

/// An entry of `virtual_ipaddress`: the interface that it is on, and the address.
fn address(draft: &mut Draft, entry: &Item, own: &str) -> Result<(String, IpAddr), String> {
    let text = entry.keyword();
    let parsed = text.parse::<IpNet>().map(|net| (net.addr(), net.prefix_len()));
    let (address, length) = match parsed {
        Ok((address, length)) => (address, Some(length)),
        Err(_) => (text.parse().map_err(|_| format!("`{text}` is no address in numbers"))?, None),
    };
    let mut interface = own.to_owned();
    let mut words = entry.arguments().iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("dev", Some(device)) => interface.clone_from(device),
            ("brd" | "scope" | "label" | "peer", Some(value)) => draft.report.ignored(
                &format!("{word} {value} (line {})", entry.line),
                "the address is on no interface; agents answer for it",
            ),
            (other, _) => draft
                .report
                .ignored(&format!("{other} (line {})", entry.line), "nothing here has this setting"),
        }
    }
    if interface.is_empty() {
        return Err("nothing says on which interface it is".to_owned());
    }
    draft.report.mapped(&place(entry), "in the pool");
    if length.is_some_and(|length| length != IpFamily::of(address).bits()) {
        let said = "the network is that of the interface; only the address itself is answered for";
        draft.report.note(&place(entry), said);
    }
    Ok((interface, address))
}
