//! Tests of ping replies for announced addresses that no interface of the node has. Pings are sent by
//! `ping` on another machine.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::IpAddr,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use node_agent::announce::ping::{self, Ping, Reply, SETTLE_TIME, schema::TABLE};

use crate::support::{
    Namespace,
    ping::Pinger,
    segment::{Node, Segment, eventually, knock, neighbor},
};

const V4: &str = "192.0.2.77";
const V6: &str = "2001:db8::77";

/// Node that announces addresses and replies to pings, set up as an agent does it.
struct Announcing {
    announcer: Node,
    ping: Ping,
    warnings: Arc<Mutex<Vec<Option<String>>>>,
}

impl Announcing {
    fn start(namespace: &Namespace) -> Self {
        Self::settling(namespace, SETTLE_TIME)
    }

    fn settling(namespace: &Namespace, settle_time: Duration) -> Self {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&warnings);
        let warn = move |warning| heard.lock().unwrap().push(warning);
        let ping = namespace.run(|| Ping::start(settle_time, warn).unwrap());
        Self { announcer: Node::start(namespace), ping, warnings }
    }

    fn set(&self, reply: Option<Reply>) {
        self.ping.set(all(reply));
    }

    fn own(&self, reply: Reply) {
        self.set(Some(reply));
        self.announcer.announce(&[V4, V6]);
    }
}

fn all(reply: Option<Reply>) -> BTreeMap<IpAddr, Option<Reply>> {
    [V4, V6].map(|address| (address.parse().unwrap(), reply)).into()
}

fn pinger(from: &Namespace, address: &str) -> Pinger {
    from.run(|| Pinger::new(address.parse().unwrap()))
}

/// Returns true if a ping (echo request) gets a reply.
fn answers(from: &Namespace, address: &str) -> bool {
    pinger(from, address).asks()
}

fn wait_for_answers(from: &Namespace) {
    for address in [V4, V6] {
        eventually(&format!("{address} answers"), || answers(from, address));
    }
}

fn forward(node: &Namespace) {
    node.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]);
}

fn ruleset(namespace: &Namespace) -> String {
    namespace.exec(&["nft", "-n", "-s", "list", "ruleset"])
}

const THEIRS: &str = "table inet theirs {
    set friends { type ipv4_addr; elements = { 192.0.2.9 } }
    chain input { type filter hook input priority filter; policy accept; ip saddr @friends counter accept; }
    chain nat { type nat hook prerouting priority dstnat; policy accept; icmp type echo-request ip daddr 192.0.2.77 drop; }
}";

/// F124, F125: an announced address replies to ping and ping -6 although no interface has it. If pings to an
/// address are disabled, there are no replies from then on, even for a client that just received some, and
/// requests are not forwarded. Rules of other programs are unchanged. After the announcer ends, the kernel
/// state is as before.
#[test]
fn f124_f125_announced_addresses_answer_to_ping_or_stay_silent() {
    let segment = Segment::new("ping", 2);
    let [client, node] = [&segment.members[0], &segment.members[1]];
    forward(node);
    node.nft(THEIRS);
    let before = ruleset(node);
    let announcing = Announcing::start(node);
    announcing.set(Some(Reply::Answer));
    // An earlier request would be forwarded.
    eventually("the table", || node.has_table(TABLE));
    announcing.own(Reply::Answer);
    wait_for_answers(client);
    assert!(!node.exec(&["ip", "addr"]).contains(".77"), "the node does not own it");
    assert!(ruleset(node).contains(before.trim_end()), "{}", ruleset(node));

    // A continuous ping gets replies, then none, then replies again.
    let mut running = [V4, V6].map(|address| pinger(client, address));
    assert!(running.iter_mut().all(Pinger::asks), "answered");
    announcing.own(Reply::Silence);
    for ping in &mut running {
        eventually("whoever was answered before is not any longer", || !ping.asks());
    }
    assert!(!running.iter_mut().any(Pinger::asks) && !answers(client, V4) && !answers(client, V6));
    assert!(running.iter().all(|ping| ping.redirects == 0), "nobody tells of another way");
    // Forwarding a request would have started with neighbor resolution.
    let neighbors = node.exec(&["ip", "neigh"]);
    assert!(!neighbors.contains(V4) && !neighbors.contains(V6), "{neighbors}");
    announcing.own(Reply::Answer);
    for ping in &mut running {
        eventually("it is answered again", || ping.asks());
    }

    announcing.set(None);
    announcing.announcer.withdraw(&[V4, V6]);
    eventually("the table goes with the last address", || !node.has_table(TABLE));
    assert_eq!(ruleset(node), before);
    assert_eq!(*announcing.warnings.lock().unwrap(), [], "nothing went wrong");
}

/// F124, F125: a client that pings continuously gets replies as soon as the node announces the address, even
/// though the node forwarded the earlier requests and conntrack has an entry for them without translation.
#[test]
fn f124_f125_a_ping_that_began_before_is_answered() {
    let segment = Segment::new("ping-early", 2);
    let [client, node] = [&segment.members[0], &segment.members[1]];
    forward(node);
    node.nft("table inet tracking { chain passing { type filter hook forward priority 0; ct state new counter accept; }; }");
    let mac = node.mac("eth0");
    let mut running = [V4, V6].map(|address| {
        client.ip(&["neigh", "replace", address, "lladdr", &mac, "dev", "eth0"]);
        pinger(client, address)
    });
    for ping in &mut running {
        eventually("the node to pass it on", || !ping.asks() && flows_of_pings(node) > 0);
    }
    assert_eq!(flows_of_pings(node), 2);
    let announcing = Announcing::start(node);
    announcing.own(Reply::Answer);
    for ping in &mut running {
        eventually("an answer", || ping.asks());
    }
}

/// Returns the number of ICMP entries in the node's conntrack table.
fn flows_of_pings(node: &Namespace) -> usize {
    let listed = ["ipv4", "ipv6"].map(|family| node.exec(&["conntrack", "-L", "-f", family]));
    listed.iter().flat_map(|text| text.lines()).filter(|line| line.contains("icmp")).count()
}

/// F124, F125: after a takeover, the new owner of an address replies to pings as soon as it announces.
#[test]
fn f124_f125_the_new_owner_answers_to_ping() {
    let segment = Segment::new("ping-move", 3);
    let [client, first, second] = [&segment.members[0], &segment.members[1], &segment.members[2]];
    let nodes = [first, second].map(Announcing::start);
    nodes[0].own(Reply::Answer);
    wait_for_answers(client);
    nodes[0].announcer.withdraw(&[V4, V6]);
    nodes[0].set(None);
    nodes[1].own(Reply::Answer);
    eventually("the first has nothing left", || !first.has_table(TABLE));
    wait_for_answers(client);
}

/// F124, F125: a change of one address writes one set element of the nftables table for ping replies, a node
/// without changes writes nothing, and changes by other programs are repaired.
#[test]
fn f124_f125_the_ping_table_is_repaired_and_changed_by_elements() {
    let node = Namespace::new("ping-table");
    let announcing = Announcing::start(&node);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(ruleset(&node), "", "nothing is written without addresses");
    announcing.set(Some(Reply::Answer));
    eventually("the table", || node.has_table(TABLE));
    let whole = node.list_table(TABLE);
    let handles = || {
        let listing = node.exec(&["nft", "-a", "list", "table", "inet", TABLE]);
        listing
            .lines()
            .filter_map(|line| line.split_once("# handle ").map(|(_, it)| it.to_owned()))
            .collect::<Vec<_>>()
    };
    let made = handles();
    announcing.ping.set([("192.0.2.78".parse().unwrap(), Some(Reply::Silence))].into());
    eventually("the other address", || node.list_table(TABLE).contains("192.0.2.78"));
    announcing.ping.set([("192.0.2.78".parse().unwrap(), None)].into());
    eventually("without the other address", || node.list_table(TABLE) == whole);
    assert_eq!(handles(), made, "the table was not made anew");
    for damage in [
        format!("delete table inet {TABLE}"),
        format!("flush chain inet {TABLE} answer"),
        format!("add rule inet {TABLE} silence drop"),
        format!("add chain inet {TABLE} theirs"),
        format!("add set inet {TABLE} theirs {{ type ipv4_addr; }}"),
        format!("delete element inet {TABLE} answered4 {{ {V4} }}"),
        format!("add element inet {TABLE} silent6 {{ 2001:db8::99 }}"),
        format!("add element inet {TABLE} silent6 {{ {V6} }}"),
        format!("add table inet {TABLE} {{ flags dormant; }}"),
    ] {
        node.nft(&damage);
        assert_ne!(node.exec(&["nft", "-n", "-s", "list", "ruleset"]).trim(), whole.trim(), "{damage}");
        eventually(&format!("repaired after `{damage}`"), || ruleset(&node).trim() == whole.trim());
    }
    assert_eq!(*announcing.warnings.lock().unwrap(), [], "nothing went wrong");
}

/// F124, F125: an agent that stops for a restart leaves the nftables table for ping replies. The next agent
/// process adopts the table and, after some time, removes addresses that it does not announce. A cleanup
/// removes the whole table.
#[test]
fn f124_f125_the_ping_table_outlives_an_agent_that_comes_back_and_no_clean_up() {
    let node = Namespace::new("ping-keep");
    node.nft(THEIRS);
    let before = ruleset(&node);
    let announcing = Announcing::start(&node);
    announcing.set(Some(Reply::Answer));
    eventually("the table", || node.has_table(TABLE));
    let whole = ruleset(&node);
    announcing.ping.keep();
    announcing.set(None);
    drop(announcing);
    assert_eq!(ruleset(&node), whole, "it is left");

    let announcing = Announcing::settling(&node, Duration::from_secs(3));
    announcing.ping.set([(V4.parse().unwrap(), Some(Reply::Answer))].into());
    eventually("the other address has gone", || !ruleset(&node).contains(V6));
    assert!(node.list_table(TABLE).contains(V4));
    announcing.ping.set([(V4.parse().unwrap(), None)].into());
    drop(announcing);
    assert_eq!(ruleset(&node), before, "what was said is done before the end");

    let announcing = Announcing::start(&node);
    announcing.set(Some(Reply::Silence));
    eventually("the table", || node.has_table(TABLE));
    announcing.ping.keep();
    drop(announcing);
    assert!(node.run(ping::cleanup).unwrap(), "it was there");
    assert_eq!(ruleset(&node), before);
    assert!(!node.run(ping::cleanup).unwrap(), "there is nothing left");
}

/// F124, F125: if the kernel rejects the nftables table for ping replies, the agent's status contains a
/// warning until a write succeeds, and the address is announced nevertheless.
#[test]
fn f124_f125_pings_that_cannot_be_answered_are_a_warning() {
    let segment = Segment::new("ping-warn", 2);
    let [client, node] = [&segment.members[0], &segment.members[1]];
    // A table owned by a process: no other process can change it, and it is removed with the process.
    let mut other = Command::new("ip")
        .args(["netns", "exec", node.name(), "nft", "-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let line = format!("add table inet {TABLE} {{ flags owner; }}\n");
    other.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    eventually("the table of the other", || node.has_table(TABLE));
    let announcing = Announcing::start(node);
    announcing.own(Reply::Answer);
    let warning = || announcing.warnings.lock().unwrap().last().cloned().flatten();
    eventually("a warning", || warning().is_some_and(|warning| warning.contains("not permitted")));
    knock(client, V4);
    eventually("the client learns the address", || neighbor(client, V4).is_some());
    assert!(!answers(client, V4));
    drop(other.stdin.take());
    other.wait().unwrap();
    wait_for_answers(client);
    eventually("no warning", || warning().is_none());
    assert_eq!(announcing.warnings.lock().unwrap().len(), 2, "said once");
}
