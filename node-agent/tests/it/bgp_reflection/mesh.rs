//! Full mesh of speakers compared with two route reflectors: number of sessions and messages, and time until every
//! speaker has all routes. The times are printed and not judged.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

use bgp::export::Route;
use ipnet::{IpNet, Ipv4Net};
use model::{
    bgp::settings::{BgpNeighbour, BgpRemote, BgpState},
    kinds::bgp_peer::{BgpFamily, PeerAsn},
    primitives::name::Name,
};
use node_agent::{
    bfd::Bfd,
    bgp::{NeighborsStatus, Speaker},
    links::Links,
};
use tokio::sync::watch;

use crate::support::{
    Namespace,
    bgp::{OURS, name, neighbour},
};

/// Maximum time to wait for routes, after which the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of reflectors: the first speakers.
const REFLECTORS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    Mesh,
    Reflectors,
}

/// Result of one topology.
struct Measurement {
    sessions: usize,
    /// Time from the configuration until every speaker has all routes.
    start: Duration,
    /// Time from a new route of one speaker until every other one has it.
    change: Duration,
    /// Number of UPDATE messages that all speakers have sent.
    updates: u64,
}

fn address(speaker: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, speaker + 1)
}

fn block(speaker: u8, number: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 64 + number, speaker, 0), 24).into()
}

/// Returns the peers of a speaker: all others in a mesh, otherwise the reflectors, and for these all others.
fn peers(speaker: u8, count: u8, topology: Topology) -> BTreeMap<Name, BgpNeighbour> {
    let is_reflector = |speaker: u8| topology == Topology::Reflectors && speaker < REFLECTORS;
    let is_peer = |other: &u8| topology == Topology::Mesh || is_reflector(speaker) || is_reflector(*other);
    let peer = |other: u8| BgpNeighbour {
        remote: BgpRemote::Address(address(other).into()),
        peer_asn: PeerAsn::Internal,
        source_address: Some(IpAddr::V4(address(speaker))),
        ttl: 64,
        hold_time: 90,
        families: BTreeSet::from([BgpFamily::IPv4]),
        // One side connects, so that no two connections collide.
        passive: speaker < other,
        route_reflector_client: is_reflector(speaker) && !is_reflector(other),
        ..neighbour(OURS, "127.0.0.1", OURS)
    };
    let others = (0..count).filter(|other| *other != speaker).filter(is_peer);
    others.map(|other| (name(&format!("p{other}")), peer(other))).collect()
}

struct Stage {
    speakers: Vec<(Speaker, BgpState)>,
    bfd: Bfd,
    _links: watch::Sender<Links>,
}

impl Stage {
    fn start(namespace: &Namespace, count: u8, topology: Topology) -> Self {
        namespace.run(|| {
            let (sender, links) = watch::channel(Links::default());
            let bfd = Bfd::start().unwrap();
            let speaker = |number: u8| {
                let state = BgpState {
                    asn: OURS,
                    router_id: Ipv4Addr::new(192, 0, 2, number + 1),
                    is_draining: false,
                    peers: peers(number, count, topology),
                    advertisements: BTreeMap::new(),
                    blocks: BTreeMap::new(),
                };
                (Speaker::start(&name(&format!("n{number}")), bfd.share(), links.clone()).unwrap(), state)
            };
            Self { speakers: (0..count).map(speaker).collect(), bfd, _links: sender }
        })
    }

    fn shown(&self) -> Vec<NeighborsStatus> {
        self.speakers.iter().map(|(speaker, _)| speaker.shown().borrow().clone()).collect()
    }

    /// Announces block `number` of a speaker to all of its peers.
    fn announce(&self, speaker: u8, number: u8) {
        let (own, state) = &self.speakers[usize::from(speaker)];
        let prefix = block(speaker, number);
        own.change(state.peers.keys().map(|peer| (peer.clone(), prefix, Some(Route::default()))).collect());
    }

    /// Waits until every speaker has `expected` routes and returns the time. Each session of a client with a
    /// reflector carries all routes; in a mesh, all sessions together do.
    fn wait(&self, topology: Topology, expected: impl Fn(usize) -> u64) -> Duration {
        let begun = Instant::now();
        let lacking = || {
            let shown = self.shown();
            let lacks = |(number, status): &(usize, &NeighborsStatus)| {
                let mut counts = status.neighbours.values().map(|it| it.session.counters.prefixes_received);
                match topology {
                    Topology::Mesh => counts.sum::<u64>() != expected(*number),
                    Topology::Reflectors if *number < usize::from(REFLECTORS) => {
                        let reflected =
                            status.neighbours.values().map(|it| it.session.counters.prefixes_reflected);
                        reflected.sum::<u64>() < expected(*number)
                    }
                    Topology::Reflectors => !counts.all(|count| count == expected(*number)),
                }
            };
            shown.iter().enumerate().filter(lacks).map(|(number, _)| number).collect::<Vec<_>>()
        };
        while !lacking().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{:?} lack routes", lacking());
            thread::sleep(Duration::from_millis(1));
        }
        begun.elapsed()
    }
}

fn measure(namespace: &Namespace, count: u8, topology: Topology) -> Measurement {
    let stage = Stage::start(namespace, count, topology);
    let begun = Instant::now();
    for (speaker, state) in &stage.speakers {
        speaker.configure(Some(state));
    }
    (0..count).for_each(|speaker| stage.announce(speaker, 1));
    stage.wait(topology, |_| u64::from(count) - 1);
    let start = begun.elapsed();
    let shown = stage.shown();
    let ends: usize = shown.iter().map(|status| status.neighbours.len()).sum();
    let last = count - 1;
    stage.announce(last, 2);
    let change = stage.wait(topology, |number| u64::from(count) - u64::from(number == usize::from(last)));
    let sent = |status: &NeighborsStatus| -> u64 {
        status.neighbours.values().map(|it| it.session.counters.updates_sent).sum()
    };
    let updates = stage.shown().iter().map(sent).sum();
    let Stage { speakers, bfd, .. } = stage;
    drop((speakers, bfd));
    Measurement { sessions: ends / 2, start, change, updates }
}

/// F160: with two route reflectors, every speaker has all routes of the others as in a full mesh, over two sessions for
/// each client instead of one for each pair of speakers.
#[test]
fn f160_every_speaker_has_all_routes_by_two_reflectors_as_in_a_mesh() {
    let namespace = Namespace::new("bgp-mesh");
    namespace.ip(&["link", "set", "lo", "up"]);
    println!("| speakers | topology | sessions | first convergence | one change | UPDATE messages |");
    for count in [8_u8, 16, 32] {
        for topology in [Topology::Mesh, Topology::Reflectors] {
            let Measurement { sessions, start, change, updates } = measure(&namespace, count, topology);
            let n = usize::from(count);
            let expected = match topology {
                Topology::Mesh => n * (n - 1) / 2,
                Topology::Reflectors => 2 * (n - 2) + 1,
            };
            assert_eq!(sessions, expected, "{topology:?} of {count}");
            println!("| {count} | {topology:?} | {sessions} | {start:.0?} | {change:.1?} | {updates} |");
        }
    }
}
