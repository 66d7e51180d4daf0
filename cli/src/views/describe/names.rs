//! `describe` section of DNS zones. Pure functions.

use crate::{
    terminal::table::Table,
    views::typed::{DnsZone, words},
};

use super::Page;

/// Maximum number of records in a description; `get dnszone NAME -o yaml` has all.
const RECORDS_SHOWN: usize = 100;

pub(crate) fn zone(page: &mut Page, object: &DnsZone) {
    let spec = &object.spec;
    page.section("DNS zone");
    page.field("Zone", spec.zone.as_str());
    page.field("Name server", &spec.name_server());
    page.field("Cached for", &format!("{} s; absence for {} s", spec.ttl, spec.negative_ttl));
    page.field("Namespaces", &words(&spec.allowed_namespaces));
    let clients = if spec.visibility.is_external() { "all" } else { "those of the cluster" };
    page.field("Clients", clients);
    if let Some(transfer) = &spec.transfer {
        page.field("Transfer to", &words(&transfer.allow));
        let signed =
            transfer.notify_key.as_ref().map(|key| format!(", signed with {key}")).unwrap_or_default();
        page.field("Notified", &format!("{}{signed}", words(&transfer.notify)));
    }
    for key in &spec.keys {
        page.field("Key", &format!("{}: {}; its secret is never shown", key.name, words(&key.operations)));
    }
    page.section(&format!("Records ({})", spec.records.len()));
    let mut table = Table::new(vec!["NAME", "TTL", "TYPE", "VALUES"]);
    for record in spec.records.iter().take(RECORDS_SHOWN) {
        let ttl = record.ttl.unwrap_or(spec.ttl).to_string();
        let (name, kind) = (record.name.as_str(), record.record_type.to_string());
        table.push(vec![name.into(), ttl.into(), kind.into(), record.values.join(", ").into()]);
    }
    page.table(&table);
    for (title, names) in
        [("Host names", &object.status.hostnames), ("Refused host names", &object.status.refused)]
    {
        if !names.is_empty() {
            page.section(title);
            let mut table = Table::new(vec!["NAME", "OBJECT"]);
            for (name, object) in names {
                table.push(vec![name.as_str().into(), object.as_str().into()]);
            }
            page.table(&table);
        }
    }
}
