//! Test network of machines on one Ethernet segment, some of them with an announcer, and access to raw
//! frames.

use std::{
    collections::BTreeMap,
    net::{IpAddr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use model::kinds::advertisement::InterfaceName;
use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, bind, recv, send,
        socket,
    },
};
use node_agent::{
    announce::l2::{
        announcer::{Announcer, DesiredAddress, Duty, L2Conflict, Status, Timing},
        wire::{self, Frame},
    },
    links::{Mac, follow::Follower},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
};

use super::Namespace;

/// Maximum time to wait for an expected event, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ethernet segment: a bridge to which several machines (members) are connected.
///
/// ```text
/// first 192.0.2.1, 2001:db8::1 ── hub (bridge) ── second .2, ::2 …
/// ```
/// Each member has the interface `eth0`.
pub struct Segment {
    pub hub: Namespace,
    pub members: Vec<Namespace>,
}

impl Segment {
    pub fn new(test: &str, members: usize) -> Self {
        let hub = Namespace::new(&format!("{test}-hub"));
        hub.ip(&["link", "add", "br0", "type", "bridge", "mcast_querier", "1"]);
        hub.ip(&["link", "set", "br0", "up"]);
        let mut segment = Self { hub, members: Vec::new() };
        for number in 1..=members {
            let member = Namespace::new(&format!("{test}-{number}"));
            segment.plug(&member, "eth0", number);
            segment.members.push(member);
        }
        segment
    }

    /// Connects a further interface of a member to the segment, with addresses derived from `number`.
    pub fn plug(&self, member: &Namespace, interface: &str, number: usize) {
        let port = format!("port{number}");
        self.hub.ip(&[
            "link",
            "add",
            &port,
            "type",
            "veth",
            "peer",
            "name",
            interface,
            "netns",
            member.name(),
        ]);
        self.hub.ip(&["link", "set", &port, "master", "br0", "up"]);
        member.ip(&["addr", "add", &format!("192.0.2.{number}/24"), "dev", interface]);
        member.ip(&["addr", "add", &format!("2001:db8::{number}/64"), "dev", interface, "nodad"]);
        member.ip(&["link", "set", interface, "up"]);
    }
}

/// Returns the MAC address of an interface.
pub fn mac_of(namespace: &Namespace, interface: &str) -> Mac {
    let text = namespace.mac(interface);
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    Mac(bytes.try_into().unwrap())
}

/// ARP and NDP announcer in a namespace, driven by the test as an agent drives it.
pub struct Node {
    announcer: Announcer,
    conflicts: mpsc::Receiver<L2Conflict>,
    runtime: Runtime,
}

impl Node {
    pub fn start(namespace: &Namespace) -> Self {
        Self::with_refresh(namespace, Duration::from_secs(60))
    }

    pub fn with_refresh(namespace: &Namespace, refresh_interval: Duration) -> Self {
        namespace.run(|| {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let _inside = runtime.enter();
            let (follower, links) = Follower::open().unwrap();
            runtime.spawn(follower.run());
            let (announcer, conflicts) = Announcer::start(Timing { refresh_interval, random: 1 }).unwrap();
            runtime.spawn(announcer.follow(links));
            Self { announcer, conflicts, runtime }
        })
    }

    pub fn want(&self, addresses: &[&str], interfaces: &[&str], duty: Duty) {
        let names = interfaces.iter().map(|name| InterfaceName::try_from((*name).to_owned()).unwrap());
        let wanted = DesiredAddress { interfaces: names.collect(), duty };
        let changes = addresses.iter().map(|address| (address.parse().unwrap(), Some(wanted.clone())));
        let refused = self.announcer.set(changes.collect()).blocking_recv().unwrap();
        assert!(refused.is_empty(), "{refused:?}");
    }

    pub fn announce(&self, addresses: &[&str]) {
        self.want(addresses, &["eth0"], Duty::Announce);
    }

    pub fn withdraw(&self, addresses: &[&str]) {
        let changes: BTreeMap<_, _> =
            addresses.iter().map(|address| (address.parse().unwrap(), None)).collect();
        self.announcer.set(changes).blocking_recv().unwrap();
    }

    pub fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    pub fn status(&self) -> Status {
        self.announcer.status().blocking_recv().unwrap()
    }

    /// Waits for the next address conflict that the announcer reports, and returns it.
    pub fn conflict(&mut self) -> L2Conflict {
        let next = async { tokio::time::timeout(PATIENCE, self.conflicts.recv()).await };
        self.runtime.block_on(next).expect("a conflict is told").unwrap()
    }

    pub fn has_conflict(&mut self) -> bool {
        self.conflicts.try_recv().is_ok()
    }
}

/// Raw socket that receives all frames on an interface and sends frames.
pub struct Tap {
    descriptor: OwnedFd,
    mac: Mac,
}

impl Tap {
    pub fn open(namespace: &Namespace, interface: &str) -> Self {
        let descriptor = namespace.run(|| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let descriptor =
                socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
            let link: LinkAddr = getifaddrs()
                .unwrap()
                .filter(|found| found.interface_name == interface)
                .find_map(|found| found.address.and_then(|address| address.as_link_addr().copied()))
                .unwrap();
            assert_eq!(link.family(), Some(AddressFamily::Packet));
            bind(descriptor.as_raw_fd(), &link).unwrap();
            descriptor
        });
        Self { descriptor, mac: mac_of(namespace, interface) }
    }

    pub fn mac(&self) -> Mac {
        self.mac
    }

    pub fn send(&self, frame: &[u8]) {
        send(self.descriptor.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
    }

    /// Sends a frame without waiting. If the queue is full, the frame is dropped.
    pub fn flood(&self, frame: &[u8]) {
        let _lost = send(self.descriptor.as_raw_fd(), frame, MsgFlags::empty());
    }

    /// Waits for the next frame from another machine that satisfies `wanted`, and returns the frame parsed
    /// and as bytes.
    pub fn next(&self, what: &str, wanted: impl Fn(&Frame) -> bool) -> (Frame, Vec<u8>) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = self.look(&wanted) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("no {what} in {PATIENCE:?}");
    }

    /// Returns the next frame from another machine that satisfies `wanted`, parsed and as bytes, if it has
    /// already been received; else `None`.
    pub fn look(&self, wanted: impl Fn(&Frame) -> bool) -> Option<(Frame, Vec<u8>)> {
        let mut buffer = [0; 2048];
        while let Ok(bytes) = recv(self.descriptor.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            let bytes = &buffer[..bytes];
            match wire::parse(bytes) {
                Ok(frame) if frame.source != self.mac && wanted(&frame) => {
                    return Some((frame, bytes.to_vec()));
                }
                _ => {}
            }
        }
        None
    }
}

/// Returns the MAC address and the state of the neighbor entry for an address, or `None` if there is no
/// entry.
pub fn neighbor(namespace: &Namespace, address: &str) -> Option<(String, String)> {
    let entry = namespace.exec(&["ip", "neigh", "show", "to", address]);
    let words: Vec<&str> = entry.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "lladdr")?;
    Some((words[at + 1].to_owned(), words.last().unwrap().to_string()))
}

/// Sends a datagram to an address, so that the kernel of the namespace resolves the address.
pub fn knock(namespace: &Namespace, address: &str) {
    let address: IpAddr = address.parse().unwrap();
    namespace.run(|| {
        let from = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(from).unwrap();
        let _unreachable = socket.send_to(b"knock", (address, 9));
    });
}

/// Waits until `is_so` returns true. The first argument describes the condition in errors.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
