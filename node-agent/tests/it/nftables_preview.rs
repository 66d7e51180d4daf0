//! Test that the lines that a preview in nftables mode adds are those that the `nft` listing shows after the
//! change.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use model::{
    kinds::service::{Protocol, Scheduler, SchedulerFlag},
    primitives::{name::Label, net::IpFamily},
    program::{Masquerade, Program, Route, Verdict},
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};

use crate::support::{
    Namespace,
    changes::{assert_same, check_previews, difference},
    listings::nft_table,
    programs::*,
};

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

#[test]
fn a_preview_is_the_difference_of_the_listings() {
    let namespace = Namespace::new("nftplan");
    let unseen = namespace.run(|| check_previews(&mut backend(), || nft_table("tidegate"), &[]));
    assert!(unseen.is_empty(), "the listing shows every kind of change: {unseen:?}");
}

/// Builds a desired state that contains each method of selecting a target.
fn every_choice() -> DesiredState {
    let four = [("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)];
    let six = [("fd01:1::2", 8080, 2), ("fd01:2::2", 8080, 1)];
    let masquerades = [Masquerade::OffCluster, Masquerade::Always, Masquerade::Never];
    let mut routes: Vec<(_, Route)> = Vec::new();
    let mut number = 1000;
    let mut next = || {
        number += 1;
        number
    };
    for masquerade in masquerades {
        for (affinity, scheduler, flags) in [
            (None, None, vec![]),
            (Some(600), None, vec![]),
            (None, Some("sh"), vec![]),
            (Some(30), Some("sh"), vec![SchedulerFlag::Port]),
        ] {
            let mut add = |frontend, verdict| {
                let mut route = route(&frontend, verdict);
                route.affinity_seconds = affinity;
                route.scheduler = scheduler.map(|name: &str| Scheduler(Label::parse(name).unwrap()));
                route.scheduler_flags = flags.iter().copied().collect();
                routes.push((frontend, route));
            };
            add(at("10.96.0.1", Protocol::Tcp, next()), forward(masquerade, &four));
            add(at("fd96::1", Protocol::Udp, next()), forward(masquerade, &six));
            add(node_port(IpFamily::V4, Protocol::Tcp, next()), forward(masquerade, &four));
            add(node_port(IpFamily::V6, Protocol::Sctp, next()), forward(masquerade, &six));
            let first = 2 * next() * 10;
            add(
                range("10.96.0.2", Protocol::Udp, first, first + 5),
                forward_ports(masquerade, &["10.1.1.2"]),
            );
            add(
                range("fd96::2", Protocol::Tcp, first, first + 5),
                forward_ports(masquerade, &["fd01:1::2", "fd01:1::3"]),
            );
        }
    }
    let frontend = at("10.96.0.3", Protocol::Tcp, 80);
    let verdicts = [
        forward(Masquerade::Never, &four),
        forward(Masquerade::Always, &[("10.1.9.9", 80, 1)]),
        forward(Masquerade::Always, &[("10.1.9.8", 80, 1), ("10.1.9.7", 80, 1)]),
    ];
    let mut affine = by_source(&frontend, verdicts.clone());
    affine.affinity_seconds = Some(3600);
    affine.allowed_sources = Some(nets(&["192.0.2.0/24", "192.0.3.0/25", "198.51.100.7/32", "0.0.0.0/1"]));
    let other = at("10.96.0.3", Protocol::Tcp, 81);
    routes.extend([(frontend, affine), (other, by_source(&other, verdicts))]);
    let relayed = at("10.96.0.3", Protocol::Tcp, 82);
    routes.push((relayed, route(&relayed, Verdict::Relay { port: port(4000) })));
    let program: Program = routed(routes);
    let mut desired = desired(vec![("all", program)]);
    desired.networks.masquerade_sources = nets(&["0.0.0.0/5", "11.0.0.0/8", "2000::/3"]);
    desired.networks.workloads =
        nets(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "fd01::/16", "fd01:1::/48"]);
    desired.networks.node_ports = nets(&["0.0.0.0/0", "::/0"]);
    desired
}

#[test]
fn every_way_of_choosing_a_target_is_written_as_nft_lists_it() {
    let namespace = Namespace::new("nftchains");
    namespace.run(|| {
        let mut backend = backend();
        verified(&backend.apply(&DesiredState::default(), &Scope::Everything));
        let (before, desired) = (nft_table("tidegate"), every_choice());
        let planned = backend.preview(&desired, &only(&["all"])).unwrap().unwrap();
        assert_eq!(nft_table("tidegate"), before);
        verified(&backend.apply(&desired, &only(&["all"])));
        assert_same("everything", &planned, &difference(&before, &nft_table("tidegate")));
    });
}
