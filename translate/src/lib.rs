//! Translates configurations of other load balancers into Tidegate objects, with a report on each setting,
//! and Tidegate objects into Kubernetes or MetalLB manifests ([`export`]). The functions receive and return
//! documents; the crate has no runtime and accesses neither files nor the clock.
//!
//! Invariant: a restriction that cannot be translated is never ignored, because more Services or nodes than
//! before would get or announce an address. A pool with such a restriction gets `autoAssign: false`, and an
//! advertisement with one is left out.

mod draft;
pub mod export;
mod fields;
mod ingress;
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

/// Objects and settings translated from the input, with the report.
#[derive(Debug, Default)]
pub struct ImportResult {
    /// Valid Tidegate objects, pools before objects that name them.
    pub objects: Vec<Value>,
    /// Agent settings, which are not objects, by their names in the file for `tidegate-agent --config`.
    pub agent_settings: BTreeMap<&'static str, Value>,
    /// Report on every setting of the input.
    pub report: Report,
}

/// Translates documents into Tidegate objects. `sources` are files with their documents, in order.
#[must_use]
pub fn translate(sources: &[(String, Vec<Value>)]) -> ImportResult {
    let mut draft = Draft::default();
    let documents: Vec<_> = sources
        .iter()
        .flat_map(|(file, documents)| documents.iter().map(move |at| (file.as_str(), at)))
        .collect();
    all(&mut draft, documents, None);
    draft.finish()
}

/// Translates documents into the draft. If `from` is given, documents of other formats are left out.
fn all(draft: &mut Draft, mut documents: Vec<(&str, &Value)>, from: Option<Format>) {
    // Advertisements select pools by label and name peers and communities, and peers name profiles; these are
    // processed first.
    documents.sort_by_key(|(_, document)| match kind(document).as_str() {
        "IPAddressPool" | "Community" | "Secret" => 0,
        "BFDProfile" => 1,
        "BGPPeer" => 2,
        _ => 3,
    });
    kubernetes_import::note_endpoints(draft, documents.iter().map(|(_, document)| *document));
    let imports_ingresses = from.is_none_or(|format| format == Format::Kubernetes);
    for (file, document) in &documents {
        // Ingresses depend on each other, and on Services and Secrets.
        if !(imports_ingresses && ingress::is_ingress(document)) {
            one(draft, file, document, from);
        }
    }
    if imports_ingresses {
        ingress::all(draft, &documents);
    }
}

fn one(draft: &mut Draft, file: &str, document: &Value, from: Option<Format>) {
    let (kind, name) = (kind(document), text(document, "/metadata/name"));
    draft.report.begin(format!("{file}: {kind} {name}").trim_end());
    // A KubeProxyConfiguration without a kind cannot be detected by its content.
    let is_bare = document.is_object() && kind.is_empty() && from == Some(Format::KubeProxy);
    let format = Format::of(document).or(from.filter(|_| is_bare));
    match (format, from) {
        (Some(is), Some(wanted)) if is != wanted => {
            draft.report.ignored("", &format!("format is {is}, but {wanted} was requested"));
        }
        (Some(Format::Metallb), _) => metallb(draft, document, &kind),
        (Some(Format::Kubernetes), _) if ingress::is_certificate(document) => {
            ingress::certificate(draft, document);
        }
        (Some(Format::Kubernetes), _) if ingress::settings::is_settings(document) => {
            ingress::settings::report(draft, document);
        }
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
        ("ConfigMap", None) => draft.report.ignored("data", "no key `config` with MetalLB settings"),
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
