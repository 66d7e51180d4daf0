//! Translation of Kubernetes and MetalLB objects. Input and output are text files under `kubernetes/`;
//! `UPDATE_GOLDEN=1 cargo test -p sync --test it kubernetes_translate::` rewrites output and
//! `docs/reference/kubernetes-fields.md`.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sync::kubernetes::{
    resource::Resource,
    state::{Change, ClusterState, Id, needed},
    translate::{
        Mode, Settings,
        fields::{self, Field, FieldMapping, TABLE},
    },
};
use translate::{json::text, parse};

pub(crate) fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes")
}

pub(crate) fn read(name: &str) -> Vec<Value> {
    parse::objects(parse::Language::Yaml, &fs::read(directory().join(name)).unwrap()).unwrap()
}

pub(crate) fn check(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, actual).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(actual, expected, "{} differs; UPDATE_GOLDEN=1 rewrites it", path.display());
}

fn settings(mode: Mode) -> Settings {
    Settings { cluster: None, mode, class: None }
}

pub(crate) fn resource(object: &Value) -> Resource {
    let kind = text(object, "/kind");
    let all =
        Resource::CORE.into_iter().chain(Resource::METALLB).chain(Resource::HTTP).chain(Resource::POLICY);
    all.into_iter().find(|resource| resource.places()[0].kind == kind).unwrap()
}

/// Returns the state of a completely listed cluster with these objects.
fn cluster(settings: Settings, objects: &[Value]) -> ClusterState {
    let mut state = ClusterState::new(settings, needed(true, true));
    for object in objects {
        state.apply(resource(object), Change::Put(object.clone()));
    }
    state
}

pub(crate) fn shown(state: &ClusterState) -> String {
    let mut shown = String::new();
    let (wanted, published) = (state.wanted(), state.published());
    for object in published.nodes.values().chain(wanted.objects.values()) {
        let yaml = serde_saphyr::to_string(&object.to_json()).unwrap();
        writeln!(shown, "---\n{}", yaml.trim_end()).unwrap();
        // Passwords are write-only.
        if object.as_bgp_peer().is_some_and(|peer| peer.password.is_some()) {
            writeln!(shown, "# with a password").unwrap();
        }
    }
    let services =
        published.services.iter().map(|(id, entry)| ((Resource::Service, id.clone()), &entry.findings));
    let others = published.findings.iter().map(|(key, findings)| (key.clone(), findings));
    writeln!(shown, "# Findings").unwrap();
    for ((resource, id), findings) in services.chain(others) {
        for finding in findings {
            let place = format!("{resource:?} {}/{}", id.namespace, id.name);
            writeln!(shown, "# {place}: {:?} {}: {}", finding.severity, finding.field, finding.message)
                .unwrap();
        }
    }
    shown
}

fn golden(name: &str, input: &str, settings: Settings) {
    let state = cluster(settings, &read(input));
    check(&directory().join("golden").join(name), &shown(&state));
}

#[test]
fn f030_services_keep_their_meaning_in_the_place_of_kube_proxy() {
    golden("services_proxy.yaml", "services.yaml", settings(Mode::Proxy));
}

#[test]
fn f037_only_load_balancers_get_addresses_beside_kube_proxy() {
    golden("services_load_balancer.yaml", "services.yaml", settings(Mode::LoadBalancer));
    let of_class = Settings { class: Some("tidegate.io/l4".to_owned()), ..settings(Mode::LoadBalancer) };
    golden("services_class.yaml", "services.yaml", of_class);
}

#[test]
fn metallb_s_resources_and_annotations_are_read_as_they_are() {
    golden("metallb.yaml", "metallb.yaml", settings(Mode::LoadBalancer));
}

/// Two clusters with the same objects have no object in common in Tidegate, and do not affect each other's
/// addresses or announcements.
#[test]
fn the_same_objects_of_two_clusters_never_meet() {
    let of = |name: &str| Settings { cluster: Some(name.parse().unwrap()), ..settings(Mode::LoadBalancer) };
    golden("metallb_east.yaml", "metallb.yaml", of("east"));
    let [east, west] = ["east", "west"].map(|name| {
        let state = cluster(of(name), &read("metallb.yaml"));
        state.wanted().objects.keys().map(ToString::to_string).collect::<BTreeSet<_>>()
    });
    assert!(!east.is_empty() && east.is_disjoint(&west), "{east:?} {west:?}");
}

#[test]
fn the_page_of_fields_is_the_list_that_the_adapter_goes_by() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/kubernetes-fields.md");
    check(&page, &fields::page());
}

/// A limit that Kubernetes does not have, and the restriction of entries that Kubernetes leaves open, are on the page.
#[test]
fn the_page_of_fields_states_the_limit_of_ports_and_the_reach_of_source_ranges() {
    let page = fields::page();
    let line = |path: &str| page.lines().find(|line| line.starts_with(&format!("| `{path}` |"))).unwrap();
    let ports = line("spec.ports[].name");
    assert!(ports.contains(&format!("at most {} ports", model::kinds::service::PORTS_MAX)), "{ports}");
    let ranges = line("spec.loadBalancerSourceRanges");
    for words in
        ["approximated", "LoadBalancerOnly", "node ports, external IPs", "The node itself", "IP family"]
    {
        assert!(ranges.contains(words), "{words}: {ranges}");
    }
}

/// The removal of a field changes the translation or the report if and only if the table of fields does not list
/// the field as irrelevant.
#[test]
fn every_field_is_treated_as_the_list_says() {
    let everything = read("everything.yaml");
    let before = shown(&cluster(settings(Mode::Proxy), &everything));
    let (mut faults, mut unused) = (Vec::new(), Vec::new());
    let identity = ["metadata.name", "metadata.namespace", "kind", "apiVersion"];
    // Endpoints are only read from files; the importer's goldens cover them.
    let watched = TABLE.iter().filter(|field| field.kind != fields::Kind::Endpoints);
    for field in watched.filter(|field| !identity.contains(&field.path)) {
        let (mut is_used, mut is_seen) = (false, false);
        for number in 0..everything.len() {
            let mut less = everything.clone();
            if text(&everything[number], "/kind") == field.kind.as_str()
                && take_out(&mut less[number], field.path)
            {
                is_used = true;
                is_seen |= shown(&cluster(settings(Mode::Proxy), &less)) != before;
            }
        }
        match (is_used, has_effect(field)) {
            (false, true) => unused.push((field.kind.as_str(), field.path)),
            (true, expected) if expected != is_seen => {
                faults.push(format!(
                    "{} {}: {:?}, has an effect: {is_seen}",
                    field.kind.as_str(),
                    field.path,
                    field.fate
                ));
            }
            (true | false, _) => {}
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(unused.is_empty(), "kubernetes/everything.yaml does not use {unused:#?}");
}

fn has_effect(field: &Field) -> bool {
    match field.fate {
        FieldMapping::Mapped
        | FieldMapping::ProxyOnly
        | FieldMapping::Approximated
        | FieldMapping::NotSupported => true,
        FieldMapping::NotNeeded => false,
    }
}

/// Removes a field wherever it occurs. Returns true if it was present.
fn take_out(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Object(fields) => {
            if fields.remove(path).is_some() {
                return true;
            }
            let keys: Vec<String> = fields.keys().cloned().collect();
            keys.iter().any(|key| {
                let lists = path.strip_prefix(&format!("{key}[]."));
                let inner = lists.or_else(|| path.strip_prefix(&format!("{key}.")));
                inner.is_some_and(|inner| take_out(&mut fields[key], inner))
            })
        }
        Value::Array(entries) => {
            // In every entry, not only in the first that has it.
            let found: Vec<bool> = entries.iter_mut().map(|entry| take_out(entry, path)).collect();
            found.contains(&true)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The resulting objects do not depend on the order of changes, nor on their delivery by events or by listings.
#[test]
fn what_is_wanted_depends_on_the_state_and_not_on_the_way_to_it() {
    let objects = read("everything.yaml");
    let forward = cluster(settings(Mode::Proxy), &objects);
    let backward: Vec<Value> = objects.iter().rev().cloned().collect();
    let mut state = cluster(settings(Mode::Proxy), &backward);
    assert_eq!(shown(&state), shown(&forward));
    let all =
        Resource::CORE.into_iter().chain(Resource::METALLB).chain(Resource::HTTP).chain(Resource::POLICY);
    for object in &objects {
        state.apply(resource(object), Change::Gone(Id::of(object)));
    }
    assert_eq!(state.wanted().objects.len(), 0, "nothing is left of what the lists do not have");
    for kind in all {
        let of_kind = objects.iter().filter(|object| resource(object) == kind).cloned().collect();
        state.apply(kind, Change::Listed(of_kind));
    }
    assert_eq!(shown(&state), shown(&forward));
}

/// No object is removed if an API server that has lost its store lists nothing.
#[test]
fn a_list_without_any_of_what_was_there_takes_nothing_away() {
    let mut state = cluster(settings(Mode::Proxy), &read("everything.yaml"));
    let before = shown(&state);
    for resource in Resource::CORE.into_iter().chain(Resource::METALLB) {
        state.apply(resource, Change::Listed(Vec::new()));
    }
    assert_eq!(shown(&state), before);
    assert_eq!(state.doubted().get(&Resource::Service), Some(&7));
    let one =
        read("everything.yaml").into_iter().filter(|object| resource(object) == Resource::Service).take(1);
    state.apply(Resource::Service, Change::Listed(one.collect()));
    assert_eq!(state.doubted().get(&Resource::Service), None, "a list with some of it is believed");
    assert_eq!(state.published().services.len(), 1);
}

/// If other clients create new objects on an API server that has lost its store, the old objects stay in
/// Tidegate until some of them are listed again.
#[test]
fn what_others_make_in_a_server_that_has_lost_its_store_takes_nothing_away() {
    let service = |name: &str, uid: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "shop", "uid": uid },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80, "protocol": "TCP" }] },
        })
    };
    let old = [service("a", "1"), service("b", "2"), service("c", "3")];
    let names = |state: &ClusterState| -> Vec<String> {
        state.published().services.keys().map(|id| id.name.clone()).collect()
    };
    let begin = || {
        let mut state = ClusterState::new(settings(Mode::LoadBalancer), [Resource::Service]);
        state.apply(Resource::Service, Change::Listed(old.to_vec()));
        state
    };
    // The first listing is empty, the next one contains new objects, one with a previous name.
    let mut state = begin();
    state.apply(Resource::Service, Change::Listed(Vec::new()));
    state.apply(Resource::Service, Change::Put(service("new", "9")));
    let strangers = vec![service("new", "9"), service("c", "10")];
    state.apply(Resource::Service, Change::Listed(strangers.clone()));
    assert_eq!(names(&state), ["a", "b", "c", "new"]);
    assert_eq!(state.doubted().get(&Resource::Service), Some(&2), "`c` is there again, as another");
    // Deletion events are applied, and so is a listing with some of the doubted objects.
    state.apply(Resource::Service, Change::Gone(Id::of(&old[0])));
    assert_eq!(names(&state), ["b", "c", "new"]);
    state.apply(Resource::Service, Change::Listed(vec![old[1].clone()]));
    assert_eq!((names(&state), state.doubted().len()), (vec!["b".to_owned()], 0));
    // No listing was empty.
    let mut state = begin();
    state.apply(Resource::Service, Change::Listed(strangers));
    assert_eq!(names(&state), ["a", "b", "c", "new"]);
    state.apply(Resource::Service, Change::Listed(old.to_vec()));
    assert_eq!(
        (names(&state), state.doubted().len()),
        (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 0)
    );
}

#[test]
fn a_state_is_complete_when_all_lists_were_read() {
    let mut state = ClusterState::new(settings(Mode::Proxy), [Resource::Service, Resource::EndpointSlice]);
    state.apply(Resource::Service, Change::Listed(Vec::new()));
    assert!(!state.wanted().is_complete);
    state.apply(Resource::EndpointSlice, Change::Listed(Vec::new()));
    assert!(state.wanted().is_complete);
}

#[test]
fn any_value_in_any_place_leads_to_objects_or_findings_and_never_to_a_panic() {
    let everything = read("everything.yaml");
    let odd = [
        Value::Null,
        Value::from(-1),
        Value::from("\u{0}"),
        serde_json::json!([[]]),
        serde_json::json!({"a": {}}),
    ];
    for whole in &everything {
        for field in TABLE.iter().filter(|field| field.kind.as_str() == text(whole, "/kind")) {
            let pointer = format!("/{}", field.path.replace("[]", "/0").replace('.', "/").replace("//", "/"));
            for odd in &odd {
                let mut object = whole.clone();
                if let Some(place) = object.pointer_mut(&pointer) {
                    *place = odd.clone();
                    let mut state = ClusterState::new(settings(Mode::LoadBalancer), needed(true, true));
                    state.apply(resource(whole), Change::Put(object));
                    let _whatever = shown(&state);
                }
            }
        }
    }
}
