//! Columns of DNS zones. Pure functions.

use model::primitives::quantity::Timestamp;

use crate::{
    terminal::table::Cell,
    views::columns::{addresses::status, age_cell},
    views::typed::{DnsZone, words},
};

/// Column headings of DNS zones: those of the narrow table, and the additional ones of `-o wide`.
pub(crate) const ZONE: (&[&str], &[&str]) =
    (&["NAME", "ZONE", "RECORDS", "HOSTNAMES", "STATUS", "AGE"], &["TTL", "NEGATIVE-TTL", "NAMESPACES"]);

pub(crate) fn zone(object: &DnsZone, wide: bool, now: Timestamp) -> Vec<Cell> {
    let spec = &object.spec;
    let mut row: Vec<Cell> = vec![
        spec.zone.as_str().into(),
        spec.records.len().to_string().into(),
        object.status.hostnames.len().to_string().into(),
        status(false, &object.conditions),
        age_cell(object.metadata.as_ref(), now),
    ];
    if wide {
        let namespaces = words(&spec.allowed_namespaces);
        row.push(format!("{}s", spec.ttl).into());
        row.push(format!("{}s", spec.negative_ttl).into());
        row.push(if namespaces.is_empty() { "<none>".to_owned() } else { namespaces }.into());
    }
    row
}
