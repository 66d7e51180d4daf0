//! Endpoints of ExternalDNS: a name with its values of one type. Does no I/O.

use std::collections::BTreeMap;

use model::{
    discovery::dns::{Record, RecordChange, ZoneUpdate},
    kinds::dns_zone::{DnsRecordType, DnsRecordValue, DnsZoneSpec},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name with its values of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExternalEndpoint {
    dns_name: String,
    #[serde(default)]
    targets: Vec<String>,
    record_type: DnsRecordType,
    /// Time in seconds for which resolvers may cache the records; 0 or less for the time of the zone.
    #[serde(rename = "recordTTL", default)]
    record_ttl: i64,
}

/// Changes in the order in which they are made: values are removed before others are added.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EndpointChanges {
    // ExternalDNS before 0.14.1 begins the names with capital letters, and writes null for empty lists.
    #[serde(alias = "Create")]
    create: Option<Vec<ExternalEndpoint>>,
    #[serde(alias = "UpdateOld")]
    update_old: Option<Vec<ExternalEndpoint>>,
    #[serde(alias = "UpdateNew")]
    update_new: Option<Vec<ExternalEndpoint>>,
    #[serde(alias = "Delete")]
    delete: Option<Vec<ExternalEndpoint>>,
}

/// Returns the static records of a DnsZone as endpoints.
pub(super) fn endpoints_of(spec: &DnsZoneSpec) -> impl Iterator<Item = ExternalEndpoint> {
    spec.records.iter().map(|record| ExternalEndpoint {
        dns_name: record.name.to_string(),
        targets: record.values.iter().map(|value| to_target(record.record_type, value)).collect(),
        record_type: record.record_type,
        record_ttl: record.ttl.unwrap_or(spec.ttl).into(),
    })
}

/// Gives a wanted endpoint the form in which its records are listed, so that ExternalDNS finds no difference. Other fields
/// stay as they are.
pub(super) fn normalize(endpoint: &mut Value) {
    let is_text = endpoint["recordType"] == "TXT";
    let name = endpoint["dnsName"].as_str().map(plain_name);
    if let (Some(name), Some(field)) = (name, endpoint.get_mut("dnsName")) {
        *field = name.into();
    }
    let Some(targets) = endpoint.get_mut("targets").and_then(Value::as_array_mut).filter(|_| !is_text) else {
        return;
    };
    for target in targets {
        if let Some(text) = target.as_str().map(plain_name) {
            *target = text.into();
        }
    }
}

impl EndpointChanges {
    /// Returns the update of each zone, where `place` returns the zone that contains a name, with its time to live.
    ///
    /// # Errors
    /// Returns the reason, with the name, if a change cannot be made.
    pub(super) fn into_updates(
        self,
        place: impl Fn(&str) -> Option<(String, u32)>,
    ) -> Result<BTreeMap<String, ZoneUpdate>, String> {
        let Self { create, update_old, update_new, delete } = self;
        let removed = [delete, update_old].into_iter().flatten().flatten().map(|endpoint| (endpoint, false));
        let added = [update_new, create].into_iter().flatten().flatten().map(|endpoint| (endpoint, true));
        let mut updates: BTreeMap<String, ZoneUpdate> = BTreeMap::new();
        for (endpoint, is_added) in removed.chain(added) {
            let ExternalEndpoint { dns_name, targets, record_type, record_ttl } = endpoint;
            let owner = plain_name(&dns_name);
            let (zone, ttl) = place(&owner)
                .ok_or_else(|| format!("{owner} is in none of the zones of --external-dns-zone"))?;
            let ttl = u32::try_from(record_ttl).ok().filter(|ttl| *ttl > 0).unwrap_or(ttl);
            let changes = &mut updates.entry(zone).or_default().changes;
            for target in targets {
                let value = DnsRecordValue::parse(record_type, &from_target(record_type, &target));
                let data =
                    value.map_err(|problem| format!("{record_type} {target} of {owner}: {problem}"))?.into();
                changes.push(if is_added {
                    RecordChange::Add(Record { owner: owner.clone(), ttl, data })
                } else {
                    RecordChange::Remove(owner.clone(), data)
                });
            }
        }
        Ok(updates)
    }
}

/// Returns a name in lower case, without the final dot.
fn plain_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// ExternalDNS has texts in quotes.
fn to_target(record_type: DnsRecordType, value: &str) -> String {
    if record_type == DnsRecordType::Txt { format!("\"{value}\"") } else { value.to_owned() }
}

fn from_target(record_type: DnsRecordType, target: &str) -> String {
    if record_type == DnsRecordType::Txt {
        return joined_strings(target).unwrap_or_else(|| target.to_owned());
    }
    plain_name(target)
}

/// Joins the strings of one text record in quotes, such as `"a" "b"`. Returns `None` for a text without quotes.
fn joined_strings(target: &str) -> Option<String> {
    let (mut text, mut rest) = (String::new(), target.trim());
    while !rest.is_empty() {
        let (string, after) = rest.strip_prefix('"')?.split_once('"')?;
        text.push_str(string);
        rest = after.trim_start();
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_strings_of_a_text_record_are_joined() {
        let text = |target| from_target(DnsRecordType::Txt, target);
        assert_eq!(text(r#""v=spf1 -all""#), "v=spf1 -all");
        assert_eq!(text(r#""a b" "c""#), "a bc");
        assert_eq!(text("plain text"), "plain text");
        assert_eq!(text(r#""open"#), r#""open"#);
    }

    fn place(name: &str) -> Option<(String, u32)> {
        name.ends_with("example.org").then(|| ("example.org".to_owned(), 30))
    }

    fn updates(changes: Value) -> Result<String, String> {
        let changes: EndpointChanges = serde_json::from_value(changes).map_err(|error| error.to_string())?;
        let updates = changes.into_updates(place)?;
        let all = updates.iter().flat_map(|(zone, update)| update.changes.iter().map(move |it| (zone, it)));
        let shown = all.map(|(zone, change)| match change {
            RecordChange::Add(Record { owner, ttl, data }) => {
                let (kind, value) = data.to_presentation();
                format!("{zone}: + {owner} {ttl} {kind} {value}")
            }
            RecordChange::Remove(owner, data) => {
                let (kind, value) = data.to_presentation();
                format!("{zone}: - {owner} {kind} {value}")
            }
            RecordChange::RemoveSet(..) | RecordChange::RemoveName(_) => format!("{change:?}"),
        });
        Ok(shown.collect::<Vec<_>>().join("\n"))
    }

    /// Old values are removed first. Texts lose their quotes, names their final dot, and a missing time is that of the zone.
    #[test]
    fn changes_are_updates_of_the_zones() {
        let web =
            |targets: Value| json!({ "dnsName": "Web.example.org.", "recordType": "A", "targets": targets });
        let changes = json!({
            "create": [{ "dnsName": "a-web.example.org", "recordType": "TXT", "targets": ["\"heritage=external-dns\""], "labels": {} }],
            "updateOld": [web(json!(["192.0.2.1"]))],
            "updateNew": [{ "dnsName": "web.example.org", "recordType": "A", "targets": ["192.0.2.2"], "recordTTL": 60 }],
            "delete": [{ "dnsName": "old.example.org", "recordType": "CNAME", "targets": ["Web.Example.org."] }],
        });
        let expected = "example.org: - old.example.org CNAME web.example.org\n\
                        example.org: - web.example.org A 192.0.2.1\n\
                        example.org: + web.example.org 60 A 192.0.2.2\n\
                        example.org: + a-web.example.org 30 TXT \"heritage=external-dns\"";
        assert_eq!(updates(changes).unwrap(), expected);
        let old = json!({ "Create": [web(json!(["192.0.2.1"]))], "UpdateOld": null, "UpdateNew": null, "Delete": null });
        assert_eq!(updates(old).unwrap(), "example.org: + web.example.org 30 A 192.0.2.1");
        let problem = updates(json!({ "create": [web(json!(["x"]))] })).unwrap_err();
        assert!(problem.starts_with("A x of web.example.org: "), "{problem}");
        let outside = json!({ "create": [{ "dnsName": "a.example.com", "recordType": "A", "targets": [] }] });
        assert!(updates(outside).unwrap_err().contains("--external-dns-zone"));
    }

    /// Records are listed in the form that wanted endpoints get.
    #[test]
    fn records_and_wanted_endpoints_have_the_same_form() {
        let spec: DnsZoneSpec = serde_json::from_value(json!({
            "zone": "example.org", "ttl": 30, "records": [
                { "name": "a.example.org", "type": "TXT", "values": ["x=y"] },
                { "name": "b.example.org", "type": "CNAME", "ttl": 5, "values": ["a.example.org"] },
            ] }))
        .unwrap();
        let listed = serde_json::to_value(endpoints_of(&spec).collect::<Vec<_>>()).unwrap();
        let mut wanted = json!([
            { "dnsName": "A.example.org.", "targets": ["\"x=y\""], "recordType": "TXT", "recordTTL": 30 },
            { "dnsName": "b.example.org", "targets": ["A.example.org."], "recordType": "CNAME", "recordTTL": 5 },
        ]);
        wanted.as_array_mut().unwrap().iter_mut().for_each(normalize);
        assert_eq!(wanted, listed);
    }
}
