//! Translates configurations of other load balancers into objects of ours, and says of every setting what became of it; and
//! objects of ours back into theirs ([`export`]). Documents in, objects and a report out; the crate has no runtime, reads no
//! file and knows no clock.
//!
//! What must not happen: a restriction that cannot be carried over is dropped, and more Services or nodes than before get an
//! address or announce one. Such a pool gives on request only, and such an advertisement is left out.

mod draft;
pub mod export;
mod fields;
mod ipvsadm;
pub mod json;
mod keepalived;
mod kube_proxy;
pub mod kubernetes;
mod kubernetes_import;
mod metallb;
pub mod parse;
mod pool;
mod report;
mod source;
mod virtual_server;

use std::collections::BTreeMap;

use serde_json::Value;

pub use self::{
    report::{Fidelity, Report},
    source::{Format, Source, import},
};
use crate::{draft::Draft, json::text};

/// What was made of an input.
#[derive(Debug, Default)]
pub struct Imported {
    /// Objects of ours that are valid in themselves, pools before what names them.
    pub objects: Vec<Value>,
    /// Settings of agents, which are no objects: for the file behind `tidegate-agent --config`, by their names there.
    pub agent_settings: BTreeMap<&'static str, Value>,
    /// What became of every setting.
    pub report: Report,
}

/// Translates documents; `sources` are files with the objects in them, in order.
#[must_use]
pub fn translate(sources: &[(String, Vec<Value>)]) -> Imported {
    let mut draft = Draft::default();
    let documents: Vec<_> = sources
        .iter()
        .flat_map(|(file, documents)| documents.iter().map(move |at| (file.as_str(), at)))
        .collect();
    all(&mut draft, documents, None);
    draft.finish()
}

/// Translates documents into a draft; with `from`, those of this format only.
fn all(draft: &mut Draft, mut documents: Vec<(&str, &Value)>, from: Option<Format>) {
    // Advertisements select pools by label and name peers and communities, peers name profiles; all of these may come later.
    documents.sort_by_key(|(_, document)| match kind(document).as_str() {
        "IPAddressPool" | "Community" => 0,
        "BFDProfile" => 1,
        "BGPPeer" => 2,
        _ => 3,
    });
    kubernetes_import::note_endpoints(draft, documents.iter().map(|(_, document)| *document));
    for (file, document) in documents {
        one(draft, file, document, from);
    }
}

fn one(draft: &mut Draft, file: &str, document: &Value, from: Option<Format>) {
    let (kind, name) = (kind(document), text(document, "/metadata/name"));
    draft.report.begin(format!("{file}: {kind} {name}").trim_end());
    // It may stand alone without its kind, and nothing else that is in it tells it from others.
    let is_bare = document.is_object() && kind.is_empty() && from == Some(Format::KubeProxy);
    let format = Format::of(document).or(from.filter(|_| is_bare));
    match (format, from) {
        (Some(is), Some(wanted)) if is != wanted => {
            draft.report.ignored("", &format!("of {is}, and only {wanted} was asked for"));
        }
        (Some(Format::Metallb), _) => metallb(draft, document, &kind),
        (Some(Format::Kubernetes), _) => kubernetes_import::document(draft, document, &kind),
        (Some(Format::KubeProxy), _) => kube_proxy::document(draft, document),
        (Some(Format::Ipvsadm | Format::Keepalived) | None, _) => {
            draft.report.ignored("", &kubernetes_import::refusal(&kind));
        }
    }
}

fn metallb(draft: &mut Draft, document: &Value, kind: &str) {
    match (kind, document.pointer("/data/config")) {
        ("ConfigMap", Some(embedded)) => metallb::config_map::embedded(draft, embedded),
        ("ConfigMap", None) => draft.report.ignored("data", "no `config`, where MetalLB has its settings"),
        ("IPAddressPool", _) => metallb::resources::pool(draft, document),
        ("AddressPool", _) => metallb::resources::old_pool(draft, document),
        ("L2Advertisement", _) => metallb::resources::advertisement(draft, document),
        ("BGPPeer", _) => metallb::bgp::peer_object(draft, document),
        ("BFDProfile", _) => metallb::bgp::profile_object(draft, document),
        ("BGPAdvertisement", _) => metallb::bgp_advertisements::advertisement_object(draft, document),
        ("Community", _) => metallb::bgp::communities_object(draft, document),
        (_, _) => metallb::config_map::config(draft, document),
    }
}

fn kind(document: &Value) -> String {
    text(document, "/kind")
}
