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

/// Result of an import under construction: the Tidegate objects by kind and name, the report on the input,
/// and data that several translations share.
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
    /// Complete objects of all kinds without a field of their own here, in the order in which they must be
    /// applied.
    others: BTreeMap<(Kind, String, String), Value>,
    /// Services with EndpointSlices in the input.
    pub(crate) sliced: BTreeSet<ServiceId>,
    /// Services with Endpoints in the input.
    pub(crate) with_endpoints: BTreeSet<ServiceId>,
    /// True if Secrets with certificates are translated apart from the other input.
    pub(crate) has_other_certificates: bool,
    /// Addresses that already are in a pool of the draft, each with the name of the pool.
    pub(crate) homes: BTreeMap<IpAddr, Name>,
    /// Settings for the agents' configuration files.
    pub(crate) agent_settings: BTreeMap<&'static str, Value>,
    /// Report on every setting of the input.
    pub(crate) report: Report,
}

impl Draft {
    /// Creates a draft of input whose Secrets with certificates are translated apart.
    pub(crate) fn without_certificates() -> Self {
        Self { has_other_certificates: true, ..Self::default() }
    }

    /// Adds a complete object of any kind other than pool, advertisement, BFD profile and BGP peer, which are
    /// fields of the draft. A duplicate is reported and left out.
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

    /// Returns the valid objects of the draft, and the report. The report lists the invalid objects with
    /// reasons.
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
