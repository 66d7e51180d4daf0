//! Tests of the tracking of network interfaces by notifications of the kernel.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{fmt::Write as _, process::Stdio};

use node_agent::{
    facts,
    links::{Link, Links, Mac, follow::Follower},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
};

use crate::support::{self, Namespace, segment::eventually};

/// Starts the tracking of the interfaces of a namespace on a tokio runtime with `threads` threads; `None`
/// selects a single-threaded runtime.
fn follow(namespace: &Namespace, threads: Option<usize>) -> (Runtime, watch::Receiver<Links>) {
    namespace.run(|| {
        let runtime = match threads {
            Some(threads) => {
                Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
            }
            None => Builder::new_current_thread().enable_all().build().unwrap(),
        };
        let inside = runtime.enter();
        let (follower, links) = Follower::open().unwrap();
        runtime.spawn(follower.run());
        drop(inside);
        (runtime, links)
    })
}

fn named(links: &watch::Receiver<Links>, name: &str) -> Option<Link> {
    links.borrow().by_index.values().find(|link| link.name == name).cloned()
}

/// The tracker provides the initial list of interfaces and then every change, without polling.
#[test]
fn links_are_followed_through_their_lives() {
    let namespace = Namespace::new("links");
    namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    namespace.ip(&["addr", "add", "192.0.2.1/24", "dev", "v0"]);
    let (_runtime, links) = follow(&namespace, Some(1));
    let v0 = named(&links, "v0").expect("there from the start");
    assert!(!v0.is_up && v0.mac.is_some_and(Mac::is_unicast), "{v0:?}");
    assert_eq!(v0.addresses, [("192.0.2.1".parse().unwrap(), 24)].into());
    assert!(named(&links, "lo").is_some_and(|lo| lo.mac.is_none() && lo.is_up));

    let is = |name: &'static str, what: &str, wanted: &dyn Fn(&Link) -> bool| {
        eventually(what, || named(&links, name).is_some_and(|link| wanted(&link)));
    };
    namespace.ip(&["link", "set", "v0", "up"]);
    assert!(named(&links, "v0").is_some_and(|link| !link.is_up), "up, and without a carrier");
    namespace.ip(&["link", "set", "v1", "up"]);
    is("v0", "a carrier", &|link| link.is_up);
    namespace.ip(&["addr", "add", "2001:db8::1/64", "dev", "v0", "nodad"]);
    is("v0", "an address", &|link| link.addresses.get(&"2001:db8::1".parse().unwrap()) == Some(&64));
    namespace.ip(&["addr", "del", "192.0.2.1/24", "dev", "v0"]);
    is("v0", "no IPv4 address", &|link| link.addresses.keys().all(std::net::IpAddr::is_ipv6));
    namespace.ip(&["link", "set", "v0", "address", "02:00:00:00:00:42"]);
    is("v0", "another Ethernet address", &|link| link.mac == Some(Mac([2, 0, 0, 0, 0, 0x42])));
    namespace.ip(&["link", "set", "v1", "down"]);
    is("v0", "the carrier lost", &|link| !link.is_up);
    namespace.ip(&["link", "set", "v0", "down"]);
    namespace.ip(&["link", "set", "v0", "name", "w0"]);
    is("w0", "another name", &|_| true);
    namespace.ip(&["link", "add", "br0", "type", "bridge"]);
    namespace.ip(&["link", "set", "w0", "master", "br0"]);
    namespace.ip(&["link", "set", "w0", "nomaster"]);
    namespace.ip(&["link", "set", "w0", "up"]);
    namespace.ip(&["link", "set", "v1", "up"]);
    is("w0", "there after it has left a bridge", &|link| link.is_up);
    namespace.ip(&["link", "del", "w0"]);
    eventually("gone", || named(&links, "w0").is_none() && named(&links, "v1").is_none());
}

/// The networks in reports follow changes of interfaces. A network on an interface without ARP is not
/// reported as one in which addresses can be announced.
#[test]
fn networks_to_announce_on_are_those_of_interfaces_with_neighbours() {
    let namespace = Namespace::new("linkfacts");
    namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    let (_runtime, links) = follow(&namespace, Some(1));
    let subnets = || facts::of(&links.borrow()).subnets;
    assert!(subnets().is_empty());
    namespace.ip(&["addr", "add", "192.0.2.1/24", "dev", "v0"]);
    namespace.ip(&["addr", "add", "2001:db8::1/64", "dev", "v0", "nodad"]);
    let both = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()];
    eventually("both networks", || subnets() == [("v0".to_owned(), both.clone())].into());
    assert_eq!(facts::of(&links.borrow()).addresses.len(), 2);
    namespace.ip(&["link", "set", "v0", "arp", "off"]);
    eventually("no network", || subnets().is_empty());
    assert!(facts::of(&links.borrow()).addresses.contains(&"192.0.2.1".parse().unwrap()));
}

/// If the kernel sends more events than the socket buffer holds, the tracker reads the whole list again.
#[test]
fn lost_events_are_made_up_for_by_a_new_list() {
    let namespace = Namespace::new("linkslost");
    namespace.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
    let (runtime, mut links) = follow(&namespace, None);
    let mut script = String::new();
    for round in 0..4 {
        for number in 0..1000_u32 {
            let verb = if round % 2 == 0 { "add" } else { "del" };
            writeln!(script, "addr {verb} 10.0.{}.{}/32 dev v0", number / 250, number % 250).unwrap();
        }
    }
    script.push_str("addr add 192.0.2.1/24 dev v0\nlink set v0 name w0\n");
    let mut child = std::process::Command::new("ip")
        .args(["-n", namespace.name(), "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    runtime.block_on(async {
        let whole = async {
            links.wait_for(|links| links.by_index.values().any(|link| link.name == "w0")).await.unwrap();
        };
        tokio::time::timeout(support::segment::PATIENCE, whole).await.expect("the new name is seen");
    });
    let w0 = named(&links, "w0").unwrap();
    assert_eq!(w0.addresses, [("192.0.2.1".parse().unwrap(), 24)].into());
}
