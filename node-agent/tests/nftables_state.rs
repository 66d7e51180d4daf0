//! What the backend leaves in the kernel: nothing when nothing differs, repairs of what others did, and never a touch
//! on what is not ours.

mod support;

use model::{program::Masquerade, report::FailureReason, service::Protocol};
use node_agent::dataplane::{
    Dataplane, Desired, Outcome, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};
use support::{Namespace, programs::*};

fn backend() -> NftablesBackend {
    NftablesBackend::open(NftablesOptions::default()).unwrap()
}

fn two_services() -> Desired {
    let mut desired = desired(vec![
        ("one", simple("10.96.0.1", &[("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1)])),
        ("two", simple("fd96::2", &[("fd01:1::2", 8080, 1)])),
        ("none", simple("10.96.0.3", &[])),
    ]);
    desired.masquerade_sources = ["192.0.2.0/24", "198.51.100.0/25", "198.51.100.128/25", "2000::/3", "224.0.0.0/3"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    let everywhere = program(&["10.96.0.4"], &[], &[
        (at("10.96.0.4", Protocol::Udp, 53), forward(Masquerade::OffCluster, &[("10.1.1.2", 5353, 1)])),
        (at("203.0.113.7", Protocol::Udp, 53), forward(Masquerade::Always, &[("10.1.1.2", 5353, 1), ("10.1.2.2", 5353, 1)])),
        (node_port(model::net::IpFamily::V4, Protocol::Udp, 30053), forward(Masquerade::Always, &[("10.1.1.2", 5353, 1)])),
        (node_port(model::net::IpFamily::V6, Protocol::Udp, 30053), forward(Masquerade::Always, &[("fd01:1::2", 5353, 1)])),
    ]);
    set(&mut desired, "everywhere", everywhere);
    desired
}

#[test]
fn a_fresh_process_with_an_equal_desired_state_writes_nothing() {
    let namespace = Namespace::new("restart");
    namespace.run(|| {
        let desired = two_services();
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
