//! Tidegate's side of the interoperability tests: a BGP speaker in a namespace, driven by the test as an
//! agent drives it.

use std::{collections::BTreeMap, net::Ipv4Addr};

use bgp::{
    attributes::{Community, ExtendedCommunity, LargeCommunity},
    export::Route,
};
use model::{
    bgp::{
        report::{BgpSession, BgpSessionState},
        settings::{BgpNeighbour, BgpRemote, BgpState},
    },
    kinds::bgp_peer::{BGP_PORT, BgpFamily, HOLD_TIME_DEFAULT, MAX_PREFIXES_DEFAULT, PeerAsn},
    primitives::{name::Name, secret::Secret},
};
use node_agent::{
    bfd::Bfd,
    bgp::{Leave, NeighborsStatus, Speaker},
    links::follow::Follower,
};
use tokio::runtime::{Builder, Runtime};

use crate::support::{Namespace, bfd::eventually};

/// BGP Identifier of Tidegate's speaker.
const ROUTER_ID: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// BGP speaker of Tidegate with its peers.
pub struct Ours {
    speaker: Speaker,
    runtime: Runtime,
    state: BgpState,
}

impl Ours {
    pub fn start(namespace: &Namespace, peers: &[(&str, BgpNeighbour)]) -> Self {
        let ours = Self::silent(namespace, peers);
        ours.speaker.configure(Some(&ours.state));
        ours
    }

    /// Creates a speaker with these peers but does not apply their configuration yet, so that it does not
    /// connect.
    fn silent(namespace: &Namespace, peers: &[(&str, BgpNeighbour)]) -> Self {
        let peers: BTreeMap<_, _> = peers.iter().map(|(peer, how)| (name(peer), how.clone())).collect();
        let state = BgpState {
            asn: super::OUR_ASN,
            router_id: ROUTER_ID,
            is_draining: false,
            peers,
            advertisements: BTreeMap::new(),
            blocks: BTreeMap::new(),
        };
        namespace.run(move || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let inside = runtime.enter();
            let (follower, links) = Follower::open().unwrap();
            runtime.spawn(follower.run());
            let speaker = Speaker::start(&name("node1"), Bfd::start().unwrap(), links).unwrap();
            drop(inside);
            Self { speaker, runtime, state }
        })
    }

    /// Starts a speaker as an agent does after a restart: the End-of-RIB marker is only sent after
    /// [`Self::complete`].
    pub fn restarted(namespace: &Namespace, peers: &[(&str, BgpNeighbour)]) -> Self {
        let ours = Self::silent(namespace, peers);
        ours.speaker.hold_end_of_rib(true);
        ours.speaker.configure(Some(&ours.state));
        ours
    }

    /// Informs the speaker that all routes have been announced, so that it sends the End-of-RIB marker.
    pub fn complete(&self) {
        self.speaker.hold_end_of_rib(false);
    }

    /// Changes the configuration of one peer and applies it.
    pub fn change(&mut self, peer: &str, change: impl FnOnce(&mut BgpNeighbour)) {
        change(self.state.peers.get_mut(&name(peer)).unwrap());
        self.speaker.configure(Some(&self.state));
    }

    /// Announces prefixes to all peers, each with the attributes of `route`.
    pub fn announce(&self, prefixes: &[&str], route: &Route) {
        self.tell(prefixes, Some(route));
    }

    pub fn withdraw(&self, prefixes: &[&str]) {
        self.tell(prefixes, None);
    }

    fn tell(&self, prefixes: &[&str], route: Option<&Route>) {
        let peers = self.state.peers.keys();
        let told = |peer: &Name| {
            let peer = peer.clone();
            prefixes.iter().map(move |prefix| (peer.clone(), prefix.parse().unwrap(), route.cloned()))
        };
        self.speaker.change(peers.flat_map(told).collect());
    }

    pub fn shown(&self) -> NeighborsStatus {
        self.speaker.shown().borrow().clone()
    }

    /// Returns the sessions with a peer. A dynamic peer (any neighbor in a network) may have several.
    pub fn sessions(&self, peer: &str) -> Vec<BgpSession> {
        let shown = self.shown();
        let of_peer = shown.neighbours.iter().filter(|(key, _)| key.peer.as_str() == peer);
        of_peer.map(|(_, neighbour)| neighbour.session.clone()).collect()
    }

    /// Waits until a session with a peer satisfies a condition, and returns the session.
    pub fn wait(&self, peer: &str, what: &str, is_so: impl Fn(&BgpSession) -> bool) -> BgpSession {
        let holds = || self.sessions(peer).iter().any(&is_so);
        eventually(what, holds, || format!("{:#?}", self.sessions(peer)));
        self.sessions(peer).into_iter().find(is_so).unwrap()
    }

    pub fn wait_established(&self, peer: &str) -> BgpSession {
        self.wait(peer, "established", |session| session.state == BgpSessionState::Established)
    }

    /// Returns the prefixes announced to a peer in the current session.
    pub fn told(&self, peer: &str) -> Vec<String> {
        let shown = self.shown();
        let of_peer = shown.neighbours.iter().filter(|(key, _)| key.peer.as_str() == peer);
        of_peer.flat_map(|(_, neighbour)| neighbour.told.keys().map(ToString::to_string)).collect()
    }

    pub fn leave(self, how: Leave) {
        self.runtime.block_on(self.speaker.leave(how));
    }
}

/// Builds the configuration of a neighbor at an address on the same link.
pub fn neighbour(remote: &str, peer_asn: u32) -> BgpNeighbour {
    let is_internal = peer_asn == super::OUR_ASN;
    BgpNeighbour {
        remote: BgpRemote::Address(remote.parse().unwrap()),
        peer_asn: PeerAsn::Number(peer_asn),
        local_asn: super::OUR_ASN,
        port: BGP_PORT,
        source_address: None,
        device: None,
        hold_time: HOLD_TIME_DEFAULT,
        keepalive_time: None,
        connect_time: 1,
        password: None,
        ttl: if is_internal { 64 } else { 1 },
        ttl_security: None,
        passive: false,
        families: [BgpFamily::IPv4, BgpFamily::IPv6].into(),
        graceful_restart: None,
        role: None,
        bfd: None,
        max_prefixes: MAX_PREFIXES_DEFAULT,
        route_reflector_client: false,
    }
}

pub fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text.to_owned()))
}

/// Builds a route with these communities, given in the notation of `model::community`.
pub fn route(communities: &[&str]) -> Route {
    let mut route = Route::default();
    for community in communities {
        match community.parse().unwrap() {
            model::primitives::community::Community::Standard(value) => {
                _ = route.communities.insert(Community(value))
            }
            model::primitives::community::Community::Extended(bytes) => {
                _ = route.extended_communities.insert(ExtendedCommunity(bytes));
            }
            model::primitives::community::Community::Large(values) => {
                _ = route.large_communities.insert(LargeCommunity(values));
            }
        }
    }
    route
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}
