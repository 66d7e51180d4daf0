//! Translation of the name and address ranges of a pool, which all input formats share.

use ipnet::IpNet;
use model::{kinds::address_pool::AddressRange, primitives::name::Name};
use serde_json::Value;

use crate::json::scalar;
use crate::report::Report;

/// Returns the address ranges in `list` as ranges of the pool `name`. A network with host bits set is
/// replaced by the network that contains it. Changed and invalid ranges are reported.
pub(crate) fn ranges(list: &[Value], at: &str, name: &Name, report: &mut Report) -> Vec<String> {
    let mut ranges = Vec::new();
    for (number, entry) in list.iter().enumerate() {
        let (at, entry) = (format!("{at}[{number}]"), scalar(entry));
        match (entry.parse::<AddressRange>(), entry.trim().parse::<IpNet>()) {
            (Ok(range), _) => {
                // A range that Tidegate understands is kept unchanged.
                report.mapped(&at, &format!("{entry} in addresspool/{name}"));
                ranges.push(if entry.contains(['/', '-']) { entry } else { range.to_string() });
            }
            (Err(_), Ok(network)) => {
                let network = network.trunc();
                report.approximated(&at, &format!("{entry} becomes {network}, the network that contains it"));
                ranges.push(network.to_string());
            }
            (Err(error), Err(_)) => report.ignored(&at, &error),
        }
    }
    ranges
}

/// Returns the valid object name closest to `text`, or `None` if there is none. Reports a changed or invalid
/// name.
pub(crate) fn name(text: &str, at: &str, report: &mut Report) -> Option<Name> {
    if let Ok(name) = Name::parse(text) {
        return Some(name);
    }
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let near: String = text.chars().map(allowed).collect();
    match Name::parse(near.trim_matches(|c| c == '-' || c == '.')) {
        Ok(name) => {
            report.approximated(at, &format!("`{text}` becomes {name}"));
            Some(name)
        }
        Err(error) => {
            report.ignored(at, &format!("left out: its name {error}"));
            None
        }
    }
}
