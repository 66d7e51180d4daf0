//! Import of MetalLB's BGP advertisements: from resources, and from pools of the ConfigMap and of the
//! deprecated AddressPool.

use model::primitives::{community::Community, name::Name};
use serde_json::{Map, Value, json};

use crate::json::{scalar, text};
use crate::{
    draft::Draft,
    fields::Fields,
    metallb::{
        bgp::{Spelling, Work},
        resources::pools,
    },
    pool,
};

/// Translates a BGPAdvertisement resource.
pub(crate) fn advertisement_object(draft: &mut Draft, document: &Value) {
    let name = text(document, "/metadata/name");
    let Some(name) = pool::name(&name, "metadata.name", &mut draft.report) else { return };
    if document.get("spec").is_some_and(|spec| !spec.is_object() && !spec.is_null()) {
        draft.report.ignored("spec", "the advertisement is left out: spec is not an object");
        return;
    }
    let fields = Fields::of(document.get("spec").unwrap_or(&Value::Null), "spec");
    let Some(name) = free_name(draft, name, "metadata.name") else { return };
    let mut work = Work::new(fields, Spelling::Resource, format!("advertisement/{name}"));
    let made = pools(draft, &mut work.fields, &name).and_then(|pools| {
        if let Some(pools) = pools {
            draft.announced.extend(pools.iter().cloned());
            work.spec.insert("addressPools".to_owned(), json!(pools));
        }
        advertisement_spec(draft, work)
    });
    match made {
        Ok(spec) => drop(draft.advertisements.insert(name, spec)),
        Err(reason) => draft.report.ignored("spec", &format!("the advertisement is left out: {reason}")),
    }
}

/// Translates the BGP advertisements of a pool in the ConfigMap, or of the deprecated AddressPool. A pool
/// without advertisements announces each of its addresses separately.
pub(crate) fn advertisements_of_pool(
    draft: &mut Draft,
    pool: &Name,
    list: &[Value],
    at: &str,
    spelling: Spelling,
) {
    let nothing = [json!({})];
    let list = if list.is_empty() { &nothing[..] } else { list };
    for (number, value) in list.iter().enumerate() {
        let at = format!("{at}[{number}]");
        let wanted = if number == 0 { pool.to_string() } else { format!("{pool}-{}", number + 1) };
        let Ok(wanted) = Name::parse(&wanted) else {
            draft.report.ignored(&at, "left out: the pool's name is too long to number its advertisements");
            continue;
        };
        let Some(name) = free_name(draft, wanted, &at) else { continue };
        let mut work = Work::new(Fields::of(value, &at), spelling, format!("advertisement/{name}"));
        work.spec.insert("addressPools".to_owned(), json!([pool]));
        match advertisement_spec(draft, work) {
            Ok(spec) => {
                draft.announced.insert(pool.clone());
                draft.advertisements.insert(name, spec);
            }
            Err(reason) => draft.report.ignored(&at, &format!("the advertisement is left out: {reason}")),
        }
    }
}

/// Returns an unused name for an advertisement. L2 and BGP advertisements become objects of one kind, so
/// their names may collide.
fn free_name(draft: &mut Draft, name: Name, at: &str) -> Option<Name> {
    if !draft.advertisements.contains_key(&name) {
        return Some(name);
    }
    let other =
        Name::parse(&format!("{name}-bgp")).ok().filter(|other| !draft.advertisements.contains_key(other));
    match &other {
        Some(other) => {
            draft.report.approximated(at, &format!("`{name}` is already used; it becomes {other}"))
        }
        None => draft.report.ignored(at, &format!("duplicate advertisement {name}; it is left out")),
    }
    other
}

fn advertisement_spec(draft: &mut Draft, mut work: Work<'_>) -> Result<Map<String, Value>, String> {
    work.spec.insert("type".to_owned(), json!("BGP"));
    let mut communities = Vec::new();
    let at = work.path("communities");
    for entry in work.fields.list("communities")? {
        let entry = scalar(entry);
        // A community may restrict the propagation of a route, so it must not be dropped.
        let known = draft.communities.get(&entry).copied().ok_or(()).or_else(|()| entry.parse::<Community>());
        communities.push(known.map_err(|_| format!("community `{entry}` has no value"))?.to_string());
    }
    let report = &mut draft.report;
    work.node_selectors(report)?;
    let services = work.fields.selectors("serviceSelectors")?;
    if !services.is_empty() {
        work.put("serviceSelectors", "serviceSelectors", json!(services), report);
    }
    if !communities.is_empty() {
        report.mapped(&at, &format!("communities of {}", work.target));
        work.spec.insert("communities".to_owned(), json!(communities));
    }
    for key in ["aggregationLength", "aggregationLengthV6"] {
        work.carry(key, key, report);
    }
    let named: Vec<String> = work.fields.list("peers")?.iter().map(scalar).collect();
    if !named.is_empty() {
        let missing =
            named.iter().find(|name| !draft.peers.keys().any(|peer| peer.as_str() == name.as_str()));
        match missing {
            Some(missing) => report.approximated(
                &work.path("peers"),
                &format!("bgppeer/{missing} is not in the input; create it first"),
            ),
            None => report.mapped(&work.path("peers"), &format!("peers of {}", work.target)),
        }
        work.spec.insert("peers".to_owned(), json!(named));
    }
    preference(draft, &mut work, &named);
    Ok(work.done(&mut draft.report))
}

/// Copies the local preference of a MetalLB advertisement, unless all of its peers are external: MetalLB does
/// not send LOCAL_PREF to these, and Tidegate would reject the setting.
fn preference(draft: &mut Draft, work: &mut Work<'_>, named: &[String]) {
    let is_external = |name: &String| {
        let spec = draft.peers.iter().find(|(peer, _)| peer.as_str() == name.as_str()).map(|(_, spec)| spec);
        spec.is_some_and(|spec| {
            let [own, peer] =
                ["localASN", "peerASN"].map(|key| spec.get(key).map(scalar).unwrap_or_default());
            peer == "external" || (peer != "internal" && !own.is_empty() && own != peer)
        })
    };
    let is_useless = !named.is_empty() && named.iter().all(is_external);
    if !is_useless {
        work.carry("localPref", "localPref", &mut draft.report);
    } else if work.take("localPref").is_some() {
        let at = work.path("localPref");
        draft
            .report
            .approximated(&at, "left out: all listed peers are external, and LOCAL_PREF is not sent to them");
    }
}
