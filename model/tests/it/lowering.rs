//! Behavior that the proxy modes ipvs and userspace can implement: refused settings with their messages, the sources
//! that are masqueraded, and the verdicts that change.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use model::{
    kinds::{
        node::ProxyMode,
        service::{Protocol, ProxyProtocol, Scheduler, SchedulerFlag},
    },
    primitives::{
        name::Label,
        net::IpFamily,
        quantity::{Port, PortRange, Weight},
    },
    program::{
        Destination, Frontend, Masquerade, Program, Role, Route, Target, Verdict,
        lower::{
            ipvs::{self, Profile},
            lower,
            userspace::{self, Policy},
        },
    },
};

fn frontend(protocol: Protocol, last_port: u16) -> Frontend {
    let ports = PortRange::new(Port::new(80).unwrap(), Port::new(last_port).unwrap());
    Frontend { destination: Destination::Address(IpAddr::from([10, 96, 0, 10])), protocol, ports }
}

fn forward(masquerade: Masquerade, addresses: &[IpAddr]) -> Verdict {
    let target = |address: &IpAddr| (Target { address: *address, port: Port::new(8080) }, Weight(1));
    Verdict::Forward { masquerade, targets: Arc::new(addresses.iter().map(target).collect()) }
}

fn route() -> Route {
    Route::new(Role::ClusterIp, forward(Masquerade::Never, &[IpAddr::from([10, 1, 0, 1])]))
}

fn with_scheduler(name: &str, flags: &[SchedulerFlag]) -> Route {
    Route {
        scheduler: Some(Scheduler(Label::parse(name).unwrap())),
        scheduler_flags: flags.iter().copied().collect(),
        ..route()
    }
}

fn program(frontend: Frontend, route: Route) -> Program {
    Program { frontends: [(frontend, route)].into_iter().collect(), ..Program::default() }
}

fn refusal(frontend: Frontend, route: Route) -> Option<String> {
    lower(&program(frontend, route), ProxyMode::Ipvs).err()
}

#[test]
fn ipvs_refuses_settings_that_it_cannot_implement() {
    let tcp = frontend(Protocol::Tcp, 80);
    let udp = frontend(Protocol::Udp, 80);
    let [port, fallback, one_packet] =
        [SchedulerFlag::Port, SchedulerFlag::Fallback, SchedulerFlag::OnePacket];
    let relayed = Route { from_node: Verdict::Relay { port: Port::new(9000).unwrap() }, ..route() };
    let other_family = Route::new(Role::ClusterIp, forward(Masquerade::Never, &["fd00::1".parse().unwrap()]));
    let hash_flags =
        |name: &str| Some(format!("flags port and fallback require scheduler sh or mh, not {name}"));
    let cases = [
        (tcp, route(), None),
        (
            tcp,
            Route { proxy_protocol: Some(ProxyProtocol::V2), ..route() },
            Some("port 80: the PROXY protocol requires proxy mode userspace".to_owned()),
        ),
        // 256 ports, and one more.
        (frontend(Protocol::Tcp, 335), route(), None),
        (
            frontend(Protocol::Tcp, 336),
            route(),
            Some("port range 80-336 is longer than the 256 ports that ipvs mode supports".to_owned()),
        ),
        (tcp, relayed, Some("port 80: ipvs cannot forward to a listener".to_owned())),
        (tcp, other_family, Some("target fd00::1 is not of the frontend's family IPv4".to_owned())),
        (tcp, with_scheduler("a23456789012345", &[]), None),
        (
            tcp,
            with_scheduler("a234567890123456", &[]),
            Some("scheduler a234567890123456 is longer than 15 characters".to_owned()),
        ),
        (tcp, with_scheduler("sh", &[port, fallback]), None),
        (tcp, with_scheduler("mh", &[port, fallback]), None),
        (tcp, with_scheduler("rr", &[port]), hash_flags("rr")),
        (tcp, with_scheduler("wlc", &[fallback]), hash_flags("wlc")),
        (udp, with_scheduler("rr", &[one_packet]), None),
        (tcp, with_scheduler("rr", &[one_packet]), Some("port 80: flag onePacket requires UDP".to_owned())),
    ];
    for (frontend, route, expected) in cases {
        let shown = format!("{frontend:?} {:?} {:?}", route.scheduler, route.scheduler_flags);
        assert_eq!(refusal(frontend, route), expected, "{shown}");
    }
}

#[test]
fn ipvs_masquerades_the_sources_that_its_rules_can_express() {
    let to = |masquerade| forward(masquerade, &[IpAddr::from([10, 1, 0, 1])]);
    let (never, outside, always) =
        (to(Masquerade::Never), to(Masquerade::OffCluster), to(Masquerade::Always));
    let (reject, drop) = (Verdict::Reject, Verdict::Drop);
    let cases = [
        ([&never, &never, &never], Some(Profile::Never)),
        ([&never, &never, &drop], Some(Profile::Never)),
        ([&outside, &outside, &outside], Some(Profile::BySource)),
        ([&outside, &outside, &drop], Some(Profile::BySource)),
        ([&always, &always, &always], Some(Profile::Always)),
        ([&always, &always, &drop], Some(Profile::Always)),
        ([&never, &always, &never], Some(Profile::NodeOnly)),
        ([&never, &always, &drop], Some(Profile::NodeOnly)),
        ([&reject, &reject, &reject], Some(Profile::Never)),
        ([&drop, &drop, &drop], Some(Profile::Never)),
        ([&reject, &reject, &drop], Some(Profile::Never)),
        // The rules do not tell workloads from the node, nor do they refuse some sources only.
        ([&reject, &drop, &drop], None),
        ([&drop, &drop, &reject], None),
        ([&never, &never, &reject], None),
        ([&never, &never, &always], None),
        ([&always, &never, &never], None),
        ([&reject, &never, &never], None),
        ([&never, &reject, &never], None),
        ([&outside, &always, &outside], None),
    ];
    for ([workloads, node, elsewhere], expected) in cases {
        let route = Route {
            from_workloads: workloads.clone(),
            from_node: node.clone(),
            from_elsewhere: elsewhere.clone(),
            ..route()
        };
        assert_eq!(ipvs::profile(&route), expected, "{:?}", route.verdicts());
        let error =
            expected.is_none().then(|| "port 80: ipvs cannot treat these sources differently".to_owned());
        assert_eq!(refusal(frontend(Protocol::Tcp, 80), route), error);
    }
}

#[test]
fn ipvs_gives_all_sources_the_targets_of_the_first_verdict_that_forwards() {
    let here = [IpAddr::from([10, 1, 0, 1])];
    let all = [IpAddr::from([10, 1, 0, 1]), IpAddr::from([10, 2, 0, 1])];
    let (local, every) = (forward(Masquerade::Never, &here), forward(Masquerade::Never, &all));
    let frontend = frontend(Protocol::Tcp, 80);
    let lowered = |from_elsewhere: &Verdict| {
        let route = Route { from_workloads: every.clone(), from_node: every.clone(), ..route() };
        let route = Route { from_elsewhere: from_elsewhere.clone(), ..route };
        let lowered = lower(&program(frontend, route), ProxyMode::Ipvs).unwrap();
        // Daemons of the node are not reached at a virtual address.
        assert_eq!(lowered.virtual_addresses, BTreeSet::from([IpAddr::from([10, 96, 0, 10])]));
        lowered.frontends[&frontend].verdicts().map(Clone::clone)
    };
    assert_eq!(lowered(&local), [local.clone(), local.clone(), local.clone()]);
    assert_eq!(lowered(&Verdict::Drop), [every.clone(), every.clone(), Verdict::Drop]);
}

/// The addresses of the node are no addresses of the Service.
#[test]
fn ipvs_owns_no_address_for_a_node_port() {
    let node_port =
        Frontend { destination: Destination::AnyLocal(IpFamily::V4), ..frontend(Protocol::Tcp, 80) };
    let lowered = lower(&program(node_port, route()), ProxyMode::Ipvs).unwrap();
    assert_eq!(lowered.virtual_addresses, BTreeSet::new());
}

#[test]
fn userspace_mode_has_a_policy_for_its_schedulers_only() {
    let [port, fallback, one_packet] =
        [SchedulerFlag::Port, SchedulerFlag::Fallback, SchedulerFlag::OnePacket];
    let cases: [(&str, &[SchedulerFlag], Option<Policy>); 13] = [
        ("rr", &[], Some(Policy::RoundRobin)),
        ("wrr", &[], Some(Policy::RoundRobin)),
        ("rr", &[port], None),
        ("lc", &[], Some(Policy::LeastConnections)),
        ("lc", &[fallback], None),
        ("sh", &[], Some(Policy::SourceHash { with_port: false })),
        ("sh", &[fallback], Some(Policy::SourceHash { with_port: false })),
        ("sh", &[fallback, port], Some(Policy::SourceHash { with_port: true })),
        ("sh", &[one_packet], None),
        ("mh", &[], Some(Policy::SourceHash { with_port: false })),
        ("mh", &[port], Some(Policy::SourceHash { with_port: true })),
        ("mh", &[one_packet], None),
        ("wlc", &[], None),
    ];
    assert_eq!(Policy::of(&route()), Some(Policy::RoundRobin));
    for (name, flags, expected) in cases {
        assert_eq!(Policy::of(&with_scheduler(name, flags)), expected, "{name} {flags:?}");
    }
}

#[test]
fn userspace_mode_rejects_what_its_relay_cannot_forward() {
    let (tcp, udp, sctp) =
        (frontend(Protocol::Tcp, 80), frontend(Protocol::Udp, 80), frontend(Protocol::Sctp, 80));
    let header = |version| Route { proxy_protocol: Some(version), ..route() };
    let cases = [
        (tcp, route(), None),
        (tcp, header(ProxyProtocol::V1), None),
        (udp, header(ProxyProtocol::V2), None),
        (
            udp,
            header(ProxyProtocol::V1),
            Some("PROXY protocol v1 is for TCP only; UDP port 80 needs v2".to_owned()),
        ),
        (sctp, route(), Some("port 80: userspace mode relays no SCTP".to_owned())),
        (
            tcp,
            with_scheduler("sed", &[]),
            Some(
                "port 80: userspace mode has the schedulers rr, wrr, lc, sh and mh (with the flags fallback and \
                 port), not `sed` with these flags"
                    .to_owned(),
            ),
        ),
    ];
    for (frontend, route, expected) in cases {
        assert_eq!(userspace::unsupported(&frontend, &route), expected);
        let lowered = lower(&program(frontend, route), ProxyMode::Userspace).unwrap();
        let verdict = match expected {
            None => forward(Masquerade::Always, &[IpAddr::from([10, 1, 0, 1])]),
            Some(_) => Verdict::Reject,
        };
        assert_eq!(lowered.frontends[&frontend].uniform(), Some(&verdict));
    }
    let refused = Route { from_elsewhere: Verdict::Drop, ..route() };
    let lowered = lower(&program(tcp, refused), ProxyMode::Userspace).unwrap();
    assert_eq!(lowered.frontends[&tcp].from_elsewhere, Verdict::Drop);
}
