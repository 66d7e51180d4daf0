//! Generator of the changes that a writer of the soak test makes. The next change depends only on the seed,
//! the index of the writer, and the writer's previous changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::stage::{
    EXTRA_HOSTS, LIVE_SET, affinity, endpoint, endpoint_set, filling_endpoints, filling_name, object,
};
use crate::{fixtures::scene::BACKEND_PORT, host::random::Random};

/// Maximum number of Services of one writer that exist at the same time.
const SERVICES_MAX: usize = 10;
/// Number of external addresses reserved for one writer; more than [`SERVICES_MAX`].
const EXTERNALS: u64 = 20;
/// Minimum number of writers. Each of the first six also changes objects that no other writer changes, such
/// as spare Workloads, Nodes, advertisements, or the endpoints of Services with traffic.
pub(super) const WRITERS_MIN: u64 = 6;

/// HTTP request to the control API: method, path and JSON body.
#[derive(Debug, Clone)]
pub(super) struct SoakCall {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

/// Change that a writer makes: its description and the requests that perform it, in order.
#[derive(Debug)]
pub(super) struct SoakChange {
    pub(super) kind: &'static str,
    pub(super) calls: Vec<SoakCall>,
}

/// Objects that one writer has created or changed, and the generator of the writer's next change.
#[derive(Debug)]
pub(super) struct Estate {
    index: u64,
    random: Random,
    /// Services created by the writer, by name, with their kind.
    services: BTreeMap<String, Sort>,
    made: u64,
    /// Last octet of the external address of each Service, by Service name.
    externals: BTreeMap<String, u64>,
    /// Numbers of the permanent Services assigned to this writer.
    filling: Vec<u32>,
    /// Permanent Services whose endpoints or settings differ from the initial ones.
    changed: BTreeMap<u32, ()>,
    has_pool: bool,
    /// Requests that restore changed objects, by path.
    undo: BTreeMap<String, SoakCall>,
}

/// Kind of Service that a writer creates, such as headless or with a node port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Plain,
    Dual,
    NodePort,
    Near,
    Far,
    FarLocal,
    OwnPool,
    External,
    Sticky,
    Headless,
    Named,
    ManyPorts,
    Checked,
}

const SORTS: [Sort; 13] = [
    Sort::Plain,
    Sort::Dual,
    Sort::NodePort,
    Sort::Near,
    Sort::Far,
    Sort::FarLocal,
    Sort::OwnPool,
    Sort::External,
    Sort::Sticky,
    Sort::Headless,
    Sort::Named,
    Sort::ManyPorts,
    Sort::Checked,
];

impl Sort {
    const fn is_balanced(self) -> bool {
        matches!(self, Self::Near | Self::Far | Self::FarLocal | Self::OwnPool)
    }

    /// Returns true if the endpoints of a Service of this kind are in an EndpointSet of the same name.
    const fn has_set(self) -> bool {
        matches!(self, Self::Plain | Self::Sticky | Self::ManyPorts | Self::Checked | Self::Far)
    }
}

impl Estate {
    pub(super) fn new(seed: u64, index: u64, writers: u64, filling: u32) -> Self {
        let filling = (0..filling).filter(|number| u64::from(*number) % writers == index).collect();
        Self {
            index,
            random: Random::new(seed, index + 1),
            services: BTreeMap::new(),
            made: 0,
            externals: BTreeMap::new(),
            filling,
            changed: BTreeMap::new(),
            has_pool: false,
            undo: BTreeMap::new(),
        }
    }

    /// Chooses the next change of the writer at random.
    pub(super) fn next(&mut self) -> SoakChange {
        match self.random.below(100) {
            0..30 => self.other_endpoints(),
            30..40 => self.drained_endpoint(),
            40..58 if self.services.len() < SERVICES_MAX => self.new_service(),
            40..70 => self.removed_service(),
            70..84 => self.changed_service(),
            84..88 => self.pool(),
            88..91 => self.many(),
            _ => self.own_job(),
        }
    }

    /// Returns the requests that delete all objects of this writer and restore the permanent Services that it
    /// has changed.
    pub(super) fn tidy(&mut self) -> Vec<SoakCall> {
        let mut calls = Vec::new();
        for (name, sort) in std::mem::take(&mut self.services) {
            calls.extend(removal(&name, sort));
        }
        if std::mem::take(&mut self.has_pool) {
            calls.push(delete(format!("addresspools/{}?evict=true", self.pool_name())));
        }
        let sets = std::mem::take(&mut self.changed).into_keys();
        let sets: Vec<_> =
            sets.map(|number| endpoint_set(&filling_name(number), &filling_endpoints(number))).collect();
        if !sets.is_empty() {
            calls.push(apply(sets));
        }
        calls.extend(std::mem::take(&mut self.undo).into_values());
        calls
    }

    fn other_endpoints(&mut self) -> SoakChange {
        let number = self.filling[self.random.index(self.filling.len())];
        self.changed.insert(number, ());
        let endpoints: Vec<_> = self.endpoints(6).iter().map(endpoint).collect();
        let patch = json!({"spec": {"endpoints": endpoints}});
        one("other endpoints", patch_of(set_path(&filling_name(number)), patch))
    }

    /// Replaces the endpoints of a permanent Service, one of them in maintenance (mode `Drain` or
    /// `Maintenance`).
    fn drained_endpoint(&mut self) -> SoakChange {
        let number = self.filling[self.random.index(self.filling.len())];
        self.changed.insert(number, ());
        let mut endpoints: Vec<_> = self.endpoints(4).iter().map(endpoint).collect();
        let mode = if self.random.chance(50) { "Drain" } else { "Maintenance" };
        endpoints[0]["maintenance"] = json!({"mode": mode, "reason": "soak"});
        let patch = json!({"spec": {"endpoints": endpoints}});
        one("an endpoint drains", patch_of(set_path(&filling_name(number)), patch))
    }

    fn new_service(&mut self) -> SoakChange {
        self.made += 1;
        let name = format!("w{}-{}", self.index, self.made);
        let mut sort = SORTS[self.random.index(SORTS.len())];
        if sort == Sort::OwnPool && !self.has_pool {
            sort = Sort::Near;
        }
        let mut objects = vec![object("Service", &name, self.spec(&name, sort))];
        if sort.has_set() {
            objects.push(endpoint_set(&name, &self.endpoints(5)));
        }
        self.services.insert(name, sort);
        one("a new Service", apply(objects))
    }

    fn removed_service(&mut self) -> SoakChange {
        let Some((name, sort)) = self.any_service() else { return self.other_endpoints() };
        self.services.remove(&name);
        SoakChange { kind: "a Service is removed", calls: removal(&name, sort) }
    }

    fn changed_service(&mut self) -> SoakChange {
        let Some((name, sort)) = self.any_service() else { return self.new_service() };
        let port = 1000 + self.random.below(5000);
        let is_on = self.random.chance(50);
        let patch = match (sort, self.random.below(4)) {
            (Sort::Named, _) => json!({"externalName": format!("other-{port}.example")}),
            (Sort::Headless | Sort::ManyPorts, _) | (_, 0) => {
                json!({"ports": [{"name": "web", "port": port, "targetPort": BACKEND_PORT}]})
            }
            (_, 1) if is_on => affinity(),
            (_, 1) => json!({"sessionAffinity": "None", "sessionAffinityConfig": null}),
            (_, 2) if sort.is_balanced() => {
                let ranges =
                    json!(["172.16.0.0/12", "198.51.100.0/24", format!("192.0.{}.0/24", port % 200)]);
                json!({"loadBalancerSourceRanges": if is_on { ranges } else { json!([]) }})
            }
            (_, 2) => json!({"internalTrafficPolicy": if is_on { "Local" } else { "Cluster" }}),
            (_, _) => json!({"disabled": is_on}),
        };
        one("a Service is changed", patch_of(service_path(&name), json!({ "spec": patch })))
    }

    /// Creates the address pool of the writer, or changes or deletes the existing one.
    fn pool(&mut self) -> SoakChange {
        if self.has_pool && self.random.chance(40) {
            self.has_pool = false;
            return one("a pool goes", delete(format!("addresspools/{}?evict=true", self.pool_name())));
        }
        self.has_pool = true;
        let (index, last) = (self.index, 3 + self.random.below(12));
        let spec = json!({
            "addresses": [format!("10.201.{index}.0-10.201.{index}.{last}")], "autoAssign": false, "quarantineSeconds": 0,
        });
        one("a pool has other addresses", apply(vec![object("AddressPool", &self.pool_name(), spec)]))
    }

    /// Replaces the endpoints of several permanent Services in one request.
    fn many(&mut self) -> SoakChange {
        let count = 5 + self.random.index(15);
        let mut objects = BTreeMap::new();
        for _ in 0..count {
            let number = self.filling[self.random.index(self.filling.len())];
            self.changed.insert(number, ());
            objects.insert(number, endpoint_set(&filling_name(number), &self.endpoints(6)));
        }
        one("many at once", apply(objects.into_values().collect()))
    }

    /// Makes a change of the kind that is reserved for this writer, such as draining a Node. Each kind has one
    /// writer, so that no other one interferes.
    fn own_job(&mut self) -> SoakChange {
        let is_on = self.random.chance(50);
        match self.index {
            number @ 0..3 => self.spare_workload(number + 1, is_on),
            3 => {
                let spec = json!({"communities": [format!("64512:{}", self.random.below(1000))], "med": self.random.below(100)});
                let path = "/v1/advertisements/routed".to_owned();
                let undo = patch_of(path.clone(), json!({"spec": {"communities": null, "med": null}}));
                self.undo.insert(path.clone(), undo);
                one("routes have other attributes", patch_of(path, json!({ "spec": spec })))
            }
            4 => {
                let path = format!("/v1/nodes/node{}", 1 + self.random.below(3));
                let patch = |is_on: bool| {
                    let drain = json!({"mode": "Drain", "reason": "soak"});
                    json!({"spec": {"maintenance": if is_on { drain } else { Value::Null }}})
                };
                // One Node at a time: with all of them draining, no announcer would be left.
                let mut calls: Vec<_> = std::mem::take(&mut self.undo).into_values().collect();
                if is_on {
                    self.undo.insert(path.clone(), patch_of(path.clone(), patch(false)));
                    calls.push(patch_of(path, patch(true)));
                }
                if calls.is_empty() {
                    self.other_endpoints()
                } else {
                    SoakChange { kind: "a Node drains", calls }
                }
            }
            5 => {
                // At least one per node, so that a backend responds whatever happens to the others.
                let mut endpoints = vec![(1, 0, 1), (2, 0, 1), (3, 0, 1)];
                let more = (0..self.random.below(4)).map(|_| self.one_endpoint()).collect::<Vec<_>>();
                endpoints.extend(more.into_iter().filter(|(_, extra, _)| *extra > 0));
                endpoints.sort_unstable_by_key(|&(node, extra, _)| (node, extra));
                endpoints.dedup_by_key(|&mut (node, extra, _)| (node, extra));
                for (_, _, weight) in &mut endpoints {
                    *weight = 1 + u16::try_from(self.random.below(9)).unwrap_or(0);
                }
                let path = set_path(LIVE_SET);
                self.undo
                    .insert(path, apply(vec![endpoint_set(LIVE_SET, &[(1, 0, 1), (2, 0, 1), (3, 0, 1)])]));
                one("weights in use", apply(vec![endpoint_set(LIVE_SET, &endpoints)]))
            }
            _ => self.other_endpoints(),
        }
    }

    /// Sets the spare Workload `number` to not ready, draining or normal. Services with traffic have other
    /// endpoints too, so they remain reachable.
    fn spare_workload(&mut self, number: u64, is_on: bool) -> SoakChange {
        let path = format!("/v1/namespaces/default/workloads/spare-{number}");
        let whole = json!({"spec": {"ready": null, "maintenance": null}});
        self.undo.insert(path.clone(), patch_of(path.clone(), whole));
        let patch = if self.random.chance(50) {
            json!({"ready": is_on})
        } else if is_on {
            json!({"maintenance": {"mode": "Drain", "reason": "soak"}})
        } else {
            json!({"maintenance": null})
        };
        one("a Workload comes or goes", patch_of(path, json!({ "spec": patch })))
    }

    fn spec(&mut self, name: &str, sort: Sort) -> Value {
        let ports = json!([
            {"name": "web", "port": 80, "targetPort": BACKEND_PORT},
            {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": BACKEND_PORT},
        ]);
        let web = json!({"app": "web"});
        let balanced =
            |pool: &str| json!({"type": "LoadBalancer", "loadBalancer": {"pool": pool}, "ports": ports});
        let mut spec = match sort {
            Sort::Plain => json!({"ports": ports}),
            Sort::Dual => json!({"ipFamilyPolicy": "RequireDualStack", "ports": ports}),
            Sort::NodePort => json!({"type": "NodePort", "ports": ports}),
            Sort::Near => balanced("lan"),
            Sort::Far => balanced("routed"),
            Sort::FarLocal => {
                let mut spec = balanced("routed");
                spec["externalTrafficPolicy"] = json!("Local");
                spec
            }
            Sort::OwnPool => balanced(&self.pool_name()),
            Sort::External => {
                json!({"externalIPs": [format!("203.0.113.{}", self.free_external(name))], "ports": ports})
            }
            Sort::Sticky => {
                let mut spec = affinity();
                spec["ports"] = ports;
                spec
            }
            Sort::Headless => json!({"clusterIP": "None", "ports": ports}),
            Sort::Named => json!({"type": "ExternalName", "externalName": "elsewhere.example"}),
            Sort::ManyPorts => {
                let port = |number: u64| json!({"name": format!("p{number}"), "port": 9000 + number, "targetPort": BACKEND_PORT});
                json!({"ports": (0..20).map(port).collect::<Vec<_>>()})
            }
            Sort::Checked => {
                json!({"ports": ports, "healthCheck": {"type": "Tcp", "port": BACKEND_PORT, "intervalMs": 1000, "timeoutMs": 900}})
            }
        };
        if !sort.has_set() && sort != Sort::Named {
            spec["selector"] = web;
        }
        spec
    }

    /// Reserves an external address for the Service `name` and returns its last octet. No other Service of
    /// the writer has the address, because two Services with the same address and ports would conflict.
    fn free_external(&mut self, name: &str) -> u64 {
        let services = &self.services;
        self.externals.retain(|name, _| services.contains_key(name));
        let first = 20 + self.index * EXTERNALS;
        let start = self.random.below(EXTERNALS);
        let mut all = (0..EXTERNALS).map(|more| first + (start + more) % EXTERNALS);
        let free =
            all.find(|address| !self.externals.values().any(|taken| taken == address)).unwrap_or(first);
        self.externals.insert(name.to_owned(), free);
        free
    }

    fn any_service(&mut self) -> Option<(String, Sort)> {
        let at = self.random.index(self.services.len());
        self.services.iter().nth(at).map(|(name, sort)| (name.clone(), *sort))
    }

    /// Returns one to `most` distinct random endpoints, each as node number, index of its extra address, and
    /// weight.
    fn endpoints(&mut self, most: u64) -> Vec<(u8, u8, u16)> {
        let count = 1 + self.random.below(most);
        let mut endpoints: Vec<_> = (0..count).map(|_| self.one_endpoint()).collect();
        endpoints.sort_unstable_by_key(|&(node, extra, _)| (node, extra));
        endpoints.dedup_by_key(|&mut (node, extra, _)| (node, extra));
        endpoints
    }

    fn one_endpoint(&mut self) -> (u8, u8, u16) {
        let small = |number: u64| u8::try_from(number).unwrap_or(0);
        let node = 1 + small(self.random.below(3));
        let extra = small(self.random.below(u64::from(EXTRA_HOSTS)));
        (node, extra, 1 + u16::try_from(self.random.below(5)).unwrap_or(0))
    }

    fn pool_name(&self) -> String {
        format!("own-{}", self.index)
    }
}

fn one(kind: &'static str, call: SoakCall) -> SoakChange {
    SoakChange { kind, calls: vec![call] }
}

fn removal(name: &str, sort: Sort) -> Vec<SoakCall> {
    let service = delete(format!("namespaces/default/services/{name}"));
    let set = sort.has_set().then(|| delete(format!("namespaces/default/endpointsets/{name}")));
    std::iter::once(service).chain(set).collect()
}

fn apply(objects: Vec<Value>) -> SoakCall {
    SoakCall { method: "POST", path: "/v1/apply?evict=true".to_owned(), body: Some(Value::from(objects)) }
}

fn patch_of(path: String, patch: Value) -> SoakCall {
    SoakCall { method: "PATCH", path, body: Some(patch) }
}

fn delete(path: String) -> SoakCall {
    SoakCall { method: "DELETE", path: format!("/v1/{path}"), body: None }
}

fn service_path(name: &str) -> String {
    format!("/v1/namespaces/default/services/{name}")
}

fn set_path(name: &str) -> String {
    format!("/v1/namespaces/default/endpointsets/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_change_and_every_kind_comes() {
        let kinds = |seed| {
            let mut all = Vec::new();
            for index in 0..8 {
                let mut estate = Estate::new(seed, index, 8, 100);
                all.extend((0..400).map(|_| format!("{:?}", estate.next())));
            }
            all
        };
        assert_eq!(kinds(7), kinds(7));
        assert_ne!(kinds(7), kinds(8));
        for kind in [
            "other endpoints",
            "an endpoint drains",
            "a new Service",
            "a Service is removed",
            "a Service is changed",
            "a pool goes",
            "a pool has other addresses",
            "many at once",
            "a Workload comes or goes",
            "routes have other attributes",
            "a Node drains",
            "weights in use",
        ] {
            assert!(kinds(7).iter().any(|change| change.contains(kind)), "{kind}");
        }
    }

    #[test]
    fn no_two_services_of_a_writer_have_one_external_address() {
        let mut estate = Estate::new(5, 7, 8, 100);
        for number in 0..SERVICES_MAX {
            let name = format!("one-{number}");
            estate.services.insert(name.clone(), Sort::External);
            estate.free_external(&name);
        }
        let mut all: Vec<_> = estate.externals.values().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), SERVICES_MAX);
    }

    #[test]
    fn a_tidy_writer_has_nothing_to_tidy_again() {
        let mut estate = Estate::new(1, 4, 8, 100);
        (0..200).for_each(|_| _ = estate.next());
        assert!(!estate.tidy().is_empty());
        assert_eq!(estate.tidy().len(), 0);
    }
}
