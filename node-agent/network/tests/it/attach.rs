//! Attachments in real kernels.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    time::Instant,
};

use attach_socket::{AttachRequest, AttachmentKey, CollectRequest, ProblemCode, RecordRefusal};
use model::primitives::name::Name;
use network::{
    attach::engine::NetworkEngine,
    desired::{DesiredNetwork, Encapsulation},
    refusals::RecordRefusals,
    run::NetworkConfig,
};
use tokio::sync::watch;

use crate::support::{Namespace, desired, name, run};

/// Engine of a node, and its state directory.
pub(crate) struct Machine<'a> {
    own: Name,
    namespace: &'a Namespace,
    dir: tempfile::TempDir,
    desired: DesiredNetwork,
    engine: Option<NetworkEngine>,
}

impl<'a> Machine<'a> {
    pub(crate) fn start(own: &str, namespace: &'a Namespace) -> Self {
        let mut machine = Self {
            own: name(own),
            namespace,
            dir: tempfile::tempdir().unwrap(),
            desired: DesiredNetwork::default(),
            engine: None,
        };
        machine.restart("boot", 0);
        machine
    }

    /// Replaces the engine by a new one, which reads the journal, at a time and in a boot of the machine. Returns the
    /// number of changes that the first pass made.
    pub(crate) fn restart(&mut self, boot: &str, now: u64) -> u64 {
        self.engine = None;
        let (own, dir, desired) = (self.own.clone(), self.dir.path(), self.desired.clone());
        let is_ready = !desired.blocks.is_empty();
        let (engine, writes) = self.namespace.inside(|| {
            let mut engine = NetworkEngine::open(own, dir, boot, now).unwrap();
            let writes = is_ready.then(|| {
                engine.desire(desired);
                engine.pass().unwrap().unwrap().writes
            });
            (engine, writes)
        });
        self.engine = Some(engine);
        writes.unwrap_or_default()
    }

    /// Replaces the engine by a new one, which has no desired state yet.
    pub(crate) fn reopen(&mut self, boot: &str) {
        self.desired = DesiredNetwork::default();
        self.restart(boot, 0);
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn desire(&mut self, desired: DesiredNetwork) {
        self.desired = desired.clone();
        self.run(|engine| {
            engine.desire(desired);
            let passed = engine.pass().unwrap().unwrap();
            assert!(passed.rejected.is_empty() && passed.failure.is_none(), "{passed:?}");
        });
    }

    pub(crate) fn run<T: Send>(&mut self, work: impl FnOnce(&mut NetworkEngine) -> T + Send) -> T {
        let engine = self.engine.as_mut().unwrap();
        self.namespace.inside(|| work(engine))
    }

    fn journal(&self) -> std::path::PathBuf {
        self.dir.path().join("attachments.journal")
    }
}

pub(crate) fn key(id: &str) -> AttachmentKey {
    AttachmentKey { container_id: id.to_owned(), interface: "eth0".to_owned() }
}

pub(crate) fn request(id: &str, namespace: &Namespace) -> AttachRequest {
    AttachRequest {
        key: key(id),
        netns: namespace.path(),
        network: None,
        namespace: None,
        workload: None,
        labels: BTreeMap::new(),
        manager: "test".to_owned(),
    }
}

/// An attachment makes a veth pair with the recorded MAC address and single addresses, and a route that names the
/// interface. Its removal undoes all. (F151, F152)
#[test]
fn f151_f152_an_attachment_has_its_interface_addresses_and_route_and_removal_undoes_it() {
    let node = Namespace::router("node");
    let pod = Namespace::new("pod");
    let mut machine = Machine::start("a", &node);
    let early = machine.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap_err();
    assert_eq!(early.code, ProblemCode::NotReady);
    machine.desire(desired(Encapsulation::None));
    let before = [node.listing(), pod.listing()];

    let attached = machine.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap();
    let [v4, v6] = [attached.addresses[0], attached.addresses[1]].map(|address| address.to_string());
    assert_eq!((v4.as_str(), v6.as_str()), ("10.9.1.0", "fd09:1::"));
    let host = &attached.host_interface;
    let link = node.ip(&format!("-o link show {host}"));
    assert!(link.contains("link/ether ee:ee:ee:ee:ee:ee") && link.contains("state UP"), "{link}");
    let link = pod.ip("-o link show eth0");
    assert!(link.contains(&format!("link/ether {}", attached.mac)) && link.contains("mtu 1500"), "{link}");
    let addresses = pod.ip("-o addr show eth0");
    assert!(
        addresses.contains(&format!("{v4}/32")) && addresses.contains(&format!("{v6}/128")),
        "{addresses}"
    );
    for address in [&v4, &v6] {
        let route = node.ip(&format!("route get {address}"));
        assert!(route.contains(&format!("dev {host}")), "{route}");
    }
    assert!(pod.ip("route").starts_with("default via 169.254.1.1 dev eth0"));
    assert!(pod.ip("-6 route show default").contains("via fe80::ecee:eeff:feee:eeee dev eth0"));
    for (parameter, value) in [("proxy_arp", "1"), ("forwarding", "1"), ("rp_filter", "1")] {
        let path = format!("/proc/sys/net/ipv4/conf/{host}/{parameter}");
        assert_eq!(node.inside(|| fs::read_to_string(&path)).unwrap().trim(), value, "{parameter}");
    }
    assert!(node.ip(&format!("-o addr show dev {host}")).contains("fe80::ecee:eeff:feee:eeee"));

    // The same request is answered with the same attachment, and a new process writes nothing.
    assert_eq!(machine.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap(), attached);
    assert_eq!(machine.run(|engine| engine.check(&key("c1"))).unwrap(), attached);
    assert_eq!(machine.restart("boot", 0), 0);
    assert_eq!(machine.run(|engine| engine.attach(request("c1", &pod), 0)).unwrap(), attached);
    // Each difference in the kernel is found and named, and none after its repair.
    let gateway = "fe80::ecee:eeff:feee:eeee";
    for (namespace, damage, repair, named) in [
        (&pod, "link set eth0 mtu 1400".to_owned(), "link set eth0 mtu 1500".to_owned(), "MTU 1400"),
        (&node, format!("link set {host} mtu 1400"), format!("link set {host} mtu 1500"), "MTU 1400"),
        (
            &pod,
            "route del default".to_owned(),
            "route add default via 169.254.1.1 dev eth0".to_owned(),
            "IPv4 default route",
        ),
        (
            &pod,
            "-6 route del default".to_owned(),
            format!("-6 route add default via {gateway} dev eth0"),
            "IPv6 default route",
        ),
        (
            &node,
            format!("route del {v4}/32 proto 116 metric 7440"),
            format!("route add {v4}/32 dev {host} proto 116 metric 7440 scope link"),
            &v4,
        ),
        (
            &node,
            format!("-6 route del {v6}/128 proto 116 metric 7440"),
            format!("-6 route add {v6}/128 dev {host} proto 116 metric 7440"),
            &v6,
        ),
    ] {
        namespace.ip(&damage);
        let differs = machine.run(|engine| engine.check(&key("c1"))).unwrap_err();
        assert_eq!(differs.code, ProblemCode::Differs, "{damage}: {differs:?}");
        assert!(differs.message.contains(named), "{damage}: {differs:?}");
        namespace.ip(&repair);
        assert_eq!(machine.run(|engine| engine.check(&key("c1"))).unwrap(), attached, "{repair}");
    }
    pod.ip(&format!("addr del {v4}/32 dev eth0"));
    let differs = machine.run(|engine| engine.check(&key("c1"))).unwrap_err();
    assert_eq!(differs.code, ProblemCode::Differs);

    assert_eq!(machine.run(|engine| engine.detach(&key("c1"), 0)).unwrap().removed, 1);
    assert_eq!(machine.run(|engine| engine.detach(&key("c1"), 0)).unwrap().removed, 0);
    assert_eq!([node.listing(), pod.listing()], before);
    assert_eq!(machine.run(|engine| engine.check(&key("c1"))).unwrap_err().code, ProblemCode::NotFound);
}

/// Input: requests with the identity of a running attachment for another network namespace, namespace or network. Output: each
/// is refused and the attachment stays, until its network namespace is gone.
#[test]
fn a_running_attachment_is_not_replaced_by_another_one_of_its_name() {
    let node = Namespace::router("node");
    let (first, second) = (Namespace::new("first"), Namespace::new("second"));
    let mut machine = Machine::start("a", &node);
    machine.desire(desired(Encapsulation::None));
    let attached = machine.run(|engine| engine.attach(request("db", &first), 0)).unwrap();
    let before = second.listing();
    let elsewhere = AttachRequest { namespace: Some("shop".to_owned()), ..request("db", &first) };
    let renamed = AttachRequest { workload: Some("other".to_owned()), ..request("db", &first) };
    let networked = AttachRequest { network: Some("vms".to_owned()), ..request("db", &first) };
    for refused in [request("db", &second), elsewhere, renamed, networked] {
        let problem = machine.run(|engine| engine.attach(refused, 0)).unwrap_err();
        assert_eq!(problem.code, ProblemCode::InUse, "{problem:?}");
        let named = [first.path().as_str(), "default/db", "detach db/eth0 first"]
            .iter()
            .all(|part| problem.message.contains(part));
        assert!(named, "{problem:?}");
    }
    assert_eq!(machine.run(|engine| engine.check(&key("db"))).unwrap(), attached);
    assert_eq!(second.listing(), before);
    let spelled = AttachRequest {
        namespace: Some("default".to_owned()),
        workload: Some("db".to_owned()),
        network: Some("pods".to_owned()),
        ..request("db", &first)
    };
    assert_eq!(machine.run(|engine| engine.attach(spelled, 0)).unwrap(), attached);
    // The interface ends with its network namespace, and the name is free again.
    first.ip("link del eth0");
    let replaced = machine.run(|engine| engine.attach(request("db", &second), 0)).unwrap();
    assert_eq!(replaced.netns, second.path());
}

/// Input: an attachment that the control server refuses. Output: the list and a repeated request say the reason.
#[test]
fn a_refusal_of_the_control_server_is_shown_at_the_attachment() {
    let node = Namespace::router("node");
    let pod = Namespace::new("pod");
    let dir = tempfile::tempdir().unwrap();
    let config = NetworkConfig { own: name("a"), state_dir: dir.path().to_owned(), boot: "boot".to_owned() };
    node.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_sender, state) = watch::channel(Some(desired(Encapsulation::None)));
            let (handle, _thread) = network::run::start(&config, state, Arc::default()).unwrap();
            let request = request("c1", &pod);
            let mut shown = handle.shown();
            shown.wait_for(|shown| shown.status.problem.is_none()).await.unwrap();
            let attached = handle.attach(request.clone()).await.unwrap();
            assert_eq!(attached.refusal, None);
            let refusal = RecordRefusal { reason: "OutsideOfBlocks".to_owned(), message: "gone".to_owned() };
            handle.refusals().send_replace(RecordRefusals::new([(
                attached.key,
                attached.generation,
                refusal.clone(),
            )]));
            assert_eq!(handle.attach(request).await.unwrap().refusal, Some(refusal.clone()));
            let listed = handle.attachments().attachments;
            assert_eq!(listed.iter().map(|one| one.refusal.clone()).collect::<Vec<_>>(), [Some(refusal)]);
            handle.detach(key("c1")).await.unwrap();
        });
    });
}

/// An agent that is killed after any step of the journal leaves nothing of an incomplete attachment, and keeps a complete
/// one.
#[test]
fn a_crash_at_each_step_of_the_journal_leaves_whole_attachments_only() {
    let node = Namespace::router("node");
    let mut machine = Machine::start("a", &node);
    machine.desire(desired(Encapsulation::None));
    let before = node.listing();
    // The first step creates the journal.
    let first = Namespace::new("first");
    machine.run(|engine| engine.attach(request("first", &first), 0)).unwrap();
    machine.run(|engine| engine.detach(&key("first"), 0)).unwrap();
    for (id, steps) in [("at-start", 0), ("at-intent", 1), ("at-done", 2)] {
        let pod = Namespace::new(id);
        let lines = fs::read_to_string(machine.journal()).unwrap();
        let attached = machine.run(|engine| engine.attach(request(id, &pod), 0)).unwrap();
        let all = fs::read_to_string(machine.journal()).unwrap();
        let added: Vec<_> = all.strip_prefix(&lines).unwrap().lines().collect();
        assert_eq!(added.len(), 2, "intent and done");
        // The journal of an agent that was killed after some of the steps, in the middle of the next line.
        let torn = added.get(steps).map_or("", |line| &line[..line.len() / 2]);
        let kept = added[..steps].iter().map(|line| format!("{line}\n")).collect::<String>();
        fs::write(machine.journal(), format!("{lines}{kept}{torn}")).unwrap();
        machine.restart("boot", 0);
        let is_complete = steps == 2;
        let has_route = node.ip("route").contains(&attached.host_interface);
        // Without the intent, the route has no record: the addresses stay in use until the container is removed.
        assert_eq!(has_route, is_complete || steps == 0, "{id}");
        if !has_route {
            assert_eq!(node.listing(), before);
        }
        let removed = machine.run(|engine| engine.detach(&key(id), 0)).unwrap().removed;
        assert_eq!(removed, u64::from(is_complete || steps == 0));
        assert_eq!(node.listing(), before, "{id}");
    }
    // A kill during the removal, before and after the interfaces are gone.
    for is_link_gone in [false, true] {
        let pod = Namespace::new("removed");
        let attached = machine.run(|engine| engine.attach(request("removed", &pod), 0)).unwrap();
        let lines = fs::read_to_string(machine.journal()).unwrap();
        machine.run(|engine| engine.detach(&key("removed"), 0)).unwrap();
        let all = fs::read_to_string(machine.journal()).unwrap();
        let removing = all.strip_prefix(&lines).unwrap().lines().next().unwrap();
        if !is_link_gone {
            machine.run(|engine| engine.attach(request("removed", &pod), 0)).unwrap();
        }
        fs::write(machine.journal(), format!("{lines}{removing}\n")).unwrap();
        machine.restart("boot", 0);
        assert!(!node.ip("-o link").contains(&attached.host_interface));
        assert_eq!(node.listing(), before);
    }
}

/// After a restart of the machine, the attachments of the last boot are gone; without their journal, the addresses of
/// existing interfaces are not assigned again.
#[test]
fn attachments_end_with_the_boot_and_are_recognized_without_their_journal() {
    let node = Namespace::router("node");
    let mut machine = Machine::start("a", &node);
    machine.desire(desired(Encapsulation::None));
    let before = node.listing();
    let pods = ["c1", "c2"].map(Namespace::new);
    let first = machine.run(|engine| engine.attach(request("c1", &pods[0]), 0)).unwrap();
    fs::remove_file(machine.journal()).unwrap();
    assert_eq!(machine.restart("boot", 0), 0);
    let second = machine.run(|engine| engine.attach(request("c2", &pods[1]), 0)).unwrap();
    assert_ne!(first.addresses, second.addresses);
    assert_eq!(machine.run(|engine| engine.detach(&key("c1"), 0)).unwrap().removed, 1);
    machine.restart("another boot", 0);
    assert_eq!(machine.run(|engine| engine.list()).attachments, []);
    assert_eq!(node.listing(), before);
}

/// 200 attachments and removals leave no address, interface and route; each address rests before its next use.
#[test]
fn many_attachments_leave_nothing() {
    let node = Namespace::router("node");
    let pod = Namespace::new("pod");
    let mut machine = Machine::start("a", &node);
    machine.desire(desired(Encapsulation::None));
    let before = [node.listing(), pod.listing()];
    let mut last_use = BTreeMap::new();
    let begun = Instant::now();
    for round in 0..200_u64 {
        let id = format!("c{round}");
        let now = round * 2;
        let attached = machine.run(|engine| engine.attach(request(&id, &pod), now)).unwrap();
        for address in attached.addresses {
            if let Some(last) = last_use.insert(address, now) {
                assert!(now - last >= 60, "{address}");
            }
        }
        // Every second network namespace is gone before the removal: the interface goes with it.
        if round % 2 == 0 {
            node.ip(&format!("link del {}", attached.host_interface));
        }
        assert_eq!(machine.run(|engine| engine.detach(&key(&id), now)).unwrap().removed, 1);
    }
    println!("200 attachments and removals took {} ms", begun.elapsed().as_millis());
    assert_eq!([node.listing(), pod.listing()], before);
    let journal = fs::metadata(machine.journal()).unwrap().len();
    assert!(journal < 1 << 20, "{journal} bytes");
}

/// An attachment without a free address fails with a reason and leaves nothing; garbage collection removes
/// the attachments of one manager that are not listed.
#[test]
fn full_blocks_are_reported_and_collection_removes_unlisted_attachments() {
    let node = Namespace::router("node");
    let mut machine = Machine::start("a", &node);
    let mut state = desired(Encapsulation::None);
    state.blocks.retain(|_, block| block.node != name("a"));
    let block = network::desired::Block { network: name("pods"), node: name("a"), is_draining: false };
    state.blocks.insert("10.9.1.0/30".parse().unwrap(), block);
    machine.desire(state.clone());
    let pods: Vec<_> = (0..5).map(|number| Namespace::new(&format!("p{number}"))).collect();
    for (number, pod) in pods.iter().take(4).enumerate() {
        let mut request = request(&format!("c{number}"), pod);
        request.manager = if number == 3 { "other" } else { "test" }.to_owned();
        machine.run(|engine| engine.attach(request, 0)).unwrap();
    }
    let full = machine.run(|engine| engine.attach(request("c4", &pods[4]), 0)).unwrap_err();
    assert_eq!(full.code, ProblemCode::Exhausted);
    let other = machine.run(|engine| engine.status_of(Some("vms"))).problem.unwrap();
    assert_eq!(other.code, ProblemCode::NotReady);
    assert_eq!(machine.run(|engine| engine.status_of(Some("pods"))).problem, None);
    assert_eq!(pods[4].ip("-o link").lines().count(), 1);
    let collect = CollectRequest { manager: "test".to_owned(), valid: BTreeSet::from([key("c0")]) };
    assert_eq!(machine.run(|engine| engine.collect(&collect, 0)).unwrap().removed, 2);
    // Released addresses in their cooldown are not free: a further block is requested until its end.
    let wanted = [(name("pods"), model::primitives::net::IpFamily::V4)].into();
    assert_eq!(machine.run(|engine| engine.wanted(59)), wanted);
    assert!(machine.run(|engine| engine.wanted(60)).is_empty());
    let left = machine.run(|engine| engine.list()).attachments;
    assert_eq!(left.iter().map(|one| one.key.container_id.as_str()).collect::<Vec<_>>(), ["c0", "c3"]);

    // An interface that exists, and a path that is no network namespace, are named.
    let occupied = Namespace::new("occupied");
    occupied.ip("link add eth0 type veth peer name other");
    state
        .blocks
        .insert("10.9.1.4/30".parse().unwrap(), state.blocks[&"10.9.1.0/30".parse().unwrap()].clone());
    machine.desire(state);
    let taken = machine.run(|engine| engine.attach(request("c5", &occupied), 0)).unwrap_err();
    assert_eq!(taken.code, ProblemCode::InterfaceExists);
    let mut missing = request("c6", &occupied);
    missing.netns = "/run/netns/does-not-exist".to_owned();
    assert_eq!(machine.run(|engine| engine.attach(missing, 0)).unwrap_err().code, ProblemCode::NoNamespace);
    let mut file = request("c7", &occupied);
    file.netns = "/etc/hostname".to_owned();
    assert_eq!(machine.run(|engine| engine.attach(file, 0)).unwrap_err().code, ProblemCode::NoNamespace);
    // Opening a FIFO waits for another process.
    let fifo = tempfile::tempdir().unwrap();
    let fifo = fifo.path().join("netns").display().to_string();
    run("mkfifo", &[&fifo]);
    let mut waiting = request("c8", &occupied);
    waiting.netns = fifo;
    assert_eq!(machine.run(|engine| engine.attach(waiting, 0)).unwrap_err().code, ProblemCode::NoNamespace);
    // An invalid label does not take the others with it.
    let labelled = Namespace::new("labelled");
    let mut labels = request("c9", &labelled);
    labels.labels = BTreeMap::from([("app", "web"), ("a b", "x")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    let attached = machine.run(|engine| engine.attach(labels, 0)).unwrap();
    assert_eq!(attached.labels, BTreeMap::from([("app".to_owned(), "web".to_owned())]));
}
