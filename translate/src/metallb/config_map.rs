//! Import of the MetalLB configuration up to version 0.12: a ConfigMap with embedded YAML.

use serde_json::{Map, Value, json};

use model::primitives::name::Name;

use crate::{
    draft::Draft,
    fields::Fields,
    metallb::{
        bgp::{self as metallb_bgp, Spelling},
        bgp_advertisements as metallb_bgp_announcing,
    },
    pool,
};
use crate::{
    json::{entries, scalar, text},
    parse::{Language, objects},
};

/// Returns true if a document without a kind has the form of the configuration embedded in MetalLB's legacy
/// ConfigMap.
pub(crate) fn is_config(document: &Value) -> bool {
    ["address-pools", "peers"].iter().any(|key| document.get(key).is_some())
}

/// Parses the configuration embedded as text in MetalLB's legacy ConfigMap, and translates it into the draft.
pub(crate) fn embedded(draft: &mut Draft, text: &Value) {
    match objects(Language::Yaml, scalar(text).as_bytes()) {
        Ok(documents) => documents.iter().for_each(|document| config(draft, document)),
        Err(error) => draft.report.ignored("data.config", error.lines().next().unwrap_or_default()),
    }
}

/// Translates the parsed configuration of MetalLB's legacy ConfigMap into the draft.
pub(crate) fn config(draft: &mut Draft, document: &Value) {
    let mut fields = Fields::of(document, "");
    if let Some(named) = fields.take("bgp-communities") {
        for (name, value) in entries(named, "") {
            metallb_bgp::community(draft, &format!("bgp-communities.{name}"), name, &scalar(value));
        }
    }
    for (number, value) in fields.list_or_report("bfd-profiles", &mut draft.report).iter().enumerate() {
        bfd_profile(draft, value, &format!("bfd-profiles[{number}]"));
    }
    for (number, pool) in fields.list_or_report("address-pools", &mut draft.report).iter().enumerate() {
        address_pool(draft, pool, &format!("address-pools[{number}]"));
    }
    for (number, value) in fields.list_or_report("peers", &mut draft.report).iter().enumerate() {
        // Peers have no names in this format.
        if let Ok(name) = Name::parse(&format!("peer-{}", number + 1)) {
            let at = format!("peers[{number}]");
            metallb_bgp::peer(draft, name, Fields::of(value, at), Spelling::ConfigMap);
        }
    }
    fields.rest(&mut draft.report);
}

fn bfd_profile(draft: &mut Draft, value: &Value, at: &str) {
    let mut fields = Fields::of(value, at);
    fields.take("name");
    let at_name = fields.path("name");
    let Some(name) = pool::name(&text(value, "/name"), &at_name, &mut draft.report) else { return };
    metallb_bgp::profile(draft, name, fields, Spelling::ConfigMap);
}

fn address_pool(draft: &mut Draft, value: &Value, at: &str) {
    let mut fields = Fields::of(value, at);
    let at_name = fields.path("name");
    let given = fields.take("name").map(scalar).unwrap_or_default();
    let Some(name) = pool::name(&given, &at_name, &mut draft.report) else { return };
    if draft.pools.contains_key(&name) {
        draft.report.ignored(&at_name, &format!("duplicate pool {name}; it is left out"));
        return;
    }
    if name.as_str() == given {
        draft.report.mapped(&at_name, &format!("addresspool/{name}"));
    }
    let (at_protocol, at_addresses) = (fields.path("protocol"), fields.path("addresses"));
    let protocol = fields.take("protocol").map(scalar).unwrap_or_default();
    let list = fields.list_or_report("addresses", &mut draft.report);
    let ranges = pool::ranges(list, &at_addresses, &name, &mut draft.report);
    if ranges.is_empty() {
        draft.report.ignored(at, "left out: no addresses");
        return;
    }
    let mut spec = Map::from_iter([("addresses".to_owned(), json!(ranges))]);
    for (theirs, ours, careful) in
        [("auto-assign", "autoAssign", false), ("avoid-buggy-ips", "avoidBuggyIPs", true)]
    {
        let at = fields.path(theirs);
        if let Some(flag) = fields.flag(theirs, careful, &mut draft.report) {
            draft.report.mapped(&at, &format!("{ours}: {flag} of addresspool/{name}"));
            spec.insert(ours.to_owned(), json!(flag));
        }
    }
    match protocol.as_str() {
        "layer2" => {
            draft.report.mapped(&at_protocol, &format!("layer2: advertisement/{name}"));
            let announcing = json!({ "type": "L2", "addressPools": [name] });
            draft.advertisements.insert(name.clone(), announcing.as_object().cloned().unwrap_or_default());
            draft.announced.insert(name.clone());
        }
        "bgp" => draft.report.mapped(&at_protocol, &format!("bgp: advertisement/{name}")),
        other => draft.report.ignored(&at_protocol, &format!("`{other}` is neither layer2 nor bgp")),
    }
    let at_list = fields.path("bgp-advertisements");
    let list = fields.list_or_report("bgp-advertisements", &mut draft.report);
    match protocol.as_str() {
        "bgp" => {
            metallb_bgp_announcing::advertisements_of_pool(draft, &name, list, &at_list, Spelling::ConfigMap)
        }
        _ if !list.is_empty() => draft.report.ignored(&at_list, "not with this protocol"),
        _ => {}
    }
    fields.rest(&mut draft.report);
    draft.pools.insert(name, (Default::default(), spec));
}
