//! Agent processes in userspace mode, and the relay processes that they leave running.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Revision, Weight},
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use node_agent::dataplane::userspace::process::{Relays, end_all};

use super::{Namespace, dir::StateDir, programs::*, states::*};

/// Path of the agent program under test. In examples, for which cargo does not set the environment variable,
/// only the program's name.
pub const AGENT: &str = match option_env!("CARGO_BIN_EXE_tidegate-agent") {
    Some(path) => path,
    None => "tidegate-agent",
};

/// State directory of an agent. When it is dropped, relay processes that use it are ended.
pub struct Home {
    pub dir: StateDir,
}

impl Home {
    pub fn new(test: &str) -> Self {
        Self { dir: StateDir::new(test) }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the handle by which backends start and find relay processes in this directory.
    pub fn relays(&self) -> Relays {
        self.relays_of(AGENT.into())
    }

    pub fn relays_of(&self, program: PathBuf) -> Relays {
        Relays { state_dir: self.path().to_owned(), program, log_arguments: vec!["--log=warn".into()] }
    }

    /// Returns the IDs of the relay processes that have a socket in the directory.
    pub fn processes(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.path().join("relay")) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let mut pids: Vec<_> = names.filter_map(|name| name.strip_suffix(".socket")?.parse().ok()).collect();
        pids.sort_unstable();
        pids
    }

    /// Returns the ID of the only relay process; panics if there is not exactly one.
    pub fn process(&self) -> u32 {
        let [pid] = self.processes()[..] else { panic!("one process: {:?}", self.processes()) };
        pid
    }

    /// Saves a state with these Services in the journal (file with an agent's last state), as if an agent had
    /// received the state.
    pub fn save(&self, services: Vec<CompiledService>) {
        let (mut journal, mut state) = self.dir.open();
        let touched = state.apply(full("7-10", services)).unwrap();
        journal.append(None, &state, &touched, Instant::now());
        journal.close().unwrap();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = end_all(self.path()) {
            eprintln!("{error:?}");
        }
    }
}

/// Returns true if a process with this ID exists.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let has_ended = stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"));
    // The main thread may have ended before the others, which still hold the open files.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !has_ended || threads > 1
}

/// Returns the session ID (setsid(2)) of a process.
pub fn session(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(3).unwrap().parse().unwrap()
}

pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Builds a Service at 10.96.0.1: TCP and UDP port 80 lead to port 9000 of workload a, and TCP port 81 to
/// port 8080 of both workloads.
pub fn web() -> CompiledService {
    let endpoint = |(ip, number): &(&str, u16)| CompiledEndpoint {
        address: address(ip),
        port: port(*number),
        node: None,
        zone: None,
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    };
    let of_port = |name: &str, protocol, number, targets: &[(&str, u16)]| CompiledPort {
        name: Some(name.parse().unwrap()),
        protocol,
        port: port(number),
        end_port: None,
        node_port: None,
        endpoints: targets.iter().map(endpoint).collect(),
    };
    CompiledService {
        revision: Revision(9),
        cluster_ips: vec![address("10.96.0.1")],
        ip_families: vec![IpFamily::V4],
        ports: vec![
            of_port("long", Protocol::Tcp, 80, &[("10.1.1.2", 9000)]),
            of_port("flow", Protocol::Udp, 80, &[("10.1.1.2", 9000)]),
            of_port("short", Protocol::Tcp, 81, &[("10.1.1.2", 8080), ("10.1.2.2", 8080)]),
        ],
        ..CompiledService::new(service_key(1))
    }
}

/// Agent process in userspace mode without a control server, killed when dropped.
pub struct AgentProcess {
    child: Child,
    node: String,
}

impl AgentProcess {
    pub fn start(node: &Namespace, home: &Home) -> Self {
        Self::start_program(node, home, Path::new(AGENT), "userspace")
    }

    /// Starts the agent program `program` in the proxy mode `mode`, and waits until it has programmed the
    /// saved state.
    pub fn start_program(node: &Namespace, home: &Home, program: &Path, mode: &str) -> Self {
        let mut child = Command::new("ip")
            .args(["netns", "exec", node.name()])
            .arg(program)
            .args(Self::settings(home))
            .args(["--mode", mode, "--api=http://127.0.0.1:1", "--node=n1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.ends_with("ready\n"), "{line}");
        Self { child, node: node.name().to_owned() }
    }

    /// Returns a command that runs the agent until it exits by itself, for at most 60 seconds.
    pub fn once(node: &Namespace, home: &Home) -> Command {
        let mut command = Command::new("timeout");
        command.args(["60", "ip", "netns", "exec", node.name(), AGENT]).args(Self::settings(home));
        command
    }

    fn settings(home: &Home) -> [String; 2] {
        [format!("--state-dir={}", home.path().display()), "--log=warn".to_owned()]
    }

    /// Sends a signal to the agent and waits for its exit.
    pub fn end(mut self, how: Signal) {
        signal(self.child.id(), how);
        self.child.wait().unwrap();
    }

    /// Returns the response body of the agent's `/v1/state`.
    pub fn state(&self) -> serde_json::Value {
        let name = self.node.clone();
        let text = thread::spawn(move || {
            super::enter(&name);
            let mut stream = TcpStream::connect("127.0.0.1:7441").unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            write!(stream, "GET /v1/state HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        let text = text.join().unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// UDP server that replies with the source port of each datagram; stops when dropped.
pub struct PortEcho {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortEcho {
    pub fn start(namespace: &Namespace, port: u16) -> Self {
        let socket =
            namespace.run(|| UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _gone = socket.send_to(peer.port().to_string().as_bytes(), peer);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for PortEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends a datagram to a [`PortEcho`] server, and returns the source port that the server observed.
pub fn ask_port(socket: &UdpSocket) -> u16 {
    let mut buffer = [0; 64];
    socket.send(b"?").unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap()
}
