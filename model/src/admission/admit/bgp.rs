//! Admission rules between BgpPeers, BfdProfiles, BGP Advertisements, pools, Nodes and Services. A write is
//! refused if it would create a configuration that cannot work, or that attracts traffic for addresses outside of
//! Tidegate's pools.
//!
//! Only the objects of the write are checked, each against all others: a conflict caused by Node labels, which
//! agents set, does not block unrelated writes.

use super::staged_object::StagedObject;
use crate::{
    bgp::compile::{advertisements, identity, is_external, peers},
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        advertisement::{AdvertisementSpec, AdvertisementType},
        bgp_peer::BgpPeerSpec,
        metadata::Labels,
        resource::{Kind, Object, ObjectKey, Spec},
        selector::Selector,
    },
    primitives::{
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

mod addresses;
mod announcing;
mod peers;

pub(super) use self::addresses::check_addresses;

/// Checks the BGP objects of a request against each other and the rest of the state. `snapshot` must already
/// contain all objects of the request.
pub(super) fn check(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    staged: &[StagedObject],
    pruned: &[ObjectKey],
    found: &mut Vec<Violation>,
) {
    let rules = BgpRules { snapshot, config };
    for staged_object in staged {
        let mut own = Vec::new();
        let name = &staged_object.key.name;
        match staged_object.new.as_ref().map(|object| &object.spec) {
            Some(Spec::BgpPeer(spec)) => rules.check_peer(name, spec, staged, &mut own),
            Some(Spec::Advertisement(spec)) if spec.advertisement_type == AdvertisementType::Bgp => {
                rules.check_advertisement(name, spec, &mut own);
            }
            Some(Spec::AddressPool(_)) => rules.check_pools("/spec/addresses", staged, &mut own),
            None if staged_object.key.kind == Kind::AddressPool => rules.check_pools("", staged, &mut own),
            Some(_) | None => {}
        }
        found.extend(own.into_iter().map(|violation| staged_object.place(violation)));
    }
    let removed = staged
        .iter()
        .filter(|staged_object| staged_object.new.is_none())
        .map(|staged_object| &staged_object.key);
    for key in removed.chain(pruned) {
        rules.check_removed(key, found);
    }
}

const fn length_field(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "/spec/aggregationLength",
        IpFamily::V6 => "/spec/aggregationLengthV6",
    }
}

/// Session types (internal, external) that a BgpPeer has on the Nodes that it selects.
#[derive(Debug, Clone, Copy, Default)]
struct SessionTypes {
    internal: bool,
    external: bool,
}

struct BgpRules<'a> {
    snapshot: &'a Snapshot,
    config: &'a ClusterConfig,
}

impl BgpRules<'_> {
    /// Returns text that describes the Nodes which both selector lists match; `None` if no Node matches both.
    fn meeting(&self, a: &[Selector], b: &[Selector]) -> Option<String> {
        if a.is_empty() || b.is_empty() || a == b {
            return Some("every Node that it selects".to_owned());
        }
        let both = |labels: &Labels| Selector::any_matches(a, labels) && Selector::any_matches(b, labels);
        self.nodes()
            .find(|node| both(&node.metadata.labels))
            .map(|node| format!("Node {}", node.metadata.name))
    }

    fn nodes(&self) -> impl Iterator<Item = &Object> {
        self.snapshot.list(Kind::Node, None, None).map(|object| &**object)
    }

    /// Returns the existing Nodes that the selectors match.
    fn selected<'b>(&'b self, selectors: &'b [Selector]) -> impl Iterator<Item = &'b Object> + 'b {
        self.nodes().filter(|node| Selector::any_matches(selectors, &node.metadata.labels))
    }

    fn session_types(&self, spec: &BgpPeerSpec) -> SessionTypes {
        let mut types = SessionTypes::default();
        let mut note = |local: u32| match is_external(spec.peer_asn, local) {
            true => types.external = true,
            false => types.internal = true,
        };
        if let Some(local) = spec.local_asn {
            note(local);
            return types;
        }
        let mut is_anywhere = false;
        for node in self.selected(&spec.node_selectors) {
            let Spec::Node(of) = &node.spec else { continue };
            note(identity(&node.metadata.name, of, self.config.asn()).asn);
            is_anywhere = true;
        }
        if !is_anywhere {
            note(self.config.asn());
        }
        types
    }

    /// Adds a violation if the object `key`, which the write deletes, is a BfdProfile or BgpPeer that another
    /// object references.
    fn check_removed(&self, key: &ObjectKey, found: &mut Vec<Violation>) {
        let user = match key.kind {
            Kind::BfdProfile => {
                let user =
                    peers(self.snapshot).find(|(_, spec)| spec.bfd_profile.as_ref() == Some(&key.name));
                user.map(|(name, _)| {
                    (format!("BgpPeer {name}"), "take it out of spec.bfdProfile of the BgpPeer")
                })
            }
            Kind::BgpPeer => {
                let user = advertisements(self.snapshot).find(|(_, spec)| spec.peers.contains(&key.name));
                user.map(|(name, _)| {
                    (format!("Advertisement {name}"), "take it out of spec.peers of the Advertisement")
                })
            }
            Kind::WorkloadNetwork => {
                let names = |spec: &AdvertisementSpec| spec.workload_networks.contains(&key.name);
                let user = advertisements(self.snapshot).find(|(_, spec)| names(spec));
                user.map(|(name, _)| {
                    (
                        format!("Advertisement {name}"),
                        "take it out of spec.workloadNetworks of the Advertisement",
                    )
                })
            }
            Kind::Node
            | Kind::AddressPool
            | Kind::Advertisement
            | Kind::DnsZone
            | Kind::Certificate
            | Kind::Gateway
            | Kind::HttpRoute
            | Kind::TlsRoute
            | Kind::NetworkPolicy
            | Kind::Workload
            | Kind::Service
            | Kind::EndpointSet
            | Kind::EndpointHealth
            | Kind::Address
            | Kind::Block
            | Kind::Attachment => None,
        };
        if let Some((user, remedy)) = user {
            let message = format!("{key} must stay while {user} names it");
            found.push(
                Violation::new("", ViolationCode::InUse, message)
                    .hint(format!("{remedy} first, or delete that too")),
            );
        }
    }
}
