//! Tests of the kernel state in nftables mode: no writes without differences, repair of drift, and no changes
//! to rules of other programs.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use model::{
    kinds::service::{Protocol, ProxyProtocol, Scheduler, SchedulerFlag},
    primitives::name::Label,
    program::{Masquerade, Verdict},
    wire::report::FailureReason,
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Outcome, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{Namespace, programs::*};

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

fn two_services() -> DesiredState {
    let mut desired = desired(vec![
        ("one", simple("10.96.0.1", &[("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)])),
        ("two", simple("fd96::2", &[("fd01:1::2", 8080, 1)])),
        ("none", simple("10.96.0.3", &[])),
    ]);
    desired.networks.masquerade_sources =
        ["192.0.2.0/24", "198.51.100.0/25", "198.51.100.128/25", "2000::/3", "224.0.0.0/3"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
    let everywhere = program(
        &["10.96.0.4"],
        &[],
        &[
            (at("10.96.0.4", Protocol::Udp, 53), forward(Masquerade::OffCluster, &[("10.1.1.2", 5353, 1)])),
            (
                at("203.0.113.7", Protocol::Udp, 53),
                forward(Masquerade::Always, &[("10.1.1.2", 5353, 1), ("10.1.2.2", 5353, 1)]),
            ),
            (
                node_port(model::primitives::net::IpFamily::V4, Protocol::Udp, 30053),
                forward(Masquerade::Always, &[("10.1.1.2", 5353, 1)]),
            ),
            (
                node_port(model::primitives::net::IpFamily::V6, Protocol::Udp, 30053),
                forward(Masquerade::Always, &[("fd01:1::2", 5353, 1)]),
            ),
        ],
    );
    set(&mut desired, "everywhere", everywhere);
    desired
}

/// Builds a desired state with the basic Services and one Service that has all other features.
fn all_kinds() -> DesiredState {
    let mut desired = two_services();
    set(&mut desired, "special", special());
    desired.networks.workloads = nets(&["10.1.0.0/16", "fd01::/16"]);
    desired
}

/// Builds a Service with every feature except a plain list of targets.
fn special() -> model::program::Program {
    let targets = [("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)];
    let frontend = at("10.96.0.5", Protocol::Tcp, 80);
    let verdicts =
        [forward(Masquerade::Never, &targets), forward(Masquerade::Always, &targets), Verdict::Drop];
    let mut restricted = by_source(&frontend, verdicts);
    restricted.allowed_sources = Some(nets(&["192.0.2.0/24", "198.51.100.7/32"]));
    restricted.affinity_seconds = Some(600);
    let ports = range("10.96.0.5", Protocol::Udp, 1000, 2000);
    let ranged = route(&ports, forward_ports(Masquerade::OffCluster, &["10.1.1.2"]));
    routed(vec![(frontend, restricted), (ports, ranged)])
}

#[test]
fn a_fresh_process_with_an_equal_desired_state_writes_nothing() {
    let namespace = Namespace::new("restart");
    namespace.run(|| {
        let desired = all_kinds();
        let mut first = backend();
        assert!(verified(&first.apply(&desired, &Scope::Everything)) > 0);
        assert!(!first.is_disturbed().unwrap());
        let before = namespace.list_table("tidegate");
        let mut second = backend();
        second.observe().unwrap();
        assert_eq!(verified(&second.apply(&desired, &Scope::Everything)), 0);
        assert_eq!(second.counters().transactions, 0);
        assert!(!first.is_disturbed().unwrap(), "the generation of the ruleset is the same");
        assert_eq!(namespace.list_table("tidegate"), before);
        assert_eq!(verified(&second.apply(&desired, &only(&["one", "two"]))), 0);
    });
}

#[test]
fn the_listing_of_our_table_can_be_read_by_people_and_loaded_again() {
    let (namespace, other) = (Namespace::new("list"), Namespace::new("reload"));
    namespace.run(|| verified(&backend().apply(&two_services(), &Scope::Everything)));
    let listing = namespace.list_table("tidegate");
    for line in [
        "10.96.0.1 . 6 . 80 : 0x00000004",
        "10.96.0.3 . 6 . 80 : 0xffff0001",
        "203.0.113.7 . 17 . 53 : 0x000d8002",
        "17 . 30053 : 0x000d8001",
        "10.96.0.1 . 6 . 80 . 3 counter : 10.1.2.2 . 8080",
        "fd96::2 . 6 . 80 . 0 counter : fd01:1::2 . 8080",
        "ip daddr . meta l4proto . th dport map @services4 meta mark set meta mark meta mark vmap @chains4",
        "ip saddr . ip daddr @hairpins4 masquerade fully-random",
        "198.51.100.0/24",
        "224.0.0.0/3",
    ] {
        assert!(listing.contains(line), "{line} is not in:\n{listing}");
    }
    other.nft(&listing);
    assert_eq!(other.list_table("tidegate"), listing);
    // nft encodes some rules differently when it loads them; the elements are the same.
    other.run(|| {
        assert!(verified(&backend().apply(&two_services(), &Scope::Everything)) < 40);
        assert_eq!(verified(&backend().apply(&two_services(), &Scope::Everything)), 0);
    });
    assert_eq!(other.list_table("tidegate"), listing);
}

/// The `nft` command can list every kind of rule. The test does not load the listing again, because version
/// 1.0.6 of `nft` has too few registers for the affinity rules.
#[test]
fn every_kind_of_rule_can_be_listed() {
    let namespace = Namespace::new("listall");
    namespace.run(|| verified(&backend().apply(&all_kinds(), &Scope::Everything)));
    let listing = namespace.list_table("tidegate");
    for line in [
        "10.96.0.5 . 6 . 80 : 0xffff0004",
        "10.96.0.5 . 6 . 80 : 0x027c37c0",
        "0x027c37c0 : goto direct-4-affinity-600",
        "10.96.0.5 . 6 . 80 : 0xffff0002",
        "10.96.0.5 . 6 . 80 . 198.51.100.7",
        "10.96.0.5 . 17 . 1000-2000 : ",
        "size 131072",
        "ip saddr @workloads4 meta mark set ip daddr . meta l4proto . th dport map @services-from-workloads4 meta mark set meta mark meta mark vmap @chains-from4",
    ] {
        assert!(listing.contains(line), "{line} is not in:\n{listing}");
    }
    namespace.exec(&["nft", "-j", "list", "ruleset"]);
}

#[test]
fn f078_whatever_somebody_else_changes_is_seen_and_repaired_exactly() {
    let namespace = Namespace::new("drift");
    namespace.run(|| {
        let desired = all_kinds();
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        let right = namespace.list_table("tidegate");
        for damage in [
            "flush ruleset",
            "delete table inet tidegate",
            "delete element inet tidegate endpoints4 { 10.96.0.1 . tcp . 80 . 1 }",
            "delete element inet tidegate services4 { 10.96.0.3 . tcp . 80 }; add element inet tidegate services4 { 10.96.0.3 . tcp . 80 : 0x00000001 }",
            "add element inet tidegate services4 { 10.96.0.9 . tcp . 80 : 0xffff0001 }",
            "add element inet tidegate services4 { 10.96.0.9 . icmp . 80 : 7 }",
            "add element inet tidegate endpoints4 { 10.96.0.1 . tcp . 80 . 20000 : 10.0.0.1 . 1 }",
            "add element inet tidegate hairpins4 { 10.0.0.1 . 10.0.0.2, 10.0.0.3 . 10.0.0.3 }",
            "add element inet tidegate virtual-addresses6 { fd96::9 }",
            "delete element inet tidegate masquerade-sources4 { 192.0.2.0/24 }",
            "add element inet tidegate masquerade-sources4 { 10.0.0.0/8 }",
            "flush map inet tidegate services-from-workloads4",
            "flush set inet tidegate allowed-sources4",
            "add element inet tidegate allowed-sources4 { 10.96.0.5 . tcp . 80 . 198.51.100.0/24 }",
            "flush map inet tidegate ranges4",
            "add element inet tidegate ranges6 { fd96::9 . udp . 1000-2000 : 0x1 }",
            "flush map inet tidegate range-endpoints4",
            "flush map inet tidegate affinity-slots4",
            "flush map inet tidegate affinity-targets4",
            "add element inet tidegate workloads4 { 10.9.0.0/16 }",
            "flush set inet tidegate nodeport-addresses6",
            "flush chain inet tidegate checked",
            "flush chain inet tidegate services",
            "flush chain inet tidegate cluster-4",
            "insert rule inet tidegate postrouting accept",
            "add rule inet tidegate cluster-4 counter",
            "add chain inet tidegate foreign",
            "add table inet tidegate { flags dormant; }",
            "add chain inet tidegate prerouting { policy drop; }",
            "add chain inet tidegate foreign { type filter hook input priority 0; }",
            "add set inet tidegate foreign { type ipv4_addr; }",
            "delete table inet tidegate; add table inet tidegate; add set inet tidegate services4 { type ipv4_addr; }",
        ] {
            namespace.nft(&damage.replace("; add", "\nadd"));
            assert!(backend.is_disturbed().unwrap(), "{damage} must be seen");
            backend.observe().unwrap();
            assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0, "{damage} must be repaired");
            assert!(!backend.is_disturbed().unwrap());
            assert_eq!(sorted(&namespace.list_table("tidegate")), sorted(&right), "after {damage}");
            assert_eq!(verified(&backend.apply(&desired, &Scope::Everything)), 0);
        }
    });
}

/// F078: if a single rule of any chain is deleted by its handle, the deletion is detected and the rule
/// restored at the same position.
#[test]
fn f078_a_single_rule_that_is_deleted_comes_back_in_its_place() {
    let namespace = Namespace::new("onerule");
    namespace.run(|| {
        let desired = all_kinds();
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        let right = namespace.list_table("tidegate");
        for chain in ["services", "by-source", "checked", "refuse", "postrouting", "direct-4-affinity-600"] {
            let listing = namespace.exec(&["nft", "-a", "list", "chain", "inet", "tidegate", chain]);
            let handles = listing.lines().filter(|line| line.starts_with("\t\t"));
            let handle = handles.filter_map(|line| line.rsplit_once("# handle ")).next_back().unwrap().1;
            namespace.nft(&format!("delete rule inet tidegate {chain} handle {handle}"));
            assert!(backend.is_disturbed().unwrap(), "{chain}");
            backend.observe().unwrap();
            assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0, "{chain}");
            assert_eq!(sorted(&namespace.list_table("tidegate")), sorted(&right), "{chain}");
        }
    });
}

/// Sorts the lines of a listing. Chains are listed in creation order, which a repair may change.
fn sorted(listing: &str) -> Vec<String> {
    let mut words: Vec<_> =
        listing.split_whitespace().map(|word| word.trim_end_matches(',').to_owned()).collect();
    words.sort();
    words
}

#[test]
fn a_pass_over_one_service_fails_when_the_table_is_gone_and_the_next_full_pass_rebuilds() {
    let namespace = Namespace::new("gone");
    namespace.run(|| {
        let mut desired = two_services();
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        namespace.nft("flush ruleset");
        set(&mut desired, "one", simple("10.96.0.1", &[("10.1.2.2", 8080, 1)]));
        let pass = backend.apply(&desired, &only(&["one"]));
        assert!(pass.failed.is_some());
        backend.observe().unwrap();
        assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0);
        assert!(namespace.list_table("tidegate").contains("10.96.0.1 . 6 . 80 : 0x00000001"));
    });
}

const FOREIGN: &str = "
table inet other {
  map services4 { type ipv4_addr . inet_proto . inet_service : verdict; }
  set s {
    type ipv4_addr; flags interval
    elements = { 10.0.0.0/8, 192.0.2.1 }
  }
  chain services { ip saddr @s counter accept; }
  chain prerouting { type nat hook prerouting priority dstnat; policy accept; tcp dport 1 jump services; }
}
table ip tidegate {
  chain prerouting { type nat hook prerouting priority dstnat; policy accept; tcp dport 9 redirect to :10; }
}
table ip6 kube-proxy {
  set s {
    type ipv6_addr
    elements = { fd00::1 }
  }
}
table arp tidegate {
  chain x { counter; }
}
";

#[test]
fn f079_foreign_tables_stay_as_they_are_from_first_pass_to_cleanup() {
    let namespace = Namespace::new("foreign");
    namespace.nft(FOREIGN);
    let foreign = || {
        let listing =
            |family: &str, table: &str| namespace.exec(&["nft", "-a", "list", "table", family, table]);
        [
            listing("inet", "other"),
            listing("ip", "tidegate"),
            listing("ip6", "kube-proxy"),
            listing("arp", "tidegate"),
        ]
    };
    let before = foreign();
    namespace.run(|| {
        let mut desired = all_kinds();
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        assert_eq!(foreign(), before);
        desired.programs.remove(&key("two"));
        verified(&backend.apply(&desired, &only(&["two"])));
        namespace.nft("add chain inet tidegate foreign");
        verified(&backend.apply(&desired, &Scope::Everything));
        assert_eq!(foreign(), before);
        let mut fresh = self::backend();
        assert!(fresh.cleanup().unwrap() > 0, "a fresh process finds what another one made");
        assert!(!namespace.has_table("tidegate"));
        assert_eq!(foreign(), before);
        assert_eq!(fresh.cleanup().unwrap(), 0);
    });
}

#[test]
fn a_service_that_the_kernel_refuses_stops_no_other() {
    let namespace = Namespace::new("refused");
    namespace.run(|| {
        let mut desired = two_services();
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        // Before the pass, a third party adds the key with another value, so the kernel rejects ours.
        namespace.nft("add element inet tidegate services4 { 10.96.0.12 . tcp . 80 : 0xffff0001 }");
        let names: Vec<_> =
            (10..16).map(|number| (format!("s{number}"), format!("10.96.0.{number}"))).collect();
        for (name, ip) in &names {
            set(&mut desired, name, simple(ip, &[("10.1.1.2", 8080, 1)]));
        }
        let pass =
            backend.apply(&desired, &only(&names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()));
        assert!(pass.failed.is_none(), "{:?}", pass.failed);
        for (service, outcome) in &pass.outcomes {
            match outcome {
                Outcome::Verified => assert_ne!(*service, key("s12")),
                Outcome::Failed { reason, message } => {
                    assert_eq!((service, *reason), (&key("s12"), FailureReason::KernelRefused), "{message}");
                }
            }
        }
        assert_eq!(pass.outcomes.len(), 6);
        let listing = namespace.list_table("tidegate");
        for ip in ["10.96.0.10", "10.96.0.11", "10.96.0.13", "10.96.0.14", "10.96.0.15"] {
            assert!(listing.contains(&format!("{ip} . 6 . 80 : 0x00000001")), "{ip}");
        }
        assert!(backend.is_disturbed().unwrap());
        backend.observe().unwrap();
        verified(&backend.apply(&desired, &Scope::Everything));
        assert!(namespace.list_table("tidegate").contains("10.96.0.12 . 6 . 80 : 0x00000001"));
    });
}

#[test]
fn the_mark_bit_can_be_chosen_and_must_be_one_bit() {
    let namespace = Namespace::new("mark");
    namespace.run(|| {
        let mut backend =
            NftablesBackend::open(NftablesOptions { mark_bit: 0x10, ..NftablesOptions::default() }).unwrap();
        verified(&backend.apply(&two_services(), &Scope::Everything));
        let listing = namespace.list_table("tidegate");
        assert!(
            listing.contains("meta mark set meta mark | 0x00000010") && !listing.contains("0x00004000"),
            "{listing}"
        );
        let writes = verified(&self::backend().apply(&two_services(), &Scope::Everything));
        assert!(writes > 0, "another bit is another rule");
        assert!(namespace.list_table("tidegate").contains("0x00004000"));
        for mark_bit in [0, 0x3] {
            assert!(
                NftablesBackend::open(NftablesOptions { mark_bit, ..NftablesOptions::default() }).is_err()
            );
        }
    });
}

#[test]
fn a_frontend_moves_between_services_in_one_pass_in_either_order() {
    let namespace = Namespace::new("move");
    namespace.run(|| {
        for (from, to) in [("a", "b"), ("b", "a")] {
            let mut backend = backend();
            let mut desired =
                desired(vec![(from, simple("10.96.0.1", &[("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)]))]);
            verified(&backend.apply(&desired, &Scope::Everything));
            desired.programs.clear();
            set(&mut desired, to, simple("10.96.0.1", &[("10.1.2.2", 8080, 1), ("10.1.3.2", 8080, 1)]));
            verified(&backend.apply(&desired, &only(&["a", "b"])));
            assert_eq!(
                verified(&self::backend().apply(&desired, &Scope::Everything)),
                0,
                "from {from} to {to}"
            );
        }
    });
}

#[test]
fn the_first_of_two_services_has_a_frontend_and_the_other_is_told_and_inherits() {
    let namespace = Namespace::new("conflict");
    namespace.run(|| {
        let shared = |target| {
            let verdict = forward(Masquerade::Always, &[(target, 80, 1)]);
            program(&[], &[], &[(at("203.0.113.7", Protocol::Tcp, 80), verdict)])
        };
        let mut desired = desired(vec![("b", shared("10.1.2.2"))]);
        let mut backend = backend();
        verified(&backend.apply(&desired, &Scope::Everything));
        set(&mut desired, "a", shared("10.1.1.2"));
        let pass = backend.apply(&desired, &only(&["a"]));
        assert_eq!(pass.outcomes[&key("a")], Outcome::Verified);
        let Outcome::Failed { reason: FailureReason::Unsupported, message } = &pass.outcomes[&key("b")]
        else {
            panic!("{:?}", pass.outcomes);
        };
        assert!(message.contains("203.0.113.7 is already taken by Service default/a"), "{message}");
        desired.programs.remove(&key("a"));
        verified(&backend.apply(&desired, &only(&["a"])));
        assert!(
            namespace.list_table("tidegate").contains("203.0.113.7 . 6 . 80 . 0 counter : 10.1.2.2 . 80")
        );
    });
}

#[test]
fn what_cannot_be_expressed_is_said_of_that_service_alone() {
    let namespace = Namespace::new("unsup");
    namespace.run(|| {
        let frontend = at("203.0.113.7", Protocol::Tcp, 80);
        let plain = || route(&frontend, forward(Masquerade::Always, &[("10.1.1.2", 80, 1)]));
        let mixed = route(&frontend, forward(Masquerade::Always, &[("fd01:1::2", 80, 1)]));
        let mut scheduled = plain();
        scheduled.scheduler = Some(Scheduler(Label::parse("wlc").unwrap()));
        let mut flagged = plain();
        flagged.scheduler_flags = [SchedulerFlag::OnePacket].into();
        let mut announced = plain();
        announced.proxy_protocol = Some(ProxyProtocol::V1);
        let ports = model::program::Frontend {
            ports: model::primitives::quantity::PortRange::new(port(30000), port(30010)),
            ..node_port(model::primitives::net::IpFamily::V4, Protocol::Tcp, 30000)
        };
        let ranged = route(&ports, forward_ports(Masquerade::Always, &["10.1.1.2"]));
        let sctp = at("203.0.113.7", Protocol::Sctp, 80);
        let relayed = route(&sctp, Verdict::Relay { port: port(1000) });
        let many = range("203.0.113.7", Protocol::Tcp, 80, 90);
        let renumbered = route(&many, forward(Masquerade::Always, &[("10.1.1.2", 80, 1)]));
        for (frontend, bad, word) in [
            (frontend, mixed, "family"),
            (frontend, scheduled, "scheduler wlc"),
            (frontend, flagged, "OnePacket"),
            (frontend, announced, "PROXY"),
            (ports, ranged, "node ports"),
            (sctp, relayed, "SCTP"),
            (many, renumbered, "keep their number"),
        ] {
            let good = simple("10.96.0.1", &[("10.1.1.2", 8080, 1)]);
            let desired = desired(vec![("bad", routed(vec![(frontend, bad)])), ("good", good)]);
            let pass = backend().apply(&desired, &Scope::Everything);
            let Outcome::Failed { reason: FailureReason::Unsupported, message } = &pass.outcomes[&key("bad")]
            else {
                panic!("{word}: {:?}", pass.outcomes);
            };
            assert!(message.contains(word), "{message}");
            assert_eq!(pass.outcomes[&key("good")], Outcome::Verified);
            let listing = namespace.list_table("tidegate");
            assert!(!listing.contains("203.0.113.7") && listing.contains("10.96.0.1"), "{word}");
            assert!(!listing.contains("30000"), "{word}");
        }
    });
}

mod random {
    //! Property test: from any kernel state that an earlier update has left, an update (pass) reaches the
    //! desired state. A new backend then finds nothing to change.

    use std::collections::BTreeSet;

    use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

    use super::*;

    /// Generated Service: number of its virtual address, endpoints with weights, true for UDP, and special
    /// route options.
    type Shape = (u8, Vec<(u8, u16)>, bool, Special);

    /// Generated route options: affinity, allowed sources, rejected sources, and the length of a port range.
    type Special = (Option<u32>, Option<u8>, u8, u16);

    #[derive(Debug, Clone)]
    struct Step {
        service: u8,
        program: Option<Shape>,
        also: BTreeSet<u8>,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let targets = prop::collection::vec((0u8..6, 0u16..5), 0..5);
        let special = (prop::option::of(1u32..3), prop::option::of(0u8..4), 0u8..4, 0u16..3);
        let program = prop::option::of((0u8..4, targets, any::<bool>(), special));
        let also = prop::collection::btree_set(0u8..4, 0..3);
        (0u8..4, program, also).prop_map(|(service, program, also)| Step { service, program, also })
    }

    fn name(service: u8) -> String {
        format!("s{service}")
    }

    fn build((place, list, udp, special): &Shape) -> model::program::Program {
        let list: Vec<_> =
            list.iter().map(|(number, weight)| (format!("10.1.{number}.2"), 80, *weight)).collect();
        let list: Vec<_> = list.iter().map(|(ip, port, weight)| (ip.as_str(), *port, *weight)).collect();
        let usable = list.iter().any(|(.., weight)| *weight > 0);
        let verdict = |masquerade| {
            if usable { forward(masquerade, &list) } else { model::program::Verdict::Reject }
        };
        let virtual_address = format!("10.96.0.{place}");
        let protocol = if *udp { Protocol::Udp } else { Protocol::Tcp };
        let hairpins: Vec<_> = list.iter().map(|(ip, ..)| *ip).collect();
        let node = node_port(model::primitives::net::IpFamily::V4, protocol, 30000 + u16::from(*place));
        let mut program = program(
            &[&virtual_address],
            &hairpins,
            &[
                (at(&virtual_address, protocol, 80), verdict(Masquerade::OffCluster)),
                (node, verdict(Masquerade::Always)),
            ],
        );
        let ips: Vec<_> = list.iter().filter(|(.., weight)| *weight > 0).map(|(ip, ..)| *ip).collect();
        if let (true, (.., length @ 1..)) = (usable, special) {
            // Some of these overlap with those of other Services at the same address.
            let first = 1000 + 10 * length;
            let frontend = range(&virtual_address, protocol, first, first + 15);
            let route = route(&frontend, forward_ports(Masquerade::Never, &ips));
            program.frontends.insert(frontend, route);
        }
        for (_, route) in &mut program.frontends {
            specialise(route, special);
        }
        program
    }

    fn specialise(route: &mut model::program::Route, (affinity, allowed, turned_away, _): &Special) {
        route.affinity_seconds = *affinity;
        let networks = [&["192.0.2.0/24"][..], &["192.0.2.128/25", "10.0.0.0/8"], &["0.0.0.0/0"], &[]];
        route.allowed_sources = allowed.map(|choice| nets(networks[usize::from(choice)]));
        match turned_away {
            0 => {}
            1 => route.from_elsewhere = Verdict::Drop,
            2 => route.from_node = Verdict::Reject,
            _ => route.from_workloads = Verdict::Relay { port: port(15_000) },
        }
    }

    #[test]
    fn any_sequence_of_changes_ends_where_a_fresh_start_would() {
        let namespace = Namespace::new("random");
        namespace.run(|| {
            let mut runner = TestRunner::default();
            let steps = prop::collection::vec(any_step(), 1..12);
            let mut backend = backend();
            let mut desired = DesiredState::default();
            assert!(backend.apply(&desired, &Scope::Everything).failed.is_none());
            for _ in 0..40 {
                let steps = steps.new_tree(&mut runner).unwrap().current();
                for step in &steps {
                    match &step.program {
                        Some(program) => set(&mut desired, &name(step.service), build(program)),
                        None => {
                            desired.programs.remove(&key(&name(step.service)));
                        }
                    }
                    let scope: Vec<_> = step.also.iter().copied().chain([step.service]).map(name).collect();
                    let scope = only(&scope.iter().map(String::as_str).collect::<Vec<_>>());
                    let pass = backend.apply(&desired, &scope);
                    assert!(pass.failed.is_none(), "{step:?}: {:?}", pass.failed);
                    assert!(!backend.is_disturbed().unwrap());
                }
                let mut fresh = self::super::backend();
                let pass = fresh.apply(&desired, &Scope::Everything);
                assert_eq!((pass.writes, pass.failed.is_none()), (0, true), "after {steps:?}");
            }
        });
    }
}
