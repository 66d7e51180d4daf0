//! Addresses and ports of keepalived's `virtual_server` blocks, which are given in the block itself or in a
//! `virtual_server_group`.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use model::primitives::net::{IpFamily, from_number, to_number};

use super::{SERVERS_MAX, parse::Item};
use crate::report::Report;

/// Maximum number of addresses in a range of a group.
const RANGE_MAX: u128 = 1024;

/// Address and port of a virtual server; `None` means all ports.
pub(super) type Place = (IpAddr, Option<u16>);

const MARK: &str = "Services cannot match firewall marks; replace it by virtual servers with the \
                    addresses and ports that the mark's rules match";

/// Addresses and ports of each `virtual_server_group` by its name, or the reason why the group is invalid.
pub(super) type Groups<'a> = BTreeMap<&'a str, Result<Vec<Place>, String>>;

/// Returns the addresses and ports that a `virtual_server_group` block lists.
///
/// # Errors
/// Returns an error if the block lists no or too many addresses.
pub(super) fn group(item: &Item, report: &mut Report) -> Result<Vec<Place>, String> {
    let mut places = Vec::new();
    for entry in &item.children {
        let at = format!("{} (line {})", entry.text(), entry.line);
        match entry_places(entry) {
            Ok(found) => {
                report.mapped(&at, "a Service for each address and port");
                places.extend(found);
            }
            Err(reason) => report.ignored(&at, &reason),
        }
        if places.len() > SERVERS_MAX {
            return Err(format!("the group has more than {SERVERS_MAX} addresses"));
        }
    }
    if places.is_empty() { Err("the group has no address".to_owned()) } else { Ok(places) }
}

/// Returns the addresses and ports of a `virtual_server` block: its own, or those of the group that it names.
///
/// # Errors
/// Returns an error if the block has a firewall mark, or its group does not exist.
pub(super) fn places<'a>(item: &Item, groups: &'a Groups<'_>) -> Result<Cow<'a, [Place]>, String> {
    match item.arguments() {
        [word, ..] if word == "fwmark" => Err(MARK.to_owned()),
        [word, name, ..] if word == "group" => match groups.get(name.as_str()) {
            Some(Ok(places)) => Ok(Cow::Borrowed(places)),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(format!("there is no virtual_server_group {name}")),
        },
        [address, rest @ ..] => {
            let port = rest.first().map(String::as_str);
            Ok(Cow::Owned(vec![(parse_address(address)?, parse_port(port)?)]))
        }
        [] => Err("it has no address".to_owned()),
    }
}

fn entry_places(entry: &Item) -> Result<Vec<Place>, String> {
    if entry.keyword() == "fwmark" {
        return Err(MARK.to_owned());
    }
    let port = parse_port(entry.arguments().first().map(String::as_str))?;
    let Some((first, last)) = entry.keyword().split_once('-') else {
        return Ok(vec![(parse_address(entry.keyword())?, port)]);
    };
    let first = parse_address(first)?;
    let (family, from) = (IpFamily::of(first), to_number(first));
    // The end contains only the last part of the address: 192.0.2.1-10, 2001:db8::1-f.
    let (radix, bits) = match family {
        IpFamily::V4 => (10, 8),
        IpFamily::V6 => (16, 16),
    };
    let wrong = || format!("`{}` is not a range such as 192.0.2.1-10", entry.keyword());
    let end = u128::from_str_radix(last, radix).map_err(|_| wrong())?;
    if end >> bits != 0 {
        return Err(wrong());
    }
    let to = (from >> bits << bits) | end;
    if to < from || to - from >= RANGE_MAX {
        return Err(format!(
            "`{}` must end after its start and contain at most {RANGE_MAX} addresses",
            entry.keyword()
        ));
    }
    Ok((from..=to).filter_map(|number| Some((from_number(family, number)?, port))).collect())
}

/// Parses an address in keepalived's format.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not a numeric address"))
}

/// Parses a port; empty and 0 mean all ports.
pub(super) fn parse_port(text: Option<&str>) -> Result<Option<u16>, String> {
    let Some(text) = text else { return Ok(None) };
    let port: u16 = text.parse().map_err(|_| format!("`{text}` is not a numeric port"))?;
    Ok(Some(port).filter(|port| *port != 0))
}
