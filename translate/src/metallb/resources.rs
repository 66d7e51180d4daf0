//! Import of MetalLB resources of the group `metallb.io`: pools, L2 advertisements, and the references of
//! advertisements to pools.

use model::{
    kinds::{metadata::Labels, selector::Selector},
    primitives::name::{Name, Namespace},
};
use serde_json::{Map, Value, json};

use crate::json::{scalar, text};
use crate::{
    draft::Draft,
    fields::Fields,
    metallb::{bgp::Spelling, bgp_advertisements as metallb_bgp_announcing},
    pool,
};

const NODE_LABELS: &str = "matches labels of Tidegate Nodes, which have none by themselves: `tidegate label node NAME KEY=VALUE` sets them";

/// Translates an IPAddressPool resource.
pub(crate) fn pool(draft: &mut Draft, document: &Value) {
    let Some((name, mut fields, mut spec)) = begin(draft, document) else { return };
    let allocation = fields.take("serviceAllocation");
    let allocated =
        allocation.map_or(Ok(()), |allocation| service_allocation(draft, allocation, &name, &mut spec));
    if let Err(reason) = allocated {
        draft.report.ignored("spec", &format!("the pool is left out: {reason}"));
        return;
    }
    fields.rest(&mut draft.report);
    let labels = labels(draft, document);
    draft.pools.insert(name, (labels, spec));
}

/// Translates the deprecated MetalLB resource AddressPool, which contains its protocol, like the pools of the
/// ConfigMap.
pub(crate) fn old_pool(draft: &mut Draft, document: &Value) {
    if !text(document, "/apiVersion").starts_with("metallb.io/") {
        draft.report.ignored("", "not of metallb.io; this kind cannot be imported");
        return;
    }
    let Some((name, mut fields, spec)) = begin(draft, document) else { return };
    let at_list = fields.path("bgpAdvertisements");
    let list = fields.list_or_report("bgpAdvertisements", &mut draft.report);
    match fields.take("protocol").map(scalar).unwrap_or_default().as_str() {
        "layer2" => {
            draft.report.mapped("spec.protocol", &format!("layer2: advertisement/{name}"));
            let announcing = json!({ "type": "L2", "addressPools": [name] });
            draft.advertisements.insert(name.clone(), announcing.as_object().cloned().unwrap_or_default());
            draft.announced.insert(name.clone());
        }
        "bgp" => {
            draft.report.mapped("spec.protocol", &format!("bgp: advertisement/{name}"));
            metallb_bgp_announcing::advertisements_of_pool(draft, &name, list, &at_list, Spelling::Resource);
        }
        other => {
            draft.report.ignored("spec.protocol", &format!("`{other}` is neither layer2 nor bgp"));
        }
    }
    fields.rest(&mut draft.report);
    let labels = labels(draft, document);
    draft.pools.insert(name, (labels, spec));
}

/// Translates the fields that all types of MetalLB pools have. Returns the name, the remaining fields, and
/// the spec of the Tidegate pool so far, or `None` if the pool is reported as invalid and left out.
fn begin<'a>(draft: &mut Draft, document: &'a Value) -> Option<(Name, Fields<'a>, Map<String, Value>)> {
    let report = &mut draft.report;
    let name = pool::name(&text(document, "/metadata/name"), "metadata.name", report)?;
    if draft.pools.contains_key(&name) {
        report.ignored("metadata.name", &format!("duplicate pool {name}; it is left out"));
        return None;
    }
    let mut fields = Fields::of(document.get("spec").unwrap_or(&Value::Null), "spec");
    let ranges = pool::ranges(fields.list_or_report("addresses", report), "spec.addresses", &name, report);
    if ranges.is_empty() {
        report.ignored("spec", "left out: no addresses");
        return None;
    }
    let mut spec = Map::from_iter([("addresses".to_owned(), json!(ranges))]);
    for (key, careful) in [("autoAssign", false), ("avoidBuggyIPs", true)] {
        if let Some(flag) = fields.flag(key, careful, report) {
            report.mapped(&format!("spec.{key}"), &format!("{key}: {flag} of addresspool/{name}"));
            spec.insert(key.to_owned(), json!(flag));
        }
    }
    Some((name, fields, spec))
}

/// Translates the settings by which a MetalLB pool serves only some Services.
fn service_allocation(
    draft: &mut Draft,
    allocation: &Value,
    name: &Name,
    spec: &mut Map<String, Value>,
) -> Result<(), String> {
    let report = &mut draft.report;
    let mut fields = Fields::of(allocation, "spec.serviceAllocation");
    if !allocation.is_object() {
        return Err("spec.serviceAllocation is not an object".to_owned());
    }
    match fields.take("priority").map(Value::as_u64) {
        // 0 means no priority in MetalLB: after all pools with a priority.
        Some(Some(0)) => report.mapped(&fields.path("priority"), "0: none"),
        Some(Some(priority)) => {
            report.mapped(&fields.path("priority"), &format!("priority: {priority} of addresspool/{name}"));
            spec.insert("priority".to_owned(), json!(priority));
        }
        Some(None) => report.ignored(&fields.path("priority"), "must be a number of at least 0"),
        None => {}
    }
    let mut namespaces = Vec::new();
    for namespace in fields.list("namespaces")? {
        let namespace = scalar(namespace);
        Namespace::parse(&namespace).map_err(|error| format!("namespace `{namespace}` {error}"))?;
        namespaces.push(namespace);
    }
    if !namespaces.is_empty() {
        report.mapped(&fields.path("namespaces"), &format!("namespaces of addresspool/{name}"));
    }
    let services = fields.selectors("serviceSelectors")?;
    if !services.is_empty() {
        report.mapped(&fields.path("serviceSelectors"), &format!("serviceSelectors of addresspool/{name}"));
        spec.insert("serviceSelectors".to_owned(), json!(services));
    }
    if !fields.selectors("namespaceSelectors")?.is_empty() {
        let at = fields.path("namespaceSelectors");
        if namespaces.is_empty() {
            report.approximated(
                &at,
                "Tidegate namespaces have no labels: autoAssign: false, until spec.namespaces lists them",
            );
            spec.insert("autoAssign".to_owned(), json!(false));
        } else {
            report.approximated(
                &at,
                "Tidegate namespaces have no labels: only the namespaces listed by \
                                      name",
            );
        }
    }
    if !namespaces.is_empty() {
        spec.insert("namespaces".to_owned(), json!(namespaces));
    }
    fields.rest(report);
    Ok(())
}

/// Translates an L2Advertisement resource.
pub(crate) fn advertisement(draft: &mut Draft, document: &Value) {
    let name = text(document, "/metadata/name");
    let Some(name) = pool::name(&name, "metadata.name", &mut draft.report) else { return };
    if draft.advertisements.contains_key(&name) {
        draft.report.ignored("metadata.name", &format!("duplicate advertisement {name}; it is left out"));
        return;
    }
    let fields = Fields::of(document.get("spec").unwrap_or(&Value::Null), "spec");
    if document.get("spec").is_some_and(|spec| !spec.is_object() && !spec.is_null()) {
        draft.report.ignored("spec", "the advertisement is left out: spec is not an object");
        return;
    }
    if document.get("spec").and_then(Value::as_object).is_none_or(Map::is_empty) {
        draft.report.mapped(
            "spec",
            &format!("advertisement/{name} announces all pools, because no spec restricts it"),
        );
    }
    match announcing(draft, fields, &name) {
        Ok(spec) => drop(draft.advertisements.insert(name, spec)),
        Err(reason) => draft.report.ignored("spec", &format!("the advertisement is left out: {reason}")),
    }
}

fn announcing(draft: &mut Draft, mut fields: Fields<'_>, name: &Name) -> Result<Map<String, Value>, String> {
    let mut spec = Map::from_iter([("type".to_owned(), json!("L2"))]);
    let pools = pools(draft, &mut fields, name)?;
    if let Some(pools) = pools {
        draft.announced.extend(pools.iter().cloned());
        spec.insert("addressPools".to_owned(), json!(pools));
    }
    let report = &mut draft.report;
    for key in ["nodeSelectors", "serviceSelectors"] {
        let selectors = fields.selectors(key)?;
        if !selectors.is_empty() {
            match key {
                "nodeSelectors" => report.approximated(&fields.path(key), NODE_LABELS),
                _ => report.mapped(&fields.path(key), &format!("{key} of advertisement/{name}")),
            }
            spec.insert(key.to_owned(), json!(selectors));
        }
    }
    for key in ["preferredNodeSelectors", "interfaces"] {
        let list = fields.list(key)?;
        if !list.is_empty() {
            match key {
                "interfaces" => report.mapped(&fields.path(key), &format!("{key} of advertisement/{name}")),
                _ => report.approximated(&fields.path(key), NODE_LABELS),
            }
            // Entries are validated with the finished object.
            spec.insert(key.to_owned(), json!(list));
        }
    }
    fields.rest(report);
    Ok(spec)
}

/// Returns the names of the pools that an advertisement names or selects; `None` means all pools.
///
/// # Errors
/// Returns an error if a field is invalid, or if the selectors match no pool and no pool is named, because an
/// empty list would mean all pools.
pub(crate) fn pools(
    draft: &mut Draft,
    fields: &mut Fields<'_>,
    name: &Name,
) -> Result<Option<Vec<Name>>, String> {
    let mut named = Vec::new();
    for pool in fields.list("ipAddressPools")? {
        let pool = scalar(pool);
        named.push(Name::parse(&pool).map_err(|error| format!("pool `{pool}` {error}"))?);
    }
    let at = fields.path("ipAddressPools");
    match named.iter().find(|pool| !draft.pools.contains_key(*pool)) {
        Some(missing) => draft
            .report
            .approximated(&at, &format!("addresspool/{missing} is not in the input; create it first")),
        None if !named.is_empty() => {
            draft.report.mapped(&at, &format!("addressPools of advertisement/{name}"))
        }
        None => {}
    }
    let selectors = fields.selectors("ipAddressPoolSelectors")?;
    if selectors.is_empty() {
        return Ok((!named.is_empty()).then_some(named));
    }
    let selected = draft.pools.iter().filter(|(_, (labels, _))| Selector::any_matches(&selectors, labels));
    let selected: Vec<Name> = selected.map(|(name, _)| name.clone()).collect();
    let shown = selected.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    named.extend(selected);
    named.sort();
    named.dedup();
    if named.is_empty() {
        return Err("its pool selectors match no pool of the input, and an empty list would mean all pools"
            .to_owned());
    }
    let shown = if shown.is_empty() { "none".to_owned() } else { shown };
    draft.report.approximated(
        &fields.path("ipAddressPoolSelectors"),
        &format!("the matching pools of the input, by name: {shown}"),
    );
    Ok(Some(named))
}

/// Returns the labels of a pool, by which advertisements select it.
fn labels(draft: &mut Draft, document: &Value) -> Labels {
    let Some(given) = document.pointer("/metadata/labels").filter(|given| !given.is_null()) else {
        return Labels::default();
    };
    match serde_json::from_value::<Labels>(given.clone()) {
        Ok(labels) => {
            draft.report.mapped("metadata.labels", "labels of the pool");
            labels
        }
        Err(error) => {
            draft.report.ignored("metadata.labels", &error.to_string());
            Labels::default()
        }
    }
}
