//! Blocks of WorkloadNetworks, and Attachments in them: given, drained, cooled down and given again.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use model::{
    admission::admit::{
        BLOCK_GRACE_SECONDS, Operation, Refusal, Request, next_block_change, refused_attachments,
    },
    compile::node_state,
    kinds::{block::BlockSpec, network_keys::attachment_key, resource::Kind, selector::Selector},
    observed::{
        rollup::{attachment_status, block_status, workload_network_status},
        status::ConditionStatus,
    },
    primitives::{
        name::{Label, Name},
        net::{IpFamily, overlaps},
        quantity::Timestamp,
    },
    wire::{
        attachments::{AttachmentChanges, AttachmentRequest, RefusedAttachment, WantedBlock},
        workload_network::compile_block,
    },
};
use serde_json::{Value, json};

use crate::support::{Cluster, of_kind};

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

pub(crate) fn node(name: &str, rack: &str) -> Value {
    of_kind(
        "Node",
        name,
        json!({ "rack": rack }),
        json!({ "addresses": [format!("172.16.0.{}", &name[1..])] }),
    )
}

/// Returns a network whose agents create Workloads in the namespaces `default` and `shop`, unless the spec has others.
pub(crate) fn pods(mut spec: Value) -> Value {
    let fields = spec.as_object_mut().unwrap();
    fields.entry("namespaces").or_insert_with(|| json!({ "names": ["default", "shop"] }));
    of_kind("WorkloadNetwork", "pods", json!({}), spec)
}

pub(crate) fn entry(workload: &str, addresses: Value) -> AttachmentRequest {
    let value = json!({
        "workload": workload, "labels": { "app": "web" }, "network": "pods", "kind": "Veth", "interface": "eth0",
        "hostInterface": "tga", "addresses": addresses,
    });
    serde_json::from_value(value).unwrap()
}

pub(crate) fn changes(entries: &[(&str, AttachmentRequest)]) -> AttachmentChanges {
    let attachments = entries.iter().map(|(id, request)| (label(id), request.clone())).collect();
    AttachmentChanges { attachments, ..AttachmentChanges::default() }
}

pub(crate) fn removal(ids: &[&str]) -> AttachmentChanges {
    AttachmentChanges { removed: ids.iter().map(|id| label(id)).collect(), ..AttachmentChanges::default() }
}

pub(crate) fn report(
    cluster: &mut Cluster,
    node: &str,
    changes: AttachmentChanges,
) -> BTreeMap<Label, RefusedAttachment> {
    let operations = vec![Operation::SetAttachments { node: name(node), changes: Box::new(changes.clone()) }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    let refused = refused_attachments(&cluster.snapshot, cluster.config.quotas(), &name(node), &changes);
    refused.into_iter().map(|(id, refusal)| (id, refusal.reason)).collect()
}

/// Submits the request of the task that lets cooldowns end.
fn tick(cluster: &mut Cluster, seconds: i64) {
    cluster.now += seconds;
    cluster.write(&Request::default()).unwrap();
}

fn blocks(cluster: &Cluster) -> BTreeMap<IpNet, BlockSpec> {
    let all = cluster.snapshot.list(Kind::Block, None, None).filter_map(|object| object.as_block());
    all.map(|block| (block.cidr, block.clone())).collect()
}

/// Returns the blocks of a node as text.
fn of(cluster: &Cluster, node: &str) -> Vec<String> {
    cluster.snapshot.blocks_of(&name(node)).map(ToString::to_string).collect()
}

fn lose(cluster: &mut Cluster, node: &str, since: Option<i64>) {
    let since = since.map(Timestamp::from_unix_seconds);
    let operations = vec![Operation::SetNodeLost { node: name(node), since }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
}

#[test]
fn nodes_get_the_lowest_free_blocks_in_the_write_that_makes_them_match() {
    let mut cluster = Cluster::new();
    cluster.apply(&node("n1", "a")).unwrap();
    let spec = json!({
        "cidrs": ["10.64.0.0/24", "fd00:64::/120"], "reserved": ["10.64.0.0/26"],
        "nodeSelectors": [{ "matchLabels": { "rack": "a" } }],
    });
    cluster.apply(&pods(spec)).unwrap();
    assert_eq!(of(&cluster, "n1"), ["10.64.0.64/26", "fd00:64::/122"]);
    cluster.apply_many(&[node("n2", "a"), node("n3", "b")], None).unwrap();
    assert_eq!(of(&cluster, "n2"), ["10.64.0.128/26", "fd00:64::40/122"]);
    assert_eq!(of(&cluster, "n3"), [""; 0]);
    cluster.apply(&node("n3", "a")).unwrap();
    assert_eq!(of(&cluster, "n3"), ["10.64.0.192/26", "fd00:64::80/122"]);
    // The IPv4 part is exhausted, and says so.
    cluster.apply(&node("n4", "a")).unwrap();
    assert_eq!(of(&cluster, "n4"), ["fd00:64::c0/122"]);
    let spec = cluster.get("workloadnetworks//pods").as_workload_network().unwrap();
    let status = workload_network_status(&cluster.snapshot, &name("pods"), spec, &BTreeSet::new());
    assert_eq!((status.nodes, &*status.nodes_without_block), (4, &[name("n4")][..]));
    let found: Vec<_> = status.conditions.iter().map(|one| (one.reason.as_str(), one.status)).collect();
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    assert_eq!(found, [("Valid", yes), ("BlocksExhausted", no), ("NodesWithoutBlock", no)]);
    // Other nodes receive the addresses of the node, and the node itself treats the block as its workload network.
    let state = compile_block(&cluster.snapshot, &"10.64.0.64/26".parse().unwrap()).unwrap();
    assert_eq!((state.node, state.node_addresses), (name("n1"), vec!["172.16.0.1".parse().unwrap()]));
    let own = node_state(&cluster.snapshot, &name("n1"), 65000).workload_cidrs.unwrap();
    assert!(own.contains(&"10.64.0.64/26".parse().unwrap()));
}

/// Input: a node whose label changes while a workload is attached. Output: the block is drained, ends with the Attachment,
/// and goes to another node only after the cooldown.
#[test]
fn a_block_with_an_attachment_stays_and_a_released_one_cools_down() {
    let mut cluster = Cluster::new();
    let spec = json!({ "cidrs": ["10.64.0.0/26"], "nodeSelectors": [{ "matchLabels": { "rack": "a" } }] });
    cluster.apply_many(&[node("n1", "a"), node("n2", "b"), pods(spec)], None).unwrap();
    assert!(
        report(&mut cluster, "n1", changes(&[("c1", entry("shop/web-1", json!(["10.64.0.1"])))])).is_empty()
    );
    cluster.apply_many(&[node("n1", "b"), node("n2", "a")], None).unwrap();
    let block = blocks(&cluster).into_values().next().unwrap();
    assert!(block.draining && block.is_held() && block.node == name("n1"), "{block:?}");
    assert_eq!(block_status(&cluster.snapshot, &block).attached, 1);
    // Selected again: the drain ends.
    cluster.apply(&node("n1", "a")).unwrap();
    assert!(!blocks(&cluster).into_values().next().unwrap().draining);
    cluster.apply(&node("n1", "b")).unwrap();
    report(&mut cluster, "n1", removal(&["c1"]));
    let block = blocks(&cluster).into_values().next().unwrap();
    assert_eq!(block.cooldown_until, Some(Timestamp::from_unix_seconds(cluster.now + 60)));
    assert_eq!(next_block_change(&cluster.snapshot), block.cooldown_until);
    assert_eq!(compile_block(&cluster.snapshot, &block.cidr), None, "of no node");
    tick(&mut cluster, 59);
    assert_eq!(of(&cluster, "n2"), [""; 0]);
    tick(&mut cluster, 1);
    assert_eq!(of(&cluster, "n2"), ["10.64.0.0/26"]);
}

#[test]
fn a_deleted_node_gives_its_blocks_back_and_gets_the_same_if_it_returns_soon() {
    let mut cluster = Cluster::new();
    cluster.apply_many(&[node("n1", "a"), pods(json!({ "cidrs": ["10.64.0.0/16"] }))], None).unwrap();
    report(&mut cluster, "n1", changes(&[("c1", entry("shop/web-1", json!(["10.64.0.1"])))]));
    cluster.delete("nodes//n1").unwrap();
    assert_eq!(cluster.snapshot.count(Kind::Attachment), 0);
    assert_eq!(cluster.snapshot.count(Kind::Workload), 0, "created with the Attachment");
    cluster.apply(&node("n2", "a")).unwrap();
    assert_eq!(of(&cluster, "n2"), ["10.64.0.64/26"]);
    cluster.apply(&node("n1", "a")).unwrap();
    assert_eq!(of(&cluster, "n1"), ["10.64.0.0/26"]);
}

#[test]
fn a_lost_node_keeps_its_blocks_for_the_grace_period_and_those_with_attachments_for_ever() {
    let mut cluster = Cluster::new();
    let network = pods(json!({ "cidrs": ["10.64.0.0/16"] }));
    cluster.apply_many(&[node("n1", "a"), node("n2", "a"), network], None).unwrap();
    report(&mut cluster, "n2", changes(&[("c1", entry("shop/web-1", json!(["10.64.0.65"])))]));
    let now = cluster.now;
    lose(&mut cluster, "n1", Some(now));
    lose(&mut cluster, "n2", Some(now));
    assert_eq!(
        next_block_change(&cluster.snapshot).map(Timestamp::unix_seconds),
        Some(now + BLOCK_GRACE_SECONDS)
    );
    tick(&mut cluster, BLOCK_GRACE_SECONDS - 1);
    assert_eq!((of(&cluster, "n1").len(), of(&cluster, "n2").len()), (1, 1));
    tick(&mut cluster, 1);
    assert_eq!((of(&cluster, "n1").len(), of(&cluster, "n2").len()), (0, 1));
    lose(&mut cluster, "n1", None);
    assert_eq!(of(&cluster, "n1"), ["10.64.0.0/26"]);
}

#[test]
fn an_agent_gets_more_blocks_as_far_as_its_attachments_need_them() {
    let mut cluster = Cluster::new();
    let network = pods(json!({ "cidrs": ["10.64.0.0/24"], "blockSize": { "ipv4": 30 } }));
    cluster.apply_many(&[node("n1", "a"), network], None).unwrap();
    let wanted = AttachmentChanges {
        wanted: vec![WantedBlock { network: name("pods"), family: IpFamily::V4 }],
        ..AttachmentChanges::default()
    };
    for expected in [2, 2, 2] {
        report(&mut cluster, "n1", wanted.clone());
        assert_eq!(of(&cluster, "n1").len(), expected, "addresses in a cooldown justify one block");
    }
    for index in 0..3 {
        let (id, address) = (format!("c{index}"), format!("10.64.0.{index}"));
        report(&mut cluster, "n1", changes(&[(&id, entry(&format!("shop/w{index}"), json!([address])))]));
    }
    report(&mut cluster, "n1", wanted);
    assert_eq!(of(&cluster, "n1").len(), 3);
}

/// Input: entries that an agent may not report. Output: each is refused for its reason, and the entry beside them is
/// recorded.
#[test]
fn an_agent_records_attachments_of_its_own_blocks_and_workloads_only() {
    let mut cluster = Cluster::new();
    let elsewhere = json!({ "node": "n2", "addresses": [] });
    let objects = [
        node("n1", "a"),
        node("n2", "a"),
        pods(json!({ "cidrs": ["10.64.0.0/16"] })),
        of_kind("Workload", "elsewhere", json!({}), elsewhere),
        of_kind("Workload", "anywhere", json!({}), json!({ "addresses": ["10.1.1.2"] })),
        of_kind("Workload", "host", json!({}), json!({ "node": "n1" })),
    ];
    cluster.apply_many(&objects, None).unwrap();
    report(&mut cluster, "n1", changes(&[("taken", entry("shop/web-0", json!(["10.64.0.9"])))]));
    let host = |address: &str| {
        let mut request = entry("default/host", json!([address]));
        request.network = None;
        request.kind = model::kinds::attachment::AttachmentKind::Host;
        request
    };
    let mut without_interface = entry("shop/web-5", json!(["10.64.0.5"]));
    without_interface.interface = String::new();
    let refused = report(
        &mut cluster,
        "n1",
        changes(&[
            ("good", entry("shop/web-1", json!(["10.64.0.1"]))),
            ("foreign", entry("shop/web-2", json!(["10.64.0.65"]))),
            ("outside", entry("shop/web-3", json!(["10.99.0.1"]))),
            ("taken2", entry("shop/web-4", json!(["10.64.0.9"]))),
            ("other", entry("default/elsewhere", json!(["10.64.0.4"]))),
            ("any", entry("default/anywhere", json!(["10.64.0.3"]))),
            ("two", entry("shop/web-6", json!(["10.64.0.6", "10.64.0.7"]))),
            ("empty", without_interface),
            ("host", host("172.16.0.1")),
            ("nohost", host("172.16.0.2")),
        ]),
    );
    use RefusedAttachment::{AddressTaken, Invalid, OutsideOfBlocks, WorkloadElsewhere};
    let expected = [
        ("foreign", OutsideOfBlocks),
        ("outside", OutsideOfBlocks),
        ("taken2", AddressTaken),
        ("other", WorkloadElsewhere),
        ("any", WorkloadElsewhere),
        ("two", Invalid),
        ("empty", Invalid),
        ("nohost", OutsideOfBlocks),
    ];
    assert_eq!(refused, expected.into_iter().map(|(id, reason)| (label(id), reason)).collect());
    let recorded: Vec<_> = cluster
        .snapshot
        .attachments_of_node(&name("n1"))
        .map(|object| object.metadata.name.to_string())
        .collect();
    assert_eq!(recorded, ["n1.good", "n1.host", "n1.taken"]);
}

/// Input: an Attachment that begins, is repeated, changes and ends. Output: the Workload follows in the same write, and a
/// repeated report changes nothing.
#[test]
fn an_attachment_fills_its_workload_and_takes_its_addresses_with_it() {
    let mut cluster = Cluster::new();
    let existing = json!({ "node": "n1" });
    let objects = [
        node("n1", "a"),
        pods(json!({ "cidrs": ["10.64.0.0/16", "fd00:64::/112"] })),
        of_kind("Workload", "given", json!({ "app": "db" }), existing),
    ];
    cluster.apply_many(&objects, None).unwrap();
    let both = changes(&[
        ("c1", entry("shop/web-1", json!(["10.64.0.1", "fd00:64::1"]))),
        ("c2", entry("default/given", json!(["10.64.0.2"]))),
    ]);
    assert!(report(&mut cluster, "n1", both.clone()).is_empty());
    let made = cluster.get("workloads/shop/web-1");
    assert_eq!(made.metadata.labels["app"], "web");
    let spec = made.as_workload().unwrap();
    assert!(spec.ready && spec.node == Some(name("n1")));
    assert_eq!(spec.addresses.len(), 2);
    let given = |cluster: &Cluster| {
        let addresses = &cluster.get("workloads/default/given").as_workload().unwrap().addresses;
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(given(&cluster), ["10.64.0.2"]);
    let key = attachment_key(&name("n1"), &label("c2")).unwrap();
    let record = cluster.snapshot.get(&key).unwrap().as_attachment().unwrap();
    assert_eq!(attachment_status(&cluster.snapshot, record).conditions[0].reason.as_str(), "Attached");
    let revision = cluster.snapshot.revision();
    assert!(report(&mut cluster, "n1", both).is_empty());
    assert_eq!(cluster.snapshot.revision(), revision, "a repeated report is no write");
    // A complete report without the second one removes it; the Workload existed before and stays.
    let first = changes(&[("c1", entry("shop/web-1", json!(["10.64.0.3"])))]);
    assert!(report(&mut cluster, "n1", AttachmentChanges { complete: true, ..first }).is_empty());
    assert_eq!(given(&cluster), [""; 0]);
    let web = cluster.get("workloads/shop/web-1").as_workload().unwrap();
    assert_eq!(web.addresses, ["10.64.0.3".parse::<std::net::IpAddr>().unwrap()]);
    report(&mut cluster, "n1", removal(&["c1", "unknown"]));
    assert_eq!(cluster.snapshot.count(Kind::Attachment), 0);
    assert_eq!(cluster.snapshot.count(Kind::Workload), 1);
}

#[test]
fn addresses_of_attachments_stay_in_their_network() {
    let mut cluster = Cluster::new();
    let network = |cidrs: Value| pods(json!({ "cidrs": cidrs }));
    cluster.apply_many(&[node("n1", "a"), network(json!(["10.64.0.0/16"]))], None).unwrap();
    report(&mut cluster, "n1", changes(&[("c1", entry("shop/web-1", json!(["10.64.0.1"])))]));
    for refused in [
        cluster.apply(&network(json!(["10.65.0.0/16"]))).err(),
        cluster.delete("workloadnetworks//pods").err(),
    ] {
        let Some(Refusal::Invalid(found)) = refused else { panic!("must be refused: {refused:?}") };
        assert!(found[0].message.contains("n1.c1"), "{found:?}");
    }
    report(&mut cluster, "n1", removal(&["c1"]));
    cluster.delete("workloadnetworks//pods").unwrap();
    // Reuse only after the cooldown, also by another network.
    cluster
        .apply(&of_kind("WorkloadNetwork", "vms", json!({}), json!({ "cidrs": ["10.64.0.0/16"] })))
        .unwrap();
    assert_eq!(of(&cluster, "n1"), ["10.64.0.64/26"]);
}

/// Generator of deterministic pseudo-random numbers (Knuth's constants).
struct RandomStream(u64);

impl RandomStream {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn node(&mut self) -> String {
        format!("n{}", 1 + self.roll(5))
    }
}

/// Random writes of Nodes, networks and Attachments with time. After each: blocks do not overlap, are of Nodes that
/// exist, contain all Attachments, do not change their Node without a cooldown, and no selected Node lacks one while one
/// is free. At the end nothing is left.
#[test]
fn no_block_is_shared_lost_or_reused_early() {
    for seed in 0..40 {
        let mut dice = RandomStream(seed);
        let mut cluster = Cluster::new();
        let mut former: BTreeMap<IpNet, (Name, i64)> = BTreeMap::new();
        for _ in 0..120 {
            let before = blocks(&cluster);
            let attached = attached_blocks(&cluster);
            random_write(&mut cluster, &mut dice);
            check(&cluster, &before, &attached, &mut former);
        }
        for index in 1..=5 {
            let _ = cluster.delete(&format!("nodes//n{index}"));
        }
        assert_eq!(cluster.snapshot.count(Kind::Attachment), 0);
        tick(&mut cluster, 120);
        assert_eq!(blocks(&cluster), BTreeMap::new(), "seed {seed}");
    }
}

fn random_write(cluster: &mut Cluster, dice: &mut RandomStream) {
    let which = dice.node();
    match dice.roll(10) {
        0..=1 => {
            let rack = if dice.roll(3) == 0 { "b" } else { "a" };
            cluster.apply(&node(&which, rack)).unwrap();
        }
        2 => drop(cluster.delete(&format!("nodes//{which}"))),
        3 => {
            let cidrs = [json!(["10.64.0.0/28"]), json!(["10.64.0.0/27"]), json!(["10.64.0.16/28"])];
            let spec = json!({
                "cidrs": cidrs[usize::try_from(dice.roll(3)).unwrap()], "cooldownSeconds": dice.roll(3) * 30,
                "blockSize": { "ipv4": 29 + dice.roll(2) }, "nodeSelectors": [{ "matchLabels": { "rack": "a" } }],
            });
            let _ = cluster.apply(&pods(spec));
        }
        4 if dice.roll(4) == 0 => drop(cluster.delete("workloadnetworks//pods")),
        4 => tick(cluster, i64::try_from(dice.roll(60)).unwrap()),
        5 => {
            let known = cluster.snapshot.lost_nodes().any(|(lost, _)| *lost == name(&which));
            let now = cluster.now;
            lose(cluster, &which, (!known).then_some(now - 2 * BLOCK_GRACE_SECONDS));
        }
        6 => drop(report(cluster, &which, removal(&["c0", "c1"]))),
        7 => {
            let wanted = vec![WantedBlock { network: name("pods"), family: IpFamily::V4 }];
            report(cluster, &which, AttachmentChanges { wanted, ..AttachmentChanges::default() });
        }
        _ => {
            let id = format!("c{}", dice.roll(3));
            let address = format!("10.64.0.{}", dice.roll(32));
            let request = entry(&format!("shop/{which}-{id}"), json!([address]));
            report(cluster, &which, changes(&[(&id, request)]));
        }
    }
}

fn attached_blocks(cluster: &Cluster) -> BTreeSet<IpNet> {
    let all = blocks(cluster);
    all.into_keys().filter(|cidr| cluster.snapshot.attached_in(cidr).next().is_some()).collect()
}

fn check(
    cluster: &Cluster,
    before: &BTreeMap<IpNet, BlockSpec>,
    attached: &BTreeSet<IpNet>,
    former: &mut BTreeMap<IpNet, (Name, i64)>,
) {
    let (now, after) = (cluster.now, blocks(cluster));
    let all: Vec<_> = after.keys().collect();
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| !overlaps(one, other)), "{one} overlaps in {all:?}");
    }
    for (cidr, block) in &after {
        let of_node = format!("nodes//{}", block.node);
        let exists =
            cluster.snapshot.list(Kind::Node, None, None).any(|node| node.metadata.name == block.node);
        assert!(!block.is_held() || exists, "{cidr} is of {of_node}, which does not exist");
        for (old, (node, until)) in former.iter() {
            let is_early = block.is_held() && overlaps(old, cidr) && now < *until;
            assert!(!is_early || *node == block.node, "{cidr} goes from {node} to {} early", block.node);
        }
    }
    for (cidr, old) in before.iter().filter(|(_, old)| old.is_held()) {
        match after.get(cidr) {
            Some(new) if new.is_held() => {
                assert_eq!(new.node, old.node, "{cidr} changes its node");
                former.remove(cidr);
            }
            Some(new) => {
                former.insert(*cidr, (old.node.clone(), new.cooldown_until.unwrap().unix_seconds()));
            }
            None => panic!("{cidr} is gone without a cooldown"),
        }
        let is_held = after.get(cidr).is_some_and(BlockSpec::is_held);
        let still = cluster.snapshot.attached_in(cidr).next().is_some();
        assert!(is_held || !(attached.contains(cidr) && still), "{cidr} is released with an Attachment");
    }
    for object in cluster.snapshot.list(Kind::Attachment, None, None) {
        let spec = object.as_attachment().unwrap();
        let block = cluster.snapshot.block_with(spec.addresses[0]).expect("is in a block");
        assert!(block.is_held() && block.node == spec.node, "{spec:?} in {block:?}");
    }
    lacking(cluster, &after);
}

/// Checks that no selected, present Node lacks a block while the network has a free one.
fn lacking(cluster: &Cluster, all: &BTreeMap<IpNet, BlockSpec>) {
    let Some(spec) = cluster.snapshot.workload_network(&name("pods")) else { return };
    let size = spec.block_size.ipv4;
    let mut candidates = spec.cidrs.iter().flat_map(|cidr| cidr.subnets(size).unwrap());
    let has_free = candidates.any(|candidate| all.keys().all(|cidr| !overlaps(cidr, &candidate)));
    for object in cluster.snapshot.list(Kind::Node, None, None) {
        let name = &object.metadata.name;
        let is_wanted = Selector::any_matches(&spec.node_selectors, &object.metadata.labels)
            && object.as_node().unwrap().lost_since.is_none();
        let has_one = cluster.snapshot.blocks_of(name).any(|cidr| !all[cidr].draining);
        assert!(!is_wanted || has_one || !has_free, "{name} has no block although one is free: {all:?}");
        let is_selected = Selector::any_matches(&spec.node_selectors, &object.metadata.labels);
        let is_lacking = cluster.snapshot.lacking_blocks().any(|(_, lacking)| lacking == name);
        assert_eq!(is_lacking, is_selected && !has_one, "{name} in the index");
    }
}
