//! Decides to which peers a prefix is advertised and with which attributes. Gives the reason for a prefix
//! that is withheld. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ::bgp::{ExtendedCommunity, LargeCommunity, export::Route};
use ipnet::IpNet;
use model::{
    bgp::settings::{BgpAdvertisement, BgpNeighbour, BgpState},
    kinds::bgp_peer::BgpFamily,
    primitives::{community::Community, name::Name},
};

/// Maximum number of addresses listed for a prefix. An aggregate may contain any number.
pub const ADDRESSES_SHOWN_MAX: usize = 256;

/// Load balancer addresses of a prefix, by the name of the Advertisement that maps them to the prefix.
pub type Members = BTreeMap<Name, Group>;

/// Load balancer addresses that one Advertisement maps to one prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    open: BTreeSet<IpAddr>,
    closed: BTreeSet<IpAddr>,
}

/// State of a load balancer address within a prefix on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// This node serves the address.
    Open,
    /// This node does not serve the address. Without a served address, the prefix is not advertised.
    Closed,
}

/// Decision about one prefix: the peers to which it is advertised, or the reason why it is withheld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Addresses for which the prefix is advertised, or would be if it were not withheld; at most
    /// [`ADDRESSES_SHOWN_MAX`].
    pub addresses: BTreeSet<IpAddr>,
    /// Decision for each peer that an Advertisement selects. Empty while this node serves no address of the
    /// prefix.
    pub peers: BTreeMap<Name, Choice>,
    /// Reason why the prefix is advertised to no peer; `None` if some peer receives it.
    pub withheld: Option<String>,
}

/// Decision about one prefix for one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The prefix is advertised.
    Announce {
        /// Attributes of the route, as configured by the Advertisements.
        route: Route,
        /// Description of the attributes in which several Advertisements differ; `None` if they all agree.
        note: Option<String>,
    },
    /// The prefix is withheld, for this reason.
    Withhold(String),
}

impl Group {
    /// Inserts an address, or changes its state.
    pub fn insert(&mut self, address: IpAddr, member: Member) {
        self.remove(address);
        match member {
            Member::Open => self.open.insert(address),
            Member::Closed => self.closed.insert(address),
        };
    }

    /// Removes an address from the group.
    pub fn remove(&mut self, address: IpAddr) {
        self.open.remove(&address);
        self.closed.remove(&address);
    }

    /// Returns true if the group contains no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty()
    }
}

impl Decision {
    /// Returns the route to advertise to a peer, or `None` if the prefix is withheld from that peer.
    #[must_use]
    pub fn route(&self, peer: &Name) -> Option<&Route> {
        match self.peers.get(peer)? {
            Choice::Announce { route, .. } => Some(route),
            Choice::Withhold(_) => None,
        }
    }
}

/// Decides to which peers a prefix is advertised and with which attributes, from the addresses of the prefix
/// and the Advertisements that select them. `obstacle` returns the reason why this node does not serve an
/// address, or `None` if the node serves it. A block of a workload network is served by its node always, also
/// during a drain, because no other node reaches its workloads.
#[must_use]
pub fn decide<'a>(
    prefix: &IpNet,
    members: &Members,
    bgp: &BgpState,
    obstacle: impl Fn(&IpAddr) -> Option<&'a str>,
) -> Decision {
    let block_by = bgp.blocks.get(prefix);
    let is_served = members.values().any(|group| !group.open.is_empty());
    if block_by.is_none() && (bgp.is_draining || !is_served) {
        let withheld = if bgp.is_draining {
            "the node is being drained".to_owned()
        } else {
            unserved(members.values(), &obstacle)
        };
        let addresses = members.values().flat_map(|group| group.open.iter().chain(&group.closed));
        let addresses = addresses.copied().take(ADDRESSES_SHOWN_MAX).collect();
        return Decision { addresses, peers: BTreeMap::new(), withheld: Some(withheld) };
    }
    let mut peers = BTreeMap::new();
    for (peer, neighbour) in &bgp.peers {
        let named =
            members.iter().filter_map(|(name, group)| Some((name, bgp.advertisements.get(name)?, group)));
        let meant: Vec<_> = named.filter(|(_, advertisement, _)| means(advertisement, peer)).collect();
        let of_block: BTreeMap<&Name, &BgpAdvertisement> = block_by
            .into_iter()
            .flatten()
            .filter_map(|name| Some((name, bgp.advertisements.get(name)?)))
            .filter(|(_, advertisement)| means(advertisement, peer))
            .collect();
        if meant.is_empty() && of_block.is_empty() {
            continue;
        }
        let open = meant.iter().filter(|(_, _, group)| !group.open.is_empty() && !bgp.is_draining);
        let of_addresses = open.map(|(name, advertisement, _)| (*name, *advertisement));
        let by: Vec<_> = of_block.into_iter().chain(of_addresses).collect();
        let choice = if by.is_empty() {
            Choice::Withhold(unserved(meant.iter().map(|(_, _, group)| *group), &obstacle))
        } else {
            choose(prefix, neighbour, &by)
        };
        peers.insert(peer.clone(), choice);
    }
    let is_announced = peers.values().any(|choice| matches!(choice, Choice::Announce { .. }));
    let withheld = match (is_announced, peers.is_empty()) {
        (true, _) => None,
        (false, true) => Some("this node has none of the peers that it is to be announced to".to_owned()),
        (false, false) => Some("none of the peers can be told of it".to_owned()),
    };
    let addresses = members.values().flat_map(|group| &group.open);
    Decision { addresses: addresses.copied().take(ADDRESSES_SHOWN_MAX).collect(), peers, withheld }
}

fn means(advertisement: &BgpAdvertisement, peer: &Name) -> bool {
    advertisement.peers.is_empty() || advertisement.peers.contains(peer)
}

/// Returns the reason why this node serves no address of the prefix: the reason for the first address, and a
/// note if there are further addresses.
fn unserved<'a, 'b>(
    groups: impl Iterator<Item = &'b Group> + Clone,
    obstacle: impl Fn(&IpAddr) -> Option<&'a str>,
) -> String {
    let Some(first) = groups.clone().filter_map(|group| group.closed.first()).min() else {
        return "it has no addresses".to_owned();
    };
    let why = obstacle(first).unwrap_or("it is not served here");
    let has_others = groups.clone().any(|group| group.closed.last().is_some_and(|last| last != first));
    if has_others { format!("{first}: {why}; nor are the others served here") } else { why.to_owned() }
}

fn choose(prefix: &IpNet, neighbour: &BgpNeighbour, by: &[(&Name, &BgpAdvertisement)]) -> Choice {
    let (family, word) = match prefix {
        IpNet::V4(_) => (BgpFamily::IPv4, "IPv4"),
        IpNet::V6(_) => (BgpFamily::IPv6, "IPv6"),
    };
    if !neighbour.families.contains(&family) {
        return Choice::Withhold(format!("no routes of {word} are exchanged with this peer"));
    }
    let mut route = Route::default();
    if let Some((_, first)) = by.first() {
        (route.med, route.local_pref, route.prepend) = (first.med, first.local_pref, first.prepend);
    }
    let communities = by.iter().flat_map(|(_, advertisement)| &advertisement.communities);
    communities.for_each(|community| add(&mut route, *community));
    let notes = differences(by);
    Choice::Announce { route, note: (!notes.is_empty()).then(|| notes.join("; ")) }
}

fn add(route: &mut Route, community: Community) {
    match community {
        Community::Standard(value) => {
            route.communities.insert(::bgp::Community(value));
        }
        Community::Extended(bytes) => {
            route.extended_communities.insert(ExtendedCommunity(bytes));
        }
        Community::Large(parts) => {
            route.large_communities.insert(LargeCommunity(parts));
        }
    }
}

/// Returns the names of the fields in which Advertisements differ from the first one, whose values are used.
fn differences(by: &[(&Name, &BgpAdvertisement)]) -> Vec<String> {
    let Some(((first_name, first), others)) = by.split_first() else { return Vec::new() };
    let say = |value: Option<u32>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let mut notes = Vec::new();
    for (name, other) in others {
        let fields = [
            ("med", first.med, other.med),
            ("localPref", first.local_pref, other.local_pref),
            ("prepend", Some(first.prepend.into()), Some(other.prepend.into())),
        ];
        for (field, counts, otherwise) in fields.into_iter().filter(|(_, counts, other)| counts != other) {
            notes.push(format!(
                "advertisement/{name} says {field} {}, but {} of advertisement/{first_name} counts",
                say(otherwise),
                say(counts),
            ));
        }
    }
    notes
}
