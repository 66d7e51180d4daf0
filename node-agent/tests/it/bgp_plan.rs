//! Tests of the BGP plan: which routes each peer receives, and why other prefixes are withheld. Step-by-step
//! changes of a plan must lead to the same result as a new computation.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers fail by panicking")]

mod peers;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use bgp::export::Route;
use ipnet::IpNet;
use model::{
    bgp::settings::{BgpAdvertisement, BgpNeighbour, BgpRemote, BgpState},
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        address::{Announcement, Candidate},
        advertisement::InterfaceName,
        bgp_peer::{BgpFamily, PeerAsn},
        resource::ServiceKey,
        service::{Protocol, TrafficPolicy},
    },
    primitives::{
        name::Name,
        quantity::{Revision, Weight},
    },
    wire::{
        feed::{AddressState, NodeState},
        plan::LineFate,
    },
};
use node_agent::{
    announce::{
        bgp::{
            decision::Choice,
            endpoints::{Endpoints, Standing},
            plan::{Change, Plan},
        },
        machine::Gate,
        preview::{self, Side},
    },
    feed::machine::Batch,
    state::State,
};
use proptest::prelude::*;

use crate::support::{
    programs::port,
    states::{full, node_name, service, service_key},
};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn neighbour(families: &[BgpFamily]) -> BgpNeighbour {
    BgpNeighbour {
        remote: BgpRemote::Address(ip("198.51.100.1")),
        peer_asn: PeerAsn::External,
        local_asn: 64512,
        port: 179,
        source_address: None,
        device: None,
        hold_time: 90,
        keepalive_time: None,
        connect_time: 5,
        password: None,
        ttl: 1,
        ttl_security: None,
        passive: false,
        families: families.iter().copied().collect(),
        graceful_restart: None,
        role: None,
        bfd: None,
        max_prefixes: 1000,
        route_reflector_client: false,
    }
}

fn advertisement(peers: &[&str]) -> BgpAdvertisement {
    BgpAdvertisement {
        peers: peers.iter().copied().map(name).collect(),
        aggregation_length: 32,
        aggregation_length_v6: 128,
        local_pref: None,
        med: None,
        prepend: 0,
        communities: BTreeSet::new(),
    }
}

/// Builds the BGP settings of a node: the peers `a` (both address families) and `b` (IPv4 only), and the
/// Advertisements `all` to both peers and `only-a` to `a`.
fn bgp() -> BgpState {
    BgpState {
        asn: 64512,
        router_id: [192, 0, 2, 1].into(),
        is_draining: false,
        peers: [
            (name("a"), neighbour(&[BgpFamily::IPv4, BgpFamily::IPv6])),
            (name("b"), neighbour(&[BgpFamily::IPv4])),
        ]
        .into(),
        advertisements: [(name("all"), advertisement(&[])), (name("only-a"), advertisement(&["a"]))].into(),
        blocks: BTreeMap::new(),
    }
}

fn address(text: &str, services: &[u16], advertisements: &[&str]) -> Arc<AddressState> {
    let advertisements = advertisements.iter().copied().map(name).collect();
    Arc::new(AddressState {
        address: ip(text),
        revision: Revision(1),
        services: services.iter().copied().map(service_key).collect(),
        announcement: Announcement { advertisements, ..Announcement::default() },
        peer_public_keys: BTreeMap::new(),
    })
}

fn open() -> Standing {
    Standing { programmed: Gate::Open, endpoints: Endpoints { v4: Gate::Open, v6: Gate::Open } }
}

fn unanswered() -> Standing {
    let closed = || Gate::Closed("nobody is ready".to_owned());
    Standing { programmed: Gate::Open, endpoints: Endpoints { v4: closed(), v6: closed() } }
}

/// Builds a plan with the BGP settings `bgp`, in which the kernel serves Services 1 and 2.
fn plan(bgp: BgpState) -> Plan {
    let mut plan = Plan::default();
    plan.set_bgp(Some(Arc::new(bgp)));
    plan.set_standings([1, 2].map(|number| (service_key(number), Some(open()))));
    plan
}

fn set(plan: &mut Plan, address: Arc<AddressState>) {
    plan.set_address(address, &BTreeMap::new());
}

/// Formats the plan's decision about a prefix: the peers that receive it, and the reasons why others do not.
fn say(plan: &Plan, prefix: &str) -> String {
    let Some(decision) = plan.decisions().get(&net(prefix)) else { return "unknown".to_owned() };
    let peers = decision.peers.iter().map(|(peer, choice)| match choice {
        Choice::Announce { note: None, .. } => format!("{peer}"),
        Choice::Announce { note: Some(note), .. } => format!("{peer} ({note})"),
        Choice::Withhold(why) => format!("not {peer}: {why}"),
    });
    let withheld = decision.withheld.iter().map(|why| format!("withheld: {why}"));
    peers.chain(withheld).collect::<Vec<_>>().join("; ")
}

/// Applies `change` to a plan and returns the resulting route changes, one line each: `+` or `-`, peer and
/// prefix.
fn after(plan: &mut Plan, change: impl FnOnce(&mut Plan)) -> Vec<String> {
    plan.take_changes();
    change(plan);
    let say =
        |(peer, prefix, route): Change| format!("{}{peer} {prefix}", if route.is_some() { '+' } else { '-' });
    plan.take_changes().into_iter().map(say).collect()
}

#[test]
fn an_address_is_announced_to_the_peers_that_its_advertisements_name() {
    let mut plan = plan(bgp());
    set(&mut plan, address("192.0.2.10", &[1], &["all"]));
    set(&mut plan, address("192.0.2.11", &[1], &["only-a"]));
    set(&mut plan, address("2001:db8::10", &[1], &["all"]));
    set(&mut plan, address("192.0.2.12", &[1], &["of-other-nodes"]));
    set(&mut plan, address("192.0.2.13", &[1], &[]));
    plan.take_changes();
    assert_eq!(say(&plan, "192.0.2.10/32"), "a; b");
    assert_eq!(say(&plan, "192.0.2.11/32"), "a");
    assert_eq!(say(&plan, "2001:db8::10/128"), "a; not b: no routes of IPv6 are exchanged with this peer");
    assert_eq!(
        (say(&plan, "192.0.2.12/32"), say(&plan, "192.0.2.13/32")),
        ("unknown".into(), "unknown".into())
    );
}

/// Each obstacle to an announcement, such as a draining node, withdraws the prefix, and the plan's decision
/// contains the matching reason.
#[test]
fn what_keeps_an_address_from_being_announced_is_said() {
    let mut plan = plan(bgp());
    set(&mut plan, address("192.0.2.10", &[1, 2], &["only-a"]));
    let prefix = "192.0.2.10/32";
    let standing =
        |standing: Option<Standing>| move |plan: &mut Plan| plan.set_standings([(service_key(1), standing)]);
    let refused = Standing { programmed: Gate::Closed("no room".to_owned()), ..open() };

    assert_eq!(after(&mut plan, standing(None)), ["-a 192.0.2.10/32"]);
    assert_eq!(say(&plan, prefix), "withheld: Service default/s1 has not been programmed here yet");
    assert_eq!(after(&mut plan, standing(Some(refused))), [""; 0]);
    assert_eq!(say(&plan, prefix), "withheld: Service default/s1 is not programmed here: no room");
    // The other Service has endpoints.
    assert_eq!(after(&mut plan, standing(Some(unanswered()))), ["+a 192.0.2.10/32"]);
    let changes = after(&mut plan, |plan| plan.set_standings([(service_key(2), Some(unanswered()))]));
    assert_eq!(changes, ["-a 192.0.2.10/32"]);
    assert_eq!(say(&plan, prefix), "withheld: Service default/s1: nobody is ready");
    after(&mut plan, standing(Some(open())));

    let draining = BgpState { is_draining: true, ..bgp() };
    let changes = after(&mut plan, |plan| plan.set_bgp(Some(Arc::new(draining))));
    assert_eq!(changes, ["-a 192.0.2.10/32"]);
    assert_eq!(say(&plan, prefix), "withheld: the node is being drained");
    let changes = after(&mut plan, |plan| plan.set_bgp(Some(Arc::new(bgp()))));
    assert_eq!(changes, ["+a 192.0.2.10/32"]);

    let changes = after(&mut plan, |plan| set(plan, address("192.0.2.10", &[], &["only-a"])));
    assert_eq!(changes, ["-a 192.0.2.10/32"]);
    assert_eq!(say(&plan, prefix), "withheld: no Service has it");
    plan.remove_address(ip("192.0.2.10"));
    plan.take_changes();
    assert_eq!(say(&plan, prefix), "unknown");

    let without_a = BgpState { peers: [(name("b"), neighbour(&[BgpFamily::IPv4]))].into(), ..bgp() };
    plan.set_bgp(Some(Arc::new(without_a)));
    set(&mut plan, address("192.0.2.10", &[1], &["only-a"]));
    plan.take_changes();
    assert_eq!(say(&plan, prefix), "withheld: this node has none of the peers that it is to be announced to");
}

#[test]
fn an_aggregate_lives_as_long_as_one_of_its_addresses() {
    let mut state = bgp();
    state
        .advertisements
        .insert(name("net"), BgpAdvertisement { aggregation_length: 24, ..advertisement(&["b"]) });
    let mut plan = plan(state);
    set(&mut plan, address("192.0.2.10", &[1], &["net", "only-a"]));
    set(&mut plan, address("192.0.2.11", &[2], &["net"]));
    plan.take_changes();
    assert_eq!((say(&plan, "192.0.2.0/24"), say(&plan, "192.0.2.10/32")), ("b".into(), "a".into()));
    let close = |number| move |plan: &mut Plan| plan.set_standings([(service_key(number), None)]);
    assert_eq!(after(&mut plan, close(1)), ["-a 192.0.2.10/32"]);
    assert_eq!(plan.decisions()[&net("192.0.2.0/24")].addresses, [ip("192.0.2.11")].into());
    assert_eq!(after(&mut plan, close(2)), ["-b 192.0.2.0/24"]);
    assert_eq!(
        say(&plan, "192.0.2.0/24"),
        "withheld: 192.0.2.10: Service default/s1 has not been programmed here yet; nor are the others served here"
    );
}

#[test]
fn several_advertisements_make_one_route_and_their_differences_are_said() {
    let mut state = bgp();
    let community = |text: &str| [text.parse().unwrap()].into();
    let first = BgpAdvertisement { med: Some(10), communities: community("65000:1"), ..advertisement(&[]) };
    let second = BgpAdvertisement {
        med: Some(20),
        prepend: 3,
        communities: community("large:65000:1:2"),
        ..advertisement(&["a"])
    };
    state.advertisements = [(name("one"), first), (name("two"), second)].into();
    let mut plan = plan(state);
    set(&mut plan, address("192.0.2.10", &[1], &["one", "two"]));
    let changes = plan.take_changes();
    let both = Route {
        med: Some(10),
        communities: [bgp::Community(65000 << 16 | 1)].into(),
        large_communities: [bgp::LargeCommunity([65000, 1, 2])].into(),
        ..Route::default()
    };
    let one = Route { large_communities: BTreeSet::new(), ..both.clone() };
    let prefix = net("192.0.2.10/32");
    assert_eq!(changes, [(name("a"), prefix, Some(both)), (name("b"), prefix, Some(one))]);
    assert_eq!(
        say(&plan, "192.0.2.10/32"),
        "a (advertisement/two says med 20, but 10 of advertisement/one counts; \
         advertisement/two says prepend 3, but 0 of advertisement/one counts); b"
    );
}

/// While a kernel update is pending, addresses that will be added by the update are not announced yet, and
/// addresses that will be removed are already withdrawn.
#[test]
fn a_change_of_a_service_waits_for_the_kernel_only_with_what_it_brings() {
    let mut plan = plan(bgp());
    set(&mut plan, address("192.0.2.10", &[1], &["only-a"]));
    let changing: BTreeMap<_, _> = [(service_key(1), open().endpoints)].into();
    let changes =
        after(&mut plan, |plan| plan.set_address(address("192.0.2.11", &[1], &["only-a"]), &changing));
    assert_eq!(changes, [""; 0]);
    let pass = |plan: &mut Plan| plan.set_standings([(service_key(1), Some(open()))]);
    assert_eq!(after(&mut plan, pass), ["+a 192.0.2.11/32"]);

    let changes = after(&mut plan, |plan| plan.narrow(&service_key(1), &unanswered().endpoints));
    assert_eq!(changes, ["-a 192.0.2.10/32", "-a 192.0.2.11/32"]);
    assert_eq!(after(&mut plan, |plan| plan.narrow(&service_key(1), &open().endpoints)), [""; 0]);
    assert_eq!(after(&mut plan, pass), ["+a 192.0.2.10/32", "+a 192.0.2.11/32"]);
}

#[test]
fn the_cost_of_a_change_follows_the_change() {
    let mut state = bgp();
    state
        .advertisements
        .insert(name("net"), BgpAdvertisement { aggregation_length: 16, ..advertisement(&[]) });
    let mut plan = plan(state);
    for number in 0..5000_u32 {
        let text = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
        set(&mut plan, address(&text, &[if number == 77 { 1 } else { 2 }], &["all", "net"]));
    }
    plan.take_changes();
    let before = plan.looked_at();
    let changes = after(&mut plan, |plan| plan.set_standings([(service_key(1), None)]));
    assert_eq!(changes, ["-a 10.0.0.77/32", "-b 10.0.0.77/32"]);
    assert_eq!(plan.looked_at() - before, 2);
}

fn endpoint(node: &str, family: u8, is_ready: bool) -> CompiledEndpoint {
    let address = if family == 4 { ip("10.1.1.1") } else { ip("fd00::1") };
    CompiledEndpoint {
        address,
        port: port(80),
        node: Some(name(node)),
        zone: None,
        weight: Weight(1),
        ready: is_ready,
        serving: true,
        terminating: !is_ready,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    }
}

fn gates(policy: TrafficPolicy, endpoints: Vec<CompiledEndpoint>) -> (bool, bool) {
    let compiled = CompiledPort {
        name: None,
        protocol: Protocol::Tcp,
        port: port(80),
        end_port: None,
        node_port: None,
        endpoints,
    };
    let service = CompiledService {
        ports: vec![compiled],
        external_traffic_policy: policy,
        ..CompiledService::new(service_key(1))
    };
    let Endpoints { v4, v6 } = Endpoints::of(&service, &node_name());
    (v4 == Gate::Open, v6 == Gate::Open)
}

/// An address is announced if some endpoint of the same address family would receive its traffic. This
/// depends on the traffic policy and on the node of the endpoint: this node (`n1`) or another one.
#[test]
fn somebody_has_to_answer() {
    use TrafficPolicy::{Cluster, Local};
    let table = [
        (Cluster, vec![], (false, false)),
        (Cluster, vec![endpoint("n2", 4, true)], (true, false)),
        (Cluster, vec![endpoint("n2", 4, false)], (true, false)),
        (Cluster, vec![CompiledEndpoint { serving: false, ..endpoint("n2", 4, false) }], (false, false)),
        (Cluster, vec![CompiledEndpoint { weight: Weight(0), ..endpoint("n2", 4, true) }], (false, false)),
        (Local, vec![endpoint("n2", 4, true)], (false, false)),
        (Local, vec![endpoint("n1", 4, true), endpoint("n1", 6, true)], (true, true)),
        (Local, vec![endpoint("n1", 4, true), endpoint("n2", 6, true)], (true, false)),
        // The last endpoint on this node terminates: other nodes take over, if they have endpoints.
        (Local, vec![endpoint("n1", 4, false), endpoint("n2", 4, true)], (false, false)),
        (Local, vec![endpoint("n1", 4, false), endpoint("n2", 4, false)], (true, false)),
    ];
    for (policy, endpoints, expected) in table {
        assert_eq!(gates(policy, endpoints.clone()), expected, "{policy:?} {endpoints:?}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Address { number: u8, services: Vec<u16>, advertisements: Vec<u8> },
    Gone(u8),
    Service(u16, Option<u8>),
    Bgp { lengths: (u8, u8), peers: u8, is_draining: bool },
    NoBgp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = |count: u16| prop::collection::vec(0..count, 0..3);
    let address = (0..12_u8, some(4), prop::collection::vec(0..3_u8, 0..3));
    let address = address.prop_map(|(number, services, advertisements)| Step::Address {
        number,
        services,
        advertisements,
    });
    let lengths = (prop_oneof![Just(32_u8), Just(29)], prop_oneof![Just(32_u8), Just(24)]);
    let bgp = (lengths, 0..4_u8, prop::bool::weighted(0.1));
    let bgp = bgp.prop_map(|(lengths, peers, is_draining)| Step::Bgp { lengths, peers, is_draining });
    let step = prop_oneof![
        6 => address,
        2 => (0..12_u8).prop_map(Step::Gone),
        6 => (0..4_u16, prop::option::of(0..3_u8)).prop_map(|(number, standing)| Step::Service(number, standing)),
        2 => bgp,
        1 => Just(Step::NoBgp),
    ];
    prop::collection::vec(step, 1..60)
}

/// Inputs of a plan, from which a second plan is computed for comparison.
#[derive(Default)]
struct Inputs {
    bgp: Option<Arc<BgpState>>,
    addresses: BTreeMap<IpAddr, Arc<AddressState>>,
    standings: BTreeMap<ServiceKey, Standing>,
}

impl Inputs {
    fn anew(&self) -> Plan {
        let mut plan = Plan::default();
        plan.set_standings(
            self.standings.iter().map(|(key, standing)| (key.clone(), Some(standing.clone()))),
        );
        self.addresses.values().for_each(|address| set(&mut plan, Arc::clone(address)));
        plan.set_bgp(self.bgp.clone());
        plan.take_changes();
        plan
    }
}

fn take(step: Step, inputs: &mut Inputs, plan: &mut Plan) {
    let advertisements = ["all", "narrow", "wide"];
    match step {
        Step::Address { number, services, advertisements: named } => {
            let text = if number.is_multiple_of(3) {
                format!("2001:db8::{number}")
            } else {
                format!("192.0.2.{number}")
            };
            let named: Vec<_> = named.iter().map(|index| advertisements[usize::from(*index)]).collect();
            let state = address(&text, &services, &named);
            inputs.addresses.insert(state.address, Arc::clone(&state));
            set(plan, state);
        }
        Step::Gone(number) => {
            let text = if number.is_multiple_of(3) {
                format!("2001:db8::{number}")
            } else {
                format!("192.0.2.{number}")
            };
            inputs.addresses.remove(&ip(&text));
            plan.remove_address(ip(&text));
        }
        Step::Service(number, standing) => {
            let standing = standing.map(|kind| match kind {
                0 => open(),
                1 => unanswered(),
                _ => Standing { programmed: Gate::Closed("refused".to_owned()), ..open() },
            });
            match standing.clone() {
                Some(standing) => inputs.standings.insert(service_key(number), standing),
                None => inputs.standings.remove(&service_key(number)),
            };
            plan.set_standings([(service_key(number), standing)]);
        }
        Step::Bgp { lengths: (narrow, wide), peers, is_draining } => {
            let mut state = BgpState { is_draining, ..bgp() };
            state.peers.retain(|peer, _| peers & if peer.as_str() == "a" { 1 } else { 2 } != 0);
            let length = |length| BgpAdvertisement { aggregation_length: length, ..advertisement(&["a"]) };
            state.advertisements.insert(name("narrow"), length(narrow));
            state
                .advertisements
                .insert(name("wide"), BgpAdvertisement { med: Some(u32::from(wide)), ..length(wide) });
            inputs.bgp = Some(Arc::new(state));
            plan.set_bgp(inputs.bgp.clone());
        }
        Step::NoBgp => {
            inputs.bgp = None;
            plan.set_bgp(None);
        }
    }
}

proptest! {
    /// After any sequence of changes, the decisions of the plan equal those of a new plan that is computed
    /// from the final inputs. All route changes that the plan has returned add up to these decisions.
    #[test]
    fn changes_lead_to_the_same_as_beginning_anew(steps in steps()) {
        let (mut plan, mut inputs) = (Plan::default(), Inputs::default());
        let mut tables: BTreeMap<(Name, IpNet), Route> = BTreeMap::new();
        for step in steps {
            take(step, &mut inputs, &mut plan);
            // A removed peer takes its routes along.
            let peers: BTreeSet<_> = inputs.bgp.iter().flat_map(|bgp| bgp.peers.keys().cloned()).collect();
            tables.retain(|(peer, _), _| peers.contains(peer));
            for (peer, prefix, route) in plan.take_changes() {
                prop_assert!(peers.contains(&peer) || route.is_none());
                if !peers.contains(&peer) {
                    continue;
                }
                let before = match route.clone() {
                    Some(route) => tables.insert((peer, prefix), route),
                    None => tables.remove(&(peer, prefix)),
                };
                prop_assert_ne!(before, route, "nothing is told twice");
            }
            let anew = inputs.anew();
            prop_assert_eq!(plan.decisions(), anew.decisions());
            let wanted = anew.decisions().iter().flat_map(|(prefix, decision)| {
                decision.peers.keys().filter_map(|peer| Some(((peer.clone(), *prefix), decision.route(peer)?.clone())))
            });
            prop_assert_eq!(&tables, &wanted.collect::<BTreeMap<_, _>>());
        }
    }
}

/// Builds the state of an agent after a full batch with one Service, the given addresses and the BGP
/// settings.
fn state_of(bgp: BgpState, addresses: Vec<Arc<AddressState>>) -> State {
    let mut state = State::default();
    let service = CompiledService { load_balancer_ips: vec![ip("192.0.2.80")], ..service(1, 1, 1) };
    let batch = Batch {
        node: Some(NodeState { bgp: Some(Box::new(bgp)), ..NodeState::default() }),
        addresses: addresses.into_iter().map(|state| (state.address, Some(state))).collect(),
        ..full("1-1", vec![service])
    };
    state.apply(batch).unwrap();
    state
}

fn ranked(text: &str, nodes: &[&str], advertisements: &[&str]) -> Arc<AddressState> {
    let mut state = AddressState::clone(&address(text, &[1], advertisements));
    let candidate = |node: &&str| Candidate {
        node: name(node),
        address: ip("192.0.2.9"),
        interfaces: [InterfaceName::try_from("eth0".to_owned()).unwrap()].into(),
        peer_public_key: None,
    };
    state.announcement.candidates = nodes.iter().map(candidate).collect();
    Arc::new(state)
}

#[test]
fn a_plan_says_which_announcements_and_roles_come_and_go() {
    let open = |_: &ServiceKey| Gate::Open;
    let node = node_name();
    let lines = |before: &State, after: &State| -> Vec<String> {
        let side = |state| Side { state, node: &node, gate: &open };
        let changes = preview::changes(&side(before), &side(after));
        let sign = |change| if change == LineFate::Added { '+' } else { '-' };
        changes.iter().map(|line| format!("{} {}{}", line.place, sign(line.change), line.line)).collect()
    };
    let before = state_of(bgp(), vec![ranked("192.0.2.80", &["n1", "n2"], &["all"])]);
    assert_eq!(lines(&before, &before), [""; 0]);

    let after = state_of(bgp(), vec![ranked("192.0.2.80", &["n2", "n1"], &["only-a"])]);
    let expected =
        ["link eth0 -192.0.2.80 owner", "bgp peer b -192.0.2.80/32", "link eth0 +192.0.2.80 standby 1"];
    let found: BTreeSet<_> = lines(&before, &after).into_iter().collect();
    assert_eq!(found, expected.map(str::to_owned).into());

    let mut louder = bgp();
    louder.advertisements.get_mut(&name("all")).unwrap().med = Some(10);
    let after = state_of(louder, vec![ranked("192.0.2.80", &["n1", "n2"], &["all"])]);
    let found: BTreeSet<_> = lines(&before, &after).into_iter().collect();
    let expected = ["a", "b"].map(|peer| {
        [format!("bgp peer {peer} -192.0.2.80/32"), format!("bgp peer {peer} +192.0.2.80/32 (MED 10)")]
    });
    assert_eq!(found, expected.into_iter().flatten().collect());
}

#[test]
fn a_plan_says_which_sessions_begin_anew() {
    let resets = |after: Option<&BgpState>| node_agent::bgp::resets(&node_name(), Some(&bgp()), after);
    assert_eq!(resets(Some(&bgp())), [""; 0]);
    let mut other = bgp();
    other.peers.get_mut(&name("a")).unwrap().hold_time = 9;
    // This change is applied without a session reset.
    other.peers.get_mut(&name("b")).unwrap().connect_time = 30;
    assert_eq!(resets(Some(&other)), ["a: the hold time would be another"]);
    other.peers.get_mut(&name("a")).unwrap().remote = BgpRemote::Address(ip("198.51.100.2"));
    other.peers.remove(&name("b"));
    assert_eq!(
        resets(Some(&other)),
        ["a: the peer's address would be another", "b: it would not be a peer any longer"]
    );
}
