//! Model of an AS with route reflectors and clients: messages between them are delivered in any order between
//! different pairs of speakers, and in order between the same two.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::Ipv4Addr,
};

use bgp::{
    Attributes,
    attributes::NextHop,
    reflector::{PeerKind, ReflectedPeer, Reflector},
};
use ipnet::{IpNet, Ipv4Net};
use proptest::prelude::*;

use super::{AS, attributes};

/// Limit of deliveries; exceeded only if messages circulate for ever.
const DELIVERIES_MAX: usize = 200_000;

/// Messages on the way from one speaker to another one: announcements, and withdrawals without attributes.
type Messages = VecDeque<(IpNet, Option<Attributes>)>;

/// Speaker with the routes that it has received, by sender.
#[derive(Default)]
struct Speaker {
    table: Reflector<u8>,
    sent: BTreeMap<(u8, IpNet), Attributes>,
    received: BTreeMap<(u8, IpNet), Attributes>,
}

/// Speakers `0..reflectors` are reflectors, all others are clients of all reflectors. Reflectors are non-clients of
/// each other.
struct Network {
    reflectors: u8,
    speakers: Vec<Speaker>,
    links: BTreeMap<(u8, u8), Messages>,
}

impl Network {
    fn new(reflectors: u8, clients: u8) -> Self {
        let count = usize::from(reflectors + clients);
        let speakers = (0..count).map(|_| Speaker::default()).collect();
        let mut network = Self { reflectors, speakers, links: BTreeMap::new() };
        for (one, other) in network.sessions() {
            network.links.insert((one, other), VecDeque::new());
            network.links.insert((other, one), VecDeque::new());
        }
        network
    }

    fn count(&self) -> u8 {
        u8::try_from(self.speakers.len()).unwrap()
    }

    /// Returns the pairs of speakers with a session.
    fn sessions(&self) -> Vec<(u8, u8)> {
        let all = 0..self.count();
        all.flat_map(|one| (one + 1..self.count()).map(move |other| (one, other)))
            .filter(|(one, _)| *one < self.reflectors)
            .collect()
    }

    fn kind(&self, of: u8) -> PeerKind {
        if of < self.reflectors { PeerKind::NonClient } else { PeerKind::Client }
    }

    /// Announces (`true`) or withdraws the block of a client to all of its reflectors.
    fn set_block(&mut self, client: u8, is_announced: bool) {
        let route = is_announced.then(|| Attributes { next_hop: NextHop::V4(id(client)), ..attributes() });
        for reflector in 0..self.reflectors {
            self.links.get_mut(&(client, reflector)).unwrap().push_back((block(client), route.clone()));
        }
    }

    /// Delivers the first message of the link that `choice` selects. Returns false if there is none.
    fn deliver(&mut self, choice: usize) -> bool {
        let busy: Vec<_> =
            self.links.iter().filter(|(_, queue)| !queue.is_empty()).map(|(link, _)| *link).collect();
        let Some((from, to)) = busy.get(choice % busy.len().max(1)).copied() else { return false };
        let (prefix, route) = self.links.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        let kind = self.kind(from);
        let speaker = &mut self.speakers[usize::from(to)];
        match &route {
            Some(route) => speaker.received.insert((from, prefix), route.clone()),
            None => speaker.received.remove(&(from, prefix)),
        };
        if to >= self.reflectors {
            return true;
        }
        let peer = ReflectedPeer {
            kind,
            router_id: id(from),
            address: id(from).into(),
            cluster_id: id(to),
            asn: AS,
        };
        match route {
            Some(route) => _ = speaker.table.announce(&from, &peer, &[prefix], &route),
            None => speaker.table.withdraw(&from, &prefix),
        }
        for prefix in speaker.table.take_changed(usize::MAX) {
            self.reflect(to, prefix);
        }
        true
    }

    fn reflect(&mut self, reflector: u8, prefix: IpNet) {
        for other in (0..self.count()).filter(|other| *other != reflector) {
            let kind = self.kind(other);
            let speaker = &mut self.speakers[usize::from(reflector)];
            let route = speaker.table.route(&prefix, &other, kind).map(|route| (*route).clone());
            let before = match &route {
                Some(route) => speaker.sent.insert((other, prefix), route.clone()),
                None => speaker.sent.remove(&(other, prefix)),
            };
            if before != route {
                self.links.get_mut(&(reflector, other)).unwrap().push_back((prefix, route));
            }
        }
    }

    fn settle(&mut self, choices: &[usize]) {
        let mut deliveries = 0;
        while self.deliver(choices[deliveries % choices.len()]) {
            deliveries += 1;
            assert!(deliveries < DELIVERIES_MAX, "messages circulate");
        }
    }
}

fn id(speaker: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, speaker + 1)
}

fn block(client: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 64, client, 0), 24).into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Input: clients of one to three reflectors announce and withdraw their blocks, and messages arrive in any order.
    /// Output: the messages end, and each client has exactly the announced blocks of the others, with their next hops.
    #[test]
    fn f160_every_client_ends_with_the_blocks_of_all_others(
        reflectors in 1..4_u8,
        changes in prop::collection::vec((0..6_u8, any::<bool>(), 0..8_usize), 1..40),
        choices in prop::collection::vec(any::<usize>(), 1..50),
    ) {
        let clients = 6;
        let mut network = Network::new(reflectors, clients);
        let mut announced = BTreeSet::new();
        for (client, is_announced, deliveries) in changes {
            let client = client + reflectors;
            network.set_block(client, is_announced);
            if is_announced { announced.insert(client); } else { announced.remove(&client); }
            for choice in choices.iter().take(deliveries) {
                network.deliver(*choice);
            }
        }
        network.settle(&choices);
        for client in reflectors..reflectors + clients {
            let received = &network.speakers[usize::from(client)].received;
            for reflector in 0..reflectors {
                let others = announced.iter().filter(|other| **other != client);
                let expected: Vec<_> = others.map(|other| (block(*other), NextHop::V4(id(*other)))).collect();
                let from = received.iter().filter(|((from, _), _)| *from == reflector);
                let found: Vec<_> = from.map(|((_, prefix), route)| (*prefix, route.next_hop)).collect();
                prop_assert_eq!(&found, &expected, "client {} by reflector {}", client, reflector);
            }
        }
    }
}

/// Number of sessions of a full mesh and of two reflectors, for the same number of speakers.
#[test]
fn f160_two_reflectors_need_two_sessions_for_each_client() {
    for speakers in [10_usize, 50, 200] {
        let network = Network::new(2, u8::try_from(speakers).unwrap() - 2);
        let mesh = speakers * (speakers - 1) / 2;
        assert_eq!(network.sessions().len(), 2 * (speakers - 2) + 1, "{mesh} in a mesh");
    }
}
