//! Translates configurations of other load balancers into objects of ours, and says of every setting what became of it.
//! Documents in, objects and a report out; the crate has no runtime, reads no file and knows no clock.
//!
//! What must not happen: a restriction that cannot be carried over is dropped, and more Services or nodes than before get an
//! address or announce one. Such a pool gives on request only, and such an advertisement is left out.

mod fields;
pub mod json;
mod metallb_bgp;
mod metallb_bgp_announcing;
mod metallb_config;
mod metallb_objects;
pub mod parse;
mod pool;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use model::{
    community::Community,
    decode::{Expect, decode},
    metadata::Labels,
    name::Name,
};
use serde_json::{Map, Value, json};

pub use self::report::{Fidelity, Report};
use crate::json::{field_path, object_name, text};

/// What was made of an input.
#[derive(Debug, Default)]
pub struct Imported {
    /// Objects of ours that are valid in themselves, pools before what names them.
    pub objects: Vec<Value>,
    /// What became of every setting.
    pub report: Report,
}

/// Translates documents; `sources` are files with the objects in them, in order.
#[must_use]
pub fn translate(sources: &[(String, Vec<Value>)]) -> Imported {
    let mut draft = Draft::default();
    let all = || sources.iter().flat_map(|(file, documents)| documents.iter().map(move |at| (file, at)));
    // Advertisements select pools by label and name peers and communities, peers name profiles; all of these may come later.
    let mut documents: Vec<_> = all().collect();
    documents.sort_by_key(|(_, document)| match kind(document).as_str() {
        "IPAddressPool" | "Community" => 0,
        "BFDProfile" => 1,
        "BGPPeer" => 2,
        _ => 3,
    });
    for (file, document) in documents {
        one(&mut draft, file, document);
    }
    draft.finish()
}

fn one(draft: &mut Draft, file: &str, document: &Value) {
    let (kind, name) = (kind(document), text(document, "/metadata/name"));
    draft.report.begin(format!("{file}: {kind} {name}").trim_end());
    match (kind.as_str(), document.pointer("/data/config")) {
        ("ConfigMap", Some(embedded)) => metallb_config::embedded(draft, embedded),
        ("ConfigMap", None) => draft.report.ignored("data", "no `config`, where MetalLB has its settings"),
        ("IPAddressPool", _) => metallb_objects::pool(draft, document),
        ("AddressPool", _) => metallb_objects::old_pool(draft, document),
        ("L2Advertisement", _) => metallb_objects::advertisement(draft, document),
        ("BGPPeer", _) if is_metallb(document) => metallb_bgp::peer_object(draft, document),
        ("BFDProfile", _) => metallb_bgp::profile_object(draft, document),
        ("BGPAdvertisement", _) => metallb_bgp_announcing::advertisement_object(draft, document),
        ("Community", _) => metallb_bgp::communities_object(draft, document),
        ("", _) if metallb_config::is_config(document) => metallb_config::config(draft, document),
        (_, _) => draft.report.ignored("", "nothing here imports this kind"),
    }
}

/// Whether a document of a kind that others have as well is MetalLB's.
fn is_metallb(document: &Value) -> bool {
    text(document, "/apiVersion").starts_with("metallb.io/")
}

fn kind(document: &Value) -> String {
    text(document, "/kind")
}

/// Objects under construction.
#[derive(Debug, Default)]
struct Draft {
    /// By name, with the labels that they had.
    pools: BTreeMap<Name, (Labels, Map<String, Value>)>,
    /// By name.
    advertisements: BTreeMap<Name, Map<String, Value>>,
    /// By name.
    profiles: BTreeMap<Name, Map<String, Value>>,
    /// By name.
    peers: BTreeMap<Name, Map<String, Value>>,
    /// Communities that have names.
    communities: BTreeMap<String, Community>,
    /// Pools that something announces.
    announced: BTreeSet<Name>,
    report: Report,
}

impl Draft {
    fn finish(mut self) -> Imported {
        let all_announced = self.advertisements.values().any(|spec| !spec.contains_key("addressPools"));
        self.report.begin("All together");
        for name in self.pools.keys().filter(|name| !all_announced && !self.announced.contains(*name)) {
            self.report
                .note(&format!("addresspool/{name}"), "announced by nobody: no advertisement names it");
        }
        let none = Labels::default();
        let pools = self.pools.iter().map(|(name, (labels, spec))| object("AddressPool", name, labels, spec));
        let profiles = self.profiles.iter().map(|(name, spec)| object("BfdProfile", name, &none, spec));
        let peers = self.peers.iter().map(|(name, spec)| object("BgpPeer", name, &none, spec));
        let advertisements =
            self.advertisements.iter().map(|(name, spec)| object("Advertisement", name, &none, spec));
        let mut objects = Vec::new();
        for object in pools.chain(profiles).chain(peers).chain(advertisements).collect::<Vec<_>>() {
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
        Imported { objects, report: self.report }
    }
}

fn object(kind: &str, name: &Name, labels: &Labels, spec: &Map<String, Value>) -> Value {
    let mut metadata = json!({ "name": name });
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    json!({ "apiVersion": model::resource::API_VERSION, "kind": kind, "metadata": metadata, "spec": spec })
}
