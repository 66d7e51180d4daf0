//! Test of draining endpoints for all proxy modes, on a node without a running agent loop.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use model::{
    kinds::service::Protocol,
    primitives::quantity::Timestamp,
    program::{Masquerade, Program, Removal, Target, Verdict},
};
use node_agent::{
    conntrack::{Cleaner, KernelFlows, plan::Depth},
    dataplane::{Dataplane, DesiredState, Scope},
};

use super::{Namespace, enter, net::Topology, programs::*};

/// Maximum time to wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay between two steps of the simulated agent loop, as on a busy node. The delay suffices for modes in
/// which the kernel itself ends connections.
const BUSY: Duration = Duration::from_millis(100);
/// Deadline that no test reaches, as a Unix time. Backends use the system clock.
const LATER: i64 = 200_000_000_000;
const EARLIER: i64 = 1_000_000_000;
const VIP: &str = "10.96.0.7";
const A: (&str, u16, u16) = ("10.1.1.2", 7, 1);
const B: (&str, u16, u16) = ("10.1.2.2", 7, 1);

/// Node without a running agent loop. The test does the work of the loop step by step.
pub struct Node {
    pub backend: Box<dyn Dataplane>,
    pub cleaner: Cleaner,
    desired: DesiredState,
}

impl Node {
    /// Creates a node and programs the desired state. The kernel may contain the state that an earlier node
    /// has left.
    pub fn begin(backend: Box<dyn Dataplane>, desired: DesiredState) -> Self {
        let mut node = Self { backend, cleaner: Cleaner::new(Box::new(KernelFlows::default())), desired };
        node.pass(&Scope::Everything, Depth::Everything);
        node
    }

    fn set(&mut self, program: Program) {
        set(&mut self.desired, "echo", program);
        self.pass(&only(&["echo"]), Depth::Changes);
    }

    fn pass(&mut self, scope: &Scope, depth: Depth) {
        let pass = self.backend.apply(&self.desired, scope);
        verified(&pass);
        let known = self.cleaner.programmed().services();
        self.cleaner.follow(self.desired.programmed(scope, &pass.outcomes, known), depth);
        self.keep_up();
    }

    /// Makes the backend and the conntrack cleaner do the work that they do once a second in the agent loop.
    fn keep_up(&mut self) {
        self.backend.upkeep().unwrap();
        thread::sleep(BUSY);
        if self.backend.is_tracked() {
            let now = Timestamp::from_unix_seconds((LATER + EARLIER) / 2);
            self.cleaner.run(&self.desired.networks, Instant::now(), now, 0).unwrap();
        } else {
            self.cleaner.run_for_relays(&self.desired.networks, Instant::now(), 0).unwrap();
        }
        self.cleaner.tell(self.backend.take_cut(), Instant::now());
    }

    /// Returns the number of open connections of the target at `address`, from the counters of the proxy
    /// mode.
    fn active(&mut self, address: &str) -> u64 {
        if self.backend.is_counted_by_flows() {
            self.cleaner.read_flows(&self.desired.networks).unwrap();
            let flows = self.cleaner.flows();
            let to = flows.filter(|(_, _, target, _)| target.address.to_string() == address);
            return to.map(|(_, _, _, flows)| flows.active).sum();
        }
        let rows = self.backend.traffic().unwrap();
        let to = rows.iter().filter(|row| row.target.address.to_string() == address);
        to.filter_map(|row| row.active).sum()
    }
}

/// Target of a Service: address, port and weight.
type Given<'a> = (&'a str, u16, u16);

/// Builds an echo Service with removal policy `reset`. `list` contains the regular targets, `leaving` the
/// draining ones with their deadlines in Unix seconds.
fn echo(list: &[Given<'_>], leaving: &[(Given<'_>, Option<i64>)]) -> Program {
    let verdict = if list.is_empty() { Verdict::Reject } else { forward(Masquerade::Always, list) };
    let mut program = program(&[VIP], &[], &[(at(VIP, Protocol::Tcp, 7), verdict)]);
    let leaving = leaving.iter().map(|((ip, number, _), until)| {
        let target = Target { address: address(ip), port: Some(port(*number)) };
        (target, until.map(Timestamp::from_unix_seconds))
    });
    let leaving = Arc::new(leaving.collect());
    for (_, route) in &mut program.frontends {
        route.removal = Removal::Reset;
        route.leaving = Arc::clone(&leaving);
    }
    program
}

/// Checks the drain of a target by the backend that `open` creates, with removal policy `reset`: connections
/// continue until the deadline, even if the deadline is set, extended or cleared meanwhile, the agent
/// restarts, or the target is no longer draining. Connections are reset when the deadline passes or the
/// target is removed.
pub fn tell(topology: &Topology, open: impl Fn() -> Box<dyn Dataplane> + Send + Sync) {
    start_echo(&topology.a);
    start_echo(&topology.b);
    let client = &topology.client;
    topology.node.run(|| {
        let mut node = Node::begin(open(), desired(vec![("echo", echo(&[A], &[]))]));
        let (mut long, mut listener) = (Conversation::begin(client), Conversation::begin(client));
        for until in [None, Some(LATER), Some(LATER + 1), None] {
            node.set(echo(&[B], &[(A, until)]));
            assert!(long.goes_on(), "it may finish, until {until:?}");
            assert!(Conversation::begin(client).goes_on(), "new ones go elsewhere");
        }
        let other = Conversation::begin(client);
        eventually("what is open at each", || (node.active(A.0), node.active(B.0)) == (2, 1));
        drop(other);
        node.set(echo(&[B], &[(A, Some(EARLIER))]));
        eventually("the deadline has passed", || long.is_cut());
        eventually("who only receives is told", || {
            node.keep_up();
            listener.is_told()
        });
        eventually("none is left", || {
            node.keep_up();
            node.active(A.0) == 0
        });

        let (mut long, mut listener) = (Conversation::begin(client), Conversation::begin(client));
        node.set(echo(&[A], &[(B, None)]));
        let desired = node.desired.clone();
        if node.backend.is_tracked() {
            drop(node);
            node = Node::begin(open(), desired);
        }
        assert!(long.goes_on(), "another agent goes on with it");
        node.set(echo(&[A, B], &[]));
        assert!(long.goes_on(), "it came back");
        node.set(echo(&[A], &[(B, None)]));
        assert!(long.goes_on());
        node.set(echo(&[A], &[]));
        eventually("what is removed follows the policy", || long.is_cut());
        eventually("who only receives is told", || {
            node.keep_up();
            listener.is_told()
        });
    });
}

/// Starts a TCP server that sends all bytes back. Its threads end when their connections end.
fn start_echo(namespace: &Namespace) {
    let listener = namespace.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 7)).unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length) = stream.read(&mut buffer) {
                    if length == 0 || stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// TCP connection of a client through a Service to an echo server.
struct Conversation(TcpStream);

impl Conversation {
    fn begin(namespace: &Namespace) -> Self {
        let (name, address) = (namespace.name().to_owned(), SocketAddr::new(address(VIP), 7));
        let connect = move || {
            enter(&name);
            TcpStream::connect_timeout(&address, PATIENCE).unwrap()
        };
        let stream = thread::spawn(connect).join().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut conversation = Self(stream);
        assert!(conversation.goes_on());
        conversation
    }

    /// Sends a line. Returns true if the server sends the line back, or false if the connection has ended.
    /// Panics if neither happens.
    fn goes_on(&mut self) -> bool {
        let mut buffer = [0; 5];
        match self.0.write_all(b"hello").and_then(|()| self.0.read_exact(&mut buffer)) {
            Ok(()) => true,
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "the connection hangs");
                false
            }
        }
    }

    fn is_cut(&mut self) -> bool {
        !self.goes_on()
    }

    /// Returns true if an idle client has received RST or FIN, by which it detects the end of its connection.
    fn is_told(&mut self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        match self.0.read(&mut [0; 1]) {
            Ok(length) => {
                assert_eq!(length, 0, "nobody has said anything");
                true
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}
