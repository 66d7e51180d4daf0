//! Result of an import under construction: the Tidegate objects so far, and the report on the input.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
};

use model::{
    admission::decode::{Expect, decode},
    kinds::{
        metadata::Labels,
        resource::{API_VERSION, Kind},
    },
    primitives::{community::Community, name::Name},
};
use serde_json::{Map, Value, json};

use crate::{
    ImportResult,
    json::{field_path, object_name, text},
    report::Report,
};

/// Namespace and name of a Service in the input of an import.
pub(crate) type ServiceId = (String, String);

/// Tidegate objects under construction, by kind and name. Also contains the report, and data that several
/// translations use.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Pools by name, with their labels.
    pub(crate) pools: BTreeMap<Name, (Labels, Map<String, Value>)>,
    /// Advertisements (L2 and BGP) by name.
    pub(crate) advertisements: BTreeMap<Name, Map<String, Value>>,
    /// BFD profiles by name.
    pub(crate) profiles: BTreeMap<Name, Map<String, Value>>,
    /// BGP peers by name.
    pub(crate) peers: BTreeMap<Name, Map<String, Value>>,
    /// BGP communities that the input defines by name.
    pub(crate) communities: BTreeMap<String, Community>,
    /// Names of the pools that at least one advertisement announces.
    pub(crate) announced: BTreeSet<Name>,
    /// Complete objects of the other kinds, in `apply` order.
    others: BTreeMap<(Kind, String, String), Value>,
    /// Services with EndpointSlices in the input.
    pub(crate) sliced: BTreeSet<ServiceId>,
    /// Services with Endpoints in the input.
    pub(crate) with_endpoints: BTreeSet<ServiceId>,
    /// Pool that contains the address of a virtual server, by address.
    pub(crate) homes: BTreeMap<IpAddr, Name>,
    /// Settings for the agents' configuration files.
    pub(crate) agent_settings: BTreeMap<&'static str, Value>,
    /// Report on every setting of the input.
    pub(crate) report: Report,
}

impl Draft {
    /// Adds a complete object of a kind to which no other input object refers. A duplicate is reported and
    /// left out.
    pub(crate) fn add(&mut self, kind: Kind, object: Value) {
        let key = (kind, text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let name = object_name(&object);
        match self.others.entry(key) {
            Entry::Occupied(_) => self.report.ignored("", &format!("duplicate {name}; it is left out")),
            Entry::Vacant(place) => drop(place.insert(object)),
        }
    }

    /// Returns true if [`Self::add`] has added the object with this kind, namespace and name. Pools,
    /// advertisements, peers and profiles are stored elsewhere and are never found.
    pub(crate) fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.others.contains_key(&(kind, namespace.to_owned(), name.to_owned()))
    }

    /// Returns the valid objects of the draft, and the report, in which invalid objects are listed with the
    /// reason.
    pub(crate) fn finish(mut self) -> ImportResult {
        let all_announced = self.advertisements.values().any(|spec| !spec.contains_key("addressPools"));
        self.report.begin("All together");
        for name in self.pools.keys().filter(|name| !all_announced && !self.announced.contains(*name)) {
            self.report.note(&format!("addresspool/{name}"), "not announced: no advertisement names it");
        }
        let none = Labels::default();
        let pools = self.pools.iter().map(|(name, (labels, spec))| object("AddressPool", name, labels, spec));
        let profiles = self.profiles.iter().map(|(name, spec)| object("BfdProfile", name, &none, spec));
        let peers = self.peers.iter().map(|(name, spec)| object("BgpPeer", name, &none, spec));
        let advertisements =
            self.advertisements.iter().map(|(name, spec)| object("Advertisement", name, &none, spec));
        let others = std::mem::take(&mut self.others).into_values();
        let all: Vec<Value> =
            pools.chain(profiles).chain(peers).chain(advertisements).chain(others).collect();
        let mut objects = Vec::new();
        for object in all {
            match decode(&object, &Expect::default()) {
                Ok(_) => objects.push(object),
                Err(violations) => {
                    for violation in violations {
                        let at = format!("{} {}", object_name(&object), field_path(&violation.pointer));
                        self.report.ignored(&at, &format!("left out: {}", violation.message));
                    }
                }
            }
        }
        ImportResult { objects, agent_settings: self.agent_settings, report: self.report }
    }
}

fn object(kind: &str, name: &Name, labels: &Labels, spec: &Map<String, Value>) -> Value {
    let mut metadata = json!({ "name": name });
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec })
}
