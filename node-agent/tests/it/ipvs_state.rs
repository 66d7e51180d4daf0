//! Tests of the kernel state in ipvs mode, as listed by `ipvsadm`, `ipset`, `ip` and `iptables-save`.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests, and its cases are listed"
)]

use std::collections::BTreeSet;

use model::{
    kinds::{
        node::Naming,
        service::{Protocol, Scheduler, SchedulerFlag},
    },
    primitives::{name::Label, net::IpFamily},
    program::{Masquerade, Program, Role, Route, Verdict},
    wire::report::FailureReason,
};
use node_agent::dataplane::{BackendOptions, Dataplane, DesiredState, Outcome, Scope, ipvs::IpvsBackend};

use crate::support::{Namespace, guest, programs::*};

fn options(naming: Naming) -> BackendOptions {
    BackendOptions { naming, ..BackendOptions::default() }
}

fn open(naming: Naming) -> IpvsBackend {
    IpvsBackend::open(&options(naming)).unwrap()
}

/// Creates a namespace with one interface and several addresses, as a node has.
fn node(test: &str) -> Namespace {
    let node = Namespace::new(test);
    node.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
    node.ip(&["addr", "add", "192.0.2.1/24", "dev", "eth0"]);
    node.ip(&["addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad"]);
    node.ip(&["link", "set", "eth0", "up"]);
    node.ip(&["link", "set", "eth1", "up"]);
    // The legacy tables exist from the first access.
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        node.exec(&[program, "-t", "nat", "-S"]);
        node.exec(&[program, "-S"]);
    }
    node
}

/// Returns all kernel state that the backend may change, line by line.
fn everything(node: &Namespace) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for command in [
        "ipvsadm-save -n",
        "ipset save",
        "ip -o addr show",
        "iptables-legacy-save",
        "ip6tables-legacy-save",
        "sysctl net.ipv4.vs.conntrack net.ipv4.vs.expire_nodest_conn net.ipv4.vs.expire_quiescent_template",
        "sysctl net.ipv4.ip_forward net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce",
    ] {
        let listing = node.exec(&command.split(' ').collect::<Vec<_>>());
        // Omits comments (dates), brackets (counters), and link-local addresses of the kernel.
        let lasting = listing.lines().filter(|line| !line.starts_with('#') && !line.contains("fe80::"));
        let program = command.split(' ').next().unwrap();
        // A recreated interface has another index.
        let lasting = lasting.map(|line| line.split_once(": tidegate-ipvs").map_or(line, |(_, rest)| rest));
        lines.extend(lasting.map(|line| format!("{program} {}", line.split('[').next().unwrap().trim_end())));
    }
    lines
}

fn differences(a: &BTreeSet<String>, b: &BTreeSet<String>) -> Vec<String> {
    a.symmetric_difference(b).cloned().collect()
}

fn ipvsadm(node: &Namespace) -> Vec<String> {
    let listing = node.exec(&["ipvsadm", "-ln"]);
    listing.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn members(node: &Namespace, set: &str) -> Vec<String> {
    let listing = node.exec(&["ipset", "list", set]);
    let mut members: Vec<_> =
        listing.lines().skip_while(|line| *line != "Members:").skip(1).map(str::to_owned).collect();
    members.sort();
    members
}

fn apply(backend: &mut IpvsBackend, desired: &DesiredState) -> u64 {
    verified(&backend.apply(desired, &Scope::Everything))
}

/// Builds two Services as in a Kubernetes cluster: the API server with session affinity, and DNS over UDP and
/// TCP.
fn known() -> DesiredState {
    let mut https = program(
        &["10.0.0.1"],
        &[],
        &[(at("10.0.0.1", Protocol::Tcp, 443), forward(Masquerade::OffCluster, &[("192.168.0.1", 6443, 1)]))],
    );
    for (_, route) in &mut https.frontends {
        route.affinity_seconds = Some(10_800);
    }
    let dns = [Protocol::Tcp, Protocol::Udp].map(|protocol| {
        (at("10.0.0.10", protocol, 53), forward(Masquerade::OffCluster, &[("172.17.0.2", 53, 1)]))
    });
    let dns = program(&["10.0.0.10"], &["172.17.0.2"], &dns);
    desired(vec![("kubernetes", https), ("kube-dns", dns)])
}

fn known_services() {
    let node = node("known");
    node.run(|| apply(&mut open(Naming::Kube), &known()));
    let listing = node.exec(&["ipvsadm", "-ln"]);
    let head: Vec<_> =
        listing.lines().take(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        head,
        [
            "IP Virtual Server version 1.2.1 (size=4096)",
            "Prot LocalAddress:Port Scheduler Flags",
            "-> RemoteAddress:Port Forward Weight ActiveConn InActConn"
        ]
    );
    assert_eq!(
        ipvsadm(&node),
        [
            "TCP 10.0.0.1:443 rr persistent 10800",
            "-> 192.168.0.1:6443 Masq 1 0 0",
            "TCP 10.0.0.10:53 rr",
            "-> 172.17.0.2:53 Masq 1 0 0",
            "UDP 10.0.0.10:53 rr",
            "-> 172.17.0.2:53 Masq 1 0 0"
        ]
    );
    assert_eq!(
        members(&node, "KUBE-CLUSTER-IP"),
        ["10.0.0.1,tcp:443", "10.0.0.10,tcp:53", "10.0.0.10,udp:53"]
    );
    assert_eq!(
        members(&node, "KUBE-LOOP-BACK"),
        ["172.17.0.2,tcp:53,172.17.0.2", "172.17.0.2,udp:53,172.17.0.2"]
    );
    let link = node.exec(&["ip", "-o", "-4", "addr", "show", "dev", "kube-ipvs0"]);
    assert!(link.contains("10.0.0.1/32") && link.contains("10.0.0.10/32"), "{link}");
}

/// Builds a Service with every kind of frontend, half of which have external policy Local.
fn every_kind() -> DesiredState {
    let list = [("10.1.1.2", 8080, 1)];
    let anywhere = |role| Route::new(role, forward(Masquerade::Always, &list));
    let local = |role| Route {
        from_workloads: forward(Masquerade::Never, &list),
        from_node: forward(Masquerade::Always, &list),
        from_elsewhere: forward(Masquerade::Never, &list),
        ..Route::new(role, Verdict::Drop)
    };
    let ranged = Route {
        allowed_sources: Some(["192.0.2.0/24".parse().unwrap()].into()),
        ..anywhere(Role::LoadBalancer)
    };
    let (tcp, udp, sctp) = (Protocol::Tcp, Protocol::Udp, Protocol::Sctp);
    let any = |protocol, number| node_port(IpFamily::V4, protocol, number);
    let frontends = [
        (at("10.0.0.1", tcp, 80), Route::new(Role::ClusterIp, forward(Masquerade::OffCluster, &list))),
        (at("203.0.113.1", tcp, 80), anywhere(Role::ExternalIp)),
        (at("203.0.113.2", tcp, 80), local(Role::ExternalIp)),
        (at("203.0.113.3", tcp, 80), anywhere(Role::LoadBalancer)),
        (at("203.0.113.4", tcp, 80), local(Role::LoadBalancer)),
        (at("203.0.113.5", tcp, 80), ranged),
        (any(tcp, 30001), anywhere(Role::NodePort)),
        (any(tcp, 30002), local(Role::NodePort)),
        (any(udp, 30003), anywhere(Role::NodePort)),
        (any(udp, 30004), local(Role::NodePort)),
        (any(sctp, 30005), anywhere(Role::NodePort)),
        (any(sctp, 30006), local(Role::NodePort)),
    ];
    let program = Program {
        frontends: frontends.into_iter().collect(),
        virtual_addresses: [address("10.0.0.1")].into(),
        hairpins: [address("10.1.1.2")].into(),
        health_check: None,
    };
    desired(vec![("kinds", program)])
}

fn sets_hold_their_members() {
    let node = node("sets");
    node.run(|| apply(&mut open(Naming::Kube), &every_kind()));
    for (set, wanted) in [
        ("KUBE-CLUSTER-IP", &["10.0.0.1,tcp:80"][..]),
        ("KUBE-EXTERNAL-IP", &["203.0.113.1,tcp:80"]),
        ("KUBE-EXTERNAL-IP-LOCAL", &["203.0.113.2,tcp:80"]),
        ("KUBE-LOAD-BALANCER", &["203.0.113.3,tcp:80", "203.0.113.4,tcp:80", "203.0.113.5,tcp:80"]),
        ("KUBE-LOAD-BALANCER-LOCAL", &["203.0.113.4,tcp:80"]),
        ("KUBE-LOAD-BALANCER-FW", &["203.0.113.5,tcp:80"]),
        ("KUBE-LOAD-BALANCER-SOURCE-CIDR", &["203.0.113.5,tcp:80,192.0.2.0/24"]),
        ("KUBE-NODE-PORT-TCP", &["30001"]),
        ("KUBE-NODE-PORT-LOCAL-TCP", &["30002"]),
        ("KUBE-NODE-PORT-UDP", &["30003"]),
        ("KUBE-NODE-PORT-LOCAL-UDP", &["30004"]),
        ("KUBE-NODE-PORT-SCTP-HASH", &["192.0.2.1,sctp:30005"]),
        ("KUBE-NODE-PORT-LOCAL-SCTP-HASH", &["192.0.2.1,sctp:30006"]),
        ("KUBE-6-CLUSTER-IP", &[]),
    ] {
        assert_eq!(members(&node, set), wanted, "{set}");
    }
}

fn nothing_is_written_twice_and_cleanup_leaves_nothing() {
    let node = node("twice");
    node.exec(&["ipvsadm", "-A", "-t", "198.51.100.1:80", "-s", "rr"]);
    node.exec(&["ipvsadm", "-a", "-t", "198.51.100.1:80", "-r", "198.51.100.2:80", "-m"]);
    node.exec(&["ipset", "create", "FOREIGN", "hash:ip"]);
    node.exec(&["ipset", "add", "FOREIGN", "198.51.100.3"]);
    node.exec(&[
        "iptables-legacy",
        "-A",
        "INPUT",
        "-m",
        "set",
        "--match-set",
        "FOREIGN",
        "src",
        "-j",
        "DROP",
    ]);
    node.exec(&["ip6tables-legacy", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-j", "ACCEPT"]);
    for naming in [Naming::Tidegate, Naming::Kube] {
        let options = BackendOptions { strict_arp: true, ..options(naming) };
        let before = everything(&node);
        node.run(|| {
            let mut desired = every_kind();
            for (name, program) in known().programs {
                desired.programs.insert(name, program);
            }
            desired.networks.workloads =
                ["10.1.0.0/16".parse().unwrap(), "fd01::/16".parse().unwrap()].into();
            desired.networks.masquerade_sources =
                ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()].into();
            let mut backend = IpvsBackend::open(&options).unwrap();
            assert!(apply(&mut backend, &desired) > 40);
            assert_eq!(apply(&mut backend, &desired), 0, "the same backend writes nothing again");
            assert!(!backend.is_disturbed().unwrap());
            let mut fresh = IpvsBackend::open(&options).unwrap();
            assert_eq!(apply(&mut fresh, &desired), 0, "neither does a fresh one");
            assert!(!fresh.is_disturbed().unwrap());
            assert_eq!(node.exec(&["sysctl", "-n", "net.ipv4.conf.all.arp_ignore"]).trim(), "1");
            assert_eq!(node.exec(&["sysctl", "-n", "net.ipv4.conf.all.arp_announce"]).trim(), "2");
            assert!(IpvsBackend::open(&options).unwrap().cleanup().unwrap() > 40);
            assert_eq!(IpvsBackend::open(&options).unwrap().cleanup().unwrap(), 0);
        });
        assert_eq!(differences(&everything(&node), &before), Vec::<String>::new());
    }
}

fn foreign_servers_are_in_the_way_of_one_service_only() {
    let node = node("foreign");
    node.exec(&["ipvsadm", "-A", "-t", "10.0.0.1:443", "-s", "lc"]);
    node.run(|| {
        let mut backend = open(Naming::Tidegate);
        let pass = backend.apply(&known(), &Scope::Everything);
        assert!(pass.failed.is_none(), "{:?}", pass.failed);
        assert_eq!(pass.outcomes[&key("kube-dns")], Outcome::Verified);
        let Outcome::Failed { reason, message } = &pass.outcomes[&key("kubernetes")] else {
            panic!("{pass:?}")
        };
        assert_eq!(*reason, FailureReason::KernelRefused);
        assert!(
            message.contains("TCP 10.0.0.1:443 is already a virtual server of somebody else"),
            "{message}"
        );
    });
    assert!(ipvsadm(&node).contains(&"TCP 10.0.0.1:443 lc".to_owned()));
}

fn scheduled(address: &str, scheduler: &str, flags: &[SchedulerFlag]) -> Program {
    let mut program = simple(address, &[("10.1.1.2", 8080, 1)]);
    for (_, route) in &mut program.frontends {
        route.scheduler = Some(Scheduler(Label::parse(scheduler).unwrap()));
        route.scheduler_flags = flags.iter().copied().collect();
    }
    program
}

const SCHEDULERS: [&str; 13] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh"];

fn every_scheduler_can_be_named_and_one_that_is_not_there_is_reported() {
    let node = node("sched");
    node.run(|| {
        let mut desired = DesiredState::default();
        for (index, scheduler) in SCHEDULERS.iter().enumerate() {
            set(
                &mut desired,
                &format!("s{index:02}"),
                scheduled(&format!("10.0.0.{}", index + 1), scheduler, &[]),
            );
        }
        set(
            &mut desired,
            "flags",
            scheduled("10.0.1.1", "mh", &[SchedulerFlag::Port, SchedulerFlag::Fallback]),
        );
        let mut bad = scheduled("10.0.1.2", "nosuch", &[]);
        bad.frontends.extend(simple("10.0.1.3", &[("10.1.1.2", 8080, 1)]).frontends);
        set(&mut desired, "bad", bad);
        set(&mut desired, "proxied", {
            let mut program = simple("10.0.1.4", &[("10.1.1.2", 8080, 1)]);
            for (_, route) in &mut program.frontends {
                route.proxy_protocol = Some(model::kinds::service::ProxyProtocol::V2);
            }
            program
        });
        let mut backend = open(Naming::Tidegate);
        let pass = backend.apply(&desired, &Scope::Everything);
        assert!(pass.failed.is_none(), "{:?}", pass.failed);
        for (service, outcome) in &pass.outcomes {
            let wanted_word = match service.to_string().as_str() {
                "default/bad" => "modprobe ip_vs_nosuch",
                "default/proxied" => "userspace",
                _ => {
                    assert_eq!(*outcome, Outcome::Verified, "{service}");
                    continue;
                }
            };
            let Outcome::Failed { reason, message } = outcome else { panic!("{service} is {outcome:?}") };
            assert_eq!(*reason, FailureReason::Unsupported);
            assert!(message.contains(wanted_word), "{message}");
        }
        assert!(!backend.is_disturbed().unwrap());
    });
    let listing = ipvsadm(&node).join("\n");
    for (index, scheduler) in SCHEDULERS.iter().enumerate() {
        assert!(listing.contains(&format!("TCP 10.0.0.{}:80 {scheduler}", index + 1)), "{listing}");
    }
    assert!(listing.contains("TCP 10.0.1.1:80 mh (mh-fallback,mh-port)"), "{listing}");
    assert!(!listing.contains("10.0.1.3"), "nothing of a refused Service is programmed: {listing}");
}

fn disturbances_are_seen_and_repaired() {
    let node = node("disturb");
    let desired = every_kind();
    node.run(|| {
        let mut backend = open(Naming::Tidegate);
        apply(&mut backend, &desired);
        let before = everything(&node);
        for disturbance in [
            "ipvsadm -C",
            "ipvsadm -D -t 10.0.0.1:80",
            "ipvsadm -d -t 10.0.0.1:80 -r 10.1.1.2:8080",
            "ipvsadm -E -t 10.0.0.1:80 -s wlc",
            "ipset flush TGV-CLUSTER-IP",
            "ipset flush",
            "ipset del TGV-NODE-PORT-TCP 30001",
            "iptables-legacy -F TGV-IPVS-FILTER",
            "iptables-legacy -t nat -F",
            "iptables-legacy -D TGV-IPVS-FILTER 2",
            "ip link del tidegate-ipvs",
            "ip addr del 10.0.0.1/32 dev tidegate-ipvs",
            "ip link set tidegate-ipvs down",
            "sysctl -qw net.ipv4.vs.conntrack=0",
        ] {
            assert!(!backend.is_disturbed().unwrap(), "before {disturbance}");
            node.exec(&disturbance.split(' ').collect::<Vec<_>>());
            assert!(backend.is_disturbed().unwrap(), "{disturbance} is not seen");
            backend.observe().unwrap();
            assert!(apply(&mut backend, &desired) > 0, "{disturbance} is not repaired");
            let after = everything(&node);
            assert_eq!(differences(&after, &before), Vec::<String>::new(), "after {disturbance}");
        }
    });
}

fn rules_do_not_grow_and_a_change_costs_itself() {
    let node = node("grow");
    node.run(|| {
        let mut backend = open(Naming::Tidegate);
        let mut desired = DesiredState::default();
        let mut rules = BTreeSet::new();
        let mut messages = BTreeSet::new();
        for count in [2, 60] {
            for index in 0..count {
                let list = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
                set(&mut desired, &format!("s{index:03}"), simple(&format!("10.0.0.{}", index + 1), &list));
            }
            apply(&mut backend, &desired);
            rules.insert(
                node.exec(&["iptables-legacy-save"]).lines().filter(|line| line.starts_with("-A")).count(),
            );
            let before = backend.counters().messages;
            let list = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1), ("10.1.3.2", 8080, 1)];
            set(&mut desired, "s001", simple("10.0.0.2", &list));
            verified(&backend.apply(&desired, &only(&["s001"])));
            messages.insert(backend.counters().messages - before);
        }
        assert_eq!(rules.len(), 1, "{rules:?}");
        assert_eq!(messages, BTreeSet::from([2]), "the destination and its way to itself");
    });
}

fn node_ports_follow_the_addresses_of_the_node() {
    let node = node("follow");
    node.run(|| {
        let mut backend = open(Naming::Tidegate);
        let list = [("10.1.1.2", 8080, 1)];
        let frontend = (node_port(IpFamily::V4, Protocol::Tcp, 30080), forward(Masquerade::Always, &list));
        let cluster = (at("10.0.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &list));
        let mut desired = desired(vec![("web", program(&["10.0.0.1"], &[], &[frontend, cluster]))]);
        apply(&mut backend, &desired);
        let servers = || {
            let lines = ipvsadm(&node).into_iter().filter(|line| line.starts_with("TCP"));
            lines.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(servers(), ["TCP 10.0.0.1:80 rr", "TCP 192.0.2.1:30080 rr"]);
        node.ip(&["addr", "add", "198.51.100.1/24", "dev", "eth0"]);
        backend.upkeep().unwrap();
        assert_eq!(servers(), ["TCP 10.0.0.1:80 rr", "TCP 192.0.2.1:30080 rr", "TCP 198.51.100.1:30080 rr"]);
        node.ip(&["addr", "del", "192.0.2.1/24", "dev", "eth0"]);
        backend.upkeep().unwrap();
        assert_eq!(servers(), ["TCP 10.0.0.1:80 rr", "TCP 198.51.100.1:30080 rr"]);
        desired.networks.node_ports = ["192.0.2.0/24".parse().unwrap()].into();
        verified(&backend.apply(&desired, &only(&[])));
        assert_eq!(servers(), ["TCP 10.0.0.1:80 rr"]);
        assert!(!backend.is_disturbed().unwrap());
    });
}

fn the_codec_reads_what_others_wrote() {
    let node = node("codec");
    node.exec(&["ipvsadm", "--set", "901", "121", "301"]);
    node.run(|| {
        let (timeouts, info, daemons) = open(Naming::Tidegate).settings().unwrap();
        assert_eq!((timeouts.tcp_secs, timeouts.tcp_fin_secs, timeouts.udp_secs), (901, 121, 301));
        assert_eq!((info.version, info.connection_table_size), (0x01_02_01, 4096));
        assert!(daemons.is_empty());
    });
}

#[test]
fn f063_f076_f081_f082_the_known_listings_are_reproduced() {
    guest::run(
        "ipvs_state::f063_f076_f081_f082_the_known_listings_are_reproduced",
        &[("known Services", known_services)],
    );
}

#[test]
fn f103_f104_f105_f106_f107_f108_f109_f110_f111_f112_f113_sets_hold_their_members() {
    guest::run(
        "ipvs_state::f103_f104_f105_f106_f107_f108_f109_f110_f111_f112_f113_sets_hold_their_members",
        &[("sets hold their members", sets_hold_their_members)],
    );
}

#[test]
fn f066_f073_f075_f083_f129_the_kernel_holds_what_is_asked_and_nothing_of_others_changes() {
    guest::run(
        "ipvs_state::f066_f073_f075_f083_f129_the_kernel_holds_what_is_asked_and_nothing_of_others_changes",
        &[
            (
                "nothing is written twice, cleanup leaves nothing",
                nothing_is_written_twice_and_cleanup_leaves_nothing,
            ),
            ("foreign servers stay", foreign_servers_are_in_the_way_of_one_service_only),
            ("every scheduler", every_scheduler_can_be_named_and_one_that_is_not_there_is_reported),
            ("disturbances", disturbances_are_seen_and_repaired),
            ("rules do not grow", rules_do_not_grow_and_a_change_costs_itself),
            ("node ports follow", node_ports_follow_the_addresses_of_the_node),
            ("the codec reads", the_codec_reads_what_others_wrote),
        ],
    );
}
