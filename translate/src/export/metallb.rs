//! Export of pools and advertisements as MetalLB resources.

use model::{
    kinds::{
        address_pool::{AddressPoolSpec, AddressRange},
        advertisement::{AdvertisementSpec, AdvertisementType, WhenIsolated},
        metadata::Metadata,
    },
    primitives::{
        community::Community,
        net::{IpFamily, from_number},
    },
};
use serde_json::{Map, Value, json};

use super::{DocumentDraft, ExportResult, document, metadata_of};

/// API version of all MetalLB resources except the BGP peer.
pub(super) const API_VERSION: &str = "metallb.io/v1beta1";
/// Namespace in which MetalLB reads its resources.
pub(super) const NAMESPACE: &str = "metallb-system";

pub(super) fn pool(made: &mut ExportResult, metadata: &Metadata, spec: &AddressPoolSpec) {
    let AddressPoolSpec {
        addresses,
        reserved,
        auto_assign,
        avoid_buggy_ips,
        priority,
        namespaces,
        service_selectors,
        disabled,
        routed_externally,
        quarantine_seconds,
    } = spec;
    let mut line = DocumentDraft::new(made);
    let left = without(addresses, reserved);
    if left.is_empty() {
        line.lost("reserved", true, "left out: no address remains");
        return;
    }
    if reserved.is_empty() {
        line.put("addresses", "addresses", json!(addresses));
    } else {
        line.made.report.approximated("spec.reserved", "the ranges without the reserved addresses");
        line.spec.insert("addresses".to_owned(), json!(left));
    }
    if *disabled {
        line.made.report.approximated(
            "spec.disabled",
            "autoAssign: false; a Service that names it still gets an \
                                            address",
        );
    }
    line.same("autoAssign", json!(false), !*auto_assign || *disabled);
    line.same("avoidBuggyIPs", json!(true), *avoid_buggy_ips);
    let mut allocation = Map::new();
    let fields = [
        ("priority", json!(priority), priority.is_some()),
        ("namespaces", json!(namespaces), !namespaces.is_empty()),
        ("serviceSelectors", json!(service_selectors), !service_selectors.is_empty()),
    ];
    for (key, value, _) in fields.into_iter().filter(|(_, _, is_set)| *is_set) {
        line.made.report.mapped(&format!("spec.{key}"), &format!("spec.serviceAllocation.{key}"));
        allocation.insert(key.to_owned(), value);
    }
    if !allocation.is_empty() {
        line.spec.insert("serviceAllocation".to_owned(), Value::Object(allocation));
    }
    line.lost(
        "routedExternally",
        *routed_externally,
        "MetalLB does not report pools without an advertisement",
    );
    line.lost("quarantineSeconds", quarantine_seconds.is_some(), "MetalLB reassigns freed addresses at once");
    push(line, "IPAddressPool", metadata);
}

/// Returns the ranges of a pool without its reserved addresses. Ranges without reserved addresses stay
/// unchanged.
fn without(addresses: &[AddressRange], reserved: &[AddressRange]) -> Vec<AddressRange> {
    let mut left = addresses.to_vec();
    for out in reserved {
        left = left.iter().flat_map(|range| cut(range, out)).collect();
    }
    left
}

/// Returns the part of `range` outside of `out`: at most two ranges.
fn cut(range: &AddressRange, out: &AddressRange) -> Vec<AddressRange> {
    if !range.overlaps(out) {
        return vec![*range];
    }
    let (family, (first, last), (from, to)) = (range.family(), range.numbers(), out.numbers());
    let before = from.checked_sub(1).filter(|end| *end >= first).map(|end| (first, end));
    let behind = to.checked_add(1).filter(|begin| *begin <= last).map(|begin| (begin, last));
    let parts = before.into_iter().chain(behind);
    parts.filter_map(|(first, last)| between(family, first, last)).collect()
}

fn between(family: IpFamily, first: u128, last: u128) -> Option<AddressRange> {
    Some(AddressRange::Between(from_number(family, first)?, from_number(family, last)?))
}

pub(super) fn advertisement(made: &mut ExportResult, metadata: &Metadata, spec: &AdvertisementSpec) {
    let AdvertisementSpec {
        advertisement_type,
        address_pools,
        workload_networks,
        service_selectors,
        node_selectors,
        preferred_node_selectors,
        interfaces,
        answer_ping,
        when_isolated,
        peers,
        aggregation_length,
        aggregation_length_v6,
        local_pref,
        med,
        prepend,
        communities,
    } = spec;
    let mut line = DocumentDraft::new(made);
    line.lost(
        "workloadNetworks",
        !workload_networks.is_empty(),
        "MetalLB does not announce blocks of workloads",
    );
    if !spec.announces_addresses() {
        return;
    }
    line.put("addressPools", "ipAddressPools", json!(address_pools));
    line.put("serviceSelectors", "serviceSelectors", json!(service_selectors));
    if !node_selectors.is_empty() {
        line.made.report.approximated("spec.nodeSelectors", "match the labels of the cluster's nodes");
        line.spec.insert("nodeSelectors".to_owned(), json!(node_selectors));
    }
    line.lost("answerPing", !*answer_ping, "with MetalLB the node decides about ping replies");
    match advertisement_type {
        AdvertisementType::L2 => {
            line.put("preferredNodeSelectors", "preferredNodeSelectors", json!(preferred_node_selectors));
            line.put("interfaces", "interfaces", json!(interfaces));
            let withdraws = *when_isolated != WhenIsolated::Keep;
            line.lost("whenIsolated", withdraws, "with MetalLB an isolated owner keeps announcing");
            push(line, "L2Advertisement", metadata);
        }
        AdvertisementType::Bgp => {
            line.put("peers", "peers", json!(peers));
            line.put("aggregationLength", "aggregationLength", json!(aggregation_length));
            line.put("aggregationLengthV6", "aggregationLengthV6", json!(aggregation_length_v6));
            line.put("localPref", "localPref", json!(local_pref));
            line.lost("med", med.is_some(), "MetalLB does not send MULTI_EXIT_DISC");
            line.lost("prepend", prepend.is_some(), "MetalLB does not prepend AS numbers");
            let written: Result<Vec<String>, &Community> = communities.iter().map(community).collect();
            match written {
                Ok(written) => line.put("communities", "communities", json!(written)),
                Err(other) => {
                    // A community may restrict the propagation of a route, so it must not be dropped.
                    let reason =
                        format!("left out: `{other}` is an extended community, which MetalLB does not send");
                    line.lost("communities", true, &reason);
                    return;
                }
            }
            push(line, "BGPAdvertisement", metadata);
        }
    }
}

/// Formats a community numerically, as accepted by all versions of MetalLB. An extended community cannot be
/// exported and is returned as the error.
fn community(community: &Community) -> Result<String, &Community> {
    match community {
        Community::Standard(value) => Ok(format!("{}:{}", value >> 16, value & 0xffff)),
        Community::Large(_) => Ok(community.to_string()),
        Community::Extended(_) => Err(community),
    }
}

/// Completes the document with kind and metadata, and adds it to the result.
pub(super) fn push(line: DocumentDraft<'_>, kind: &str, metadata: &Metadata) {
    let version = if kind == "BGPPeer" { "metallb.io/v1beta2" } else { API_VERSION };
    let DocumentDraft { made, spec } = line;
    made.documents.push(document(version, kind, metadata_of(metadata, Some(NAMESPACE)), spec));
}
