//! Node with workloads behind it, their policy, and connections between them.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use dataplane::policy::{cut::cut, keeper::PolicyKeeper};
use model::{
    policy::{
        identity::PolicyNumbers,
        node_policy::NodePolicy,
        set::{
            ContentId, Peer, PolicyRule, PolicySet, PolicyWorkload, PortMatch, RuleAction, RuleSource, Tier,
        },
    },
    primitives::{net::IpFamily, quantity::Revision},
};
use nix::sched::{CloneFlags, setns};

/// Maximum time of a connection that must succeed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time in which a connection that must fail does not succeed.
const SILENCE: Duration = Duration::from_millis(250);
/// Ports on which each workload listens.
pub(crate) const PORTS: [u16; 2] = [80, 81];

static SEQUENCE: AtomicUsize = AtomicUsize::new(0);

/// Network namespace, deleted when dropped.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    pub(crate) fn new(role: &str) -> Self {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tgp-{}-{sequence}-{role}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `ip` with the words of a line in the namespace.
    pub(crate) fn ip(&self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        run("ip", &[&["-n", &self.name], words.as_slice()].concat())
    }

    /// Runs a program with the words of a line in the namespace, and returns its output.
    pub(crate) fn exec(&self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        let place = format!("--net=/run/netns/{}", self.name);
        run("nsenter", &[&[place.as_str()][..], &words].concat())
    }

    /// Runs a closure on a thread inside the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let file = File::open(format!("/run/netns/{}", self.name)).unwrap();
                setns(file, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Node with workloads, of which each listens on [`PORTS`].
///
/// ```text
///  node ─┬─ veth ─ workload 0: 10.1.0.2, fd01:0::2
///        ├─ veth ─ workload 1: 10.1.1.2, fd01:1::2
///        └─ …
/// ```
pub(crate) struct Site {
    pub(crate) node: Namespace,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) policy: NodePolicy,
    pub(crate) keeper: PolicyKeeper,
    revision: u64,
}

/// Workload of a site.
pub(crate) struct Workload {
    /// Namespace of the workload; `None` if it is the node itself.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) addresses: Vec<IpAddr>,
    listeners: Vec<TcpListener>,
    machine: Option<Child>,
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Some(machine) = &mut self.machine {
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }
}

/// Policy of a workload in tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selected {
    pub(crate) peers: Vec<u64>,
    pub(crate) ingress: Option<PolicySet>,
    pub(crate) egress: Option<PolicySet>,
}

impl Site {
    pub(crate) fn new(count: u8) -> Self {
        let node = Namespace::new("node");
        node.exec("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        // Every proxy mode uses connection tracking, which the kernel starts with the first rule that needs it.
        node.exec("nft add table inet tracking");
        node.exec("nft add chain inet tracking known { type filter hook forward priority filter ; }");
        node.exec("nft add rule inet tracking known ct state established accept");
        let mut site = Self {
            node,
            workloads: Vec::new(),
            policy: NodePolicy::default(),
            keeper: PolicyKeeper::default(),
            revision: 0,
        };
        for index in 0..count {
            site.attach(index, |node, namespace| {
                node.ip(&format!("link add w{index} type veth peer name eth0 netns {}", namespace.name));
                None
            });
        }
        site
    }

    /// Adds a virtual machine: a workload behind a tap device.
    pub(crate) fn add_machine(&mut self) {
        let index = u8::try_from(self.workloads.len()).unwrap();
        self.attach(index, |node, namespace| Some(start_machine(node, namespace, index)));
    }

    /// Adds a workload with an address of an interface of the node.
    pub(crate) fn add_host_interface(&mut self) {
        self.node.ip("link add host0 type veth peer name host1");
        self.node.ip("link set host0 up");
        let addresses: Vec<IpAddr> = ["10.2.0.1", "fd02::1"].map(|text| text.parse().unwrap()).into();
        self.node.ip("addr add 10.2.0.1/32 dev host0");
        self.node.ip("addr add fd02::1/128 dev host0 nodad");
        let listeners = self.node.inside(listen);
        self.workloads.push(Workload { namespace: None, addresses, listeners, machine: None });
    }

    fn attach(&mut self, index: u8, link: impl FnOnce(&Namespace, &Namespace) -> Option<Child>) {
        let namespace = Namespace::new(&format!("w{index}"));
        let machine = link(&self.node, &namespace);
        for (place, device, host) in [(&self.node, format!("w{index}"), 1), (&namespace, "eth0".into(), 2)] {
            place.ip(&format!("addr add 10.1.{index}.{host}/24 dev {device}"));
            place.ip(&format!("addr add fd01:{index}::{host}/64 dev {device} nodad"));
            place.ip(&format!("link set {device} up"));
        }
        namespace.ip(&format!("route add default via 10.1.{index}.1"));
        namespace.ip(&format!("-6 route add default via fd01:{index}::1"));
        let addresses = [format!("10.1.{index}.2"), format!("fd01:{index}::2")];
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let listeners = namespace.inside(listen);
        self.workloads.push(Workload { namespace: Some(namespace), addresses, listeners, machine });
    }

    /// Replaces the policy of a workload in memory.
    pub(crate) fn select(&mut self, index: usize, selected: Selected) {
        let Selected { peers, ingress, egress } = selected;
        self.revision += 1;
        let id = |set: &Option<PolicySet>| set.as_ref().map(|set| set.id);
        self.policy.put_workload(Arc::new(PolicyWorkload {
            workload: format!("x/w{index}").try_into().unwrap(),
            revision: Revision(self.revision),
            addresses: self.workloads[index].addresses.clone(),
            node: None,
            peers: peers.into_iter().map(ContentId::new).collect(),
            ingress: id(&ingress),
            egress: id(&egress),
        }));
        for set in [ingress, egress].into_iter().flatten() {
            self.policy.put_set(Arc::new(set));
        }
    }

    pub(crate) fn numbers(&self) -> PolicyNumbers {
        PolicyNumbers::flatten(&self.policy, |_| true)
    }

    /// Writes the policy to the kernel, and returns the number of changed elements.
    pub(crate) fn program(&mut self) -> u64 {
        let numbers = self.numbers();
        let (node, keeper) = (&self.node, &mut self.keeper);
        node.inside(|| keeper.follow(&numbers).unwrap())
    }

    /// Removes the forbidden connections, and returns their number.
    pub(crate) fn cut(&self) -> u64 {
        let numbers = self.numbers();
        self.node.inside(|| cut(&numbers).unwrap())
    }

    pub(crate) fn dropped(&mut self) -> u64 {
        let (node, keeper) = (&self.node, &mut self.keeper);
        node.inside(|| keeper.drops().unwrap().unwrap().values().sum())
    }

    pub(crate) fn address(&self, index: usize, family: IpFamily) -> IpAddr {
        *self.workloads[index].addresses.iter().find(|address| IpFamily::of(**address) == family).unwrap()
    }

    /// Opens a connection from a workload. `is_expected` determines the time limit only.
    pub(crate) fn connect(&self, from: usize, to: SocketAddr, is_expected: bool) -> Option<TcpStream> {
        let workload = &self.workloads[from];
        let namespace = workload.namespace.as_ref().unwrap_or(&self.node);
        let limit = if is_expected { PATIENCE } else { SILENCE };
        namespace.inside(|| TcpStream::connect_timeout(&to, limit).ok())
    }

    /// Connects all pairs of different workloads at the same time, and asserts that exactly the expected ones succeed.
    pub(crate) fn assert_matrix(
        &self,
        family: IpFamily,
        port: u16,
        is_expected: impl Fn(usize, usize) -> bool + Sync,
    ) {
        let count = self.workloads.len();
        let pairs: Vec<_> = (0..count)
            .flat_map(|from| (0..count).filter(move |to| *to != from).map(move |to| (from, to)))
            .collect();
        let wrong: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = pairs
                .iter()
                .map(|(from, to)| {
                    let target = SocketAddr::new(self.address(*to, family), port);
                    let is_expected = is_expected(*from, *to);
                    scope.spawn(move || self.connect(*from, target, is_expected).is_some() != is_expected)
                })
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            pairs.iter().zip(results).filter(|(_, is_wrong)| *is_wrong).map(|(pair, _)| *pair).collect()
        });
        let listeners = self.workloads.iter().flat_map(|workload| &workload.listeners);
        listeners.for_each(|listener| while listener.accept().is_ok() {});
        assert!(wrong.is_empty(), "{family:?} port {port}: {wrong:?} of (from, to)");
    }

    /// Returns the server's end of a connection that was opened to a workload.
    pub(crate) fn accept(&self, index: usize, port: u16) -> TcpStream {
        let at = PORTS.iter().position(|one| *one == port).unwrap();
        for _ in 0..500 {
            if let Ok((stream, _)) = self.workloads[index].listeners[at].accept() {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("no connection has arrived");
    }
}

/// Returns true if bytes sent at one end of a connection arrive at the other.
pub(crate) fn is_carried(from: &mut TcpStream, to: &mut TcpStream, is_expected: bool) -> bool {
    to.set_read_timeout(Some(if is_expected { PATIENCE } else { SILENCE })).unwrap();
    from.write_all(b"x").unwrap();
    to.read(&mut [0; 1]).is_ok_and(|length| length == 1)
}

fn listen() -> Vec<TcpListener> {
    let listener = |port| {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    PORTS.map(listener).into()
}

/// Starts a process that carries frames between a tap device of the node and one of the workload, as a virtual machine does.
fn start_machine(node: &Namespace, namespace: &Namespace, index: u8) -> Child {
    const PROGRAM: &str = r"
import ctypes, fcntl, os, select, struct, sys
def tap(namespace, name):
    with open('/run/netns/' + namespace) as place:
        assert ctypes.CDLL(None).setns(place.fileno(), 0x40000000) == 0
    device = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(device, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1002))
    return device
ends = [tap(sys.argv[1], sys.argv[2]), tap(sys.argv[3], 'eth0')]
print('ready', flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        frame = os.read(end, 65536)
        try:
            os.write(ends[1 - ends.index(end)], frame)
        except OSError:
            pass
";
    let names = [&node.name, &format!("w{index}"), &namespace.name];
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM]).args(names).stdout(Stdio::piped());
    let mut machine = command.spawn().unwrap();
    let mut ready = [0; 5];
    machine.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    machine
}

/// Returns a rule of a NetworkPolicy that accepts connections.
pub(crate) fn accept(peer: Peer, port: Option<u16>) -> PolicyRule {
    let protocol = model::kinds::service::Protocol::Tcp;
    PolicyRule {
        tier: Tier::Namespace,
        action: RuleAction::Accept,
        peer,
        ports: port.map(|port| PortMatch { protocol, first: port, last: port }),
        source: RuleSource { policy: "x/p".to_owned().try_into().unwrap(), rule: 0 },
    }
}

/// Returns a set that accepts connections by these rules only.
pub(crate) fn isolated(rules: Vec<PolicyRule>) -> PolicySet {
    PolicySet::new(true, rules)
}

/// Returns the peers with an id.
pub(crate) const fn peers(id: u64) -> Peer {
    Peer::Workloads { id: ContentId::new(id) }
}
