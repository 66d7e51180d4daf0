//! Hosts of the test bed, their addresses, and the links between them.

use std::{collections::BTreeSet, net::IpAddr};

use model::primitives::net::IpFamily;

use super::servers::{Listen, Servers};
use crate::support::Namespace;

/// Host of the test bed: the client, the node, or a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    Client,
    Node,
    A,
    B,
    C,
    D,
    E,
}

use Spot::{A, B, C, Client, D, E, Node};

impl Spot {
    pub const ALL: [Self; 7] = [Client, Node, A, B, C, D, E];
    /// Hosts on which workloads run; all of them are behind the node under test.
    pub const WORKLOADS: [Self; 5] = [A, B, C, D, E];

    pub const fn name(self) -> &'static str {
        match self {
            Client => "client",
            Node => "node",
            A => "a",
            B => "b",
            C => "c",
            D => "d",
            E => "e",
        }
    }

    /// Returns the primary address of the host in an address family. Other hosts reach the host by this
    /// address.
    pub fn address(self, family: IpFamily) -> IpAddr {
        let text = match (self, family) {
            (Client, IpFamily::V4) => "192.0.2.2",
            (Client, IpFamily::V6) => "2001:db8::2",
            (Node, IpFamily::V4) => "192.0.2.1",
            (Node, IpFamily::V6) => "2001:db8::1",
            (A, IpFamily::V4) => "10.1.1.2",
            (A, IpFamily::V6) => "fd01:1::2",
            (B, IpFamily::V4) => "10.1.2.2",
            (B, IpFamily::V6) => "fd01:2::2",
            (C, IpFamily::V4) => "10.1.3.2",
            (C, IpFamily::V6) => "fd01:3::2",
            (D, IpFamily::V4) => "10.2.1.2",
            (D, IpFamily::V6) => "fd02:1::2",
            (E, IpFamily::V4) => "10.2.2.2",
            (E, IpFamily::V6) => "fd02:2::2",
        };
        text.parse().unwrap()
    }

    /// Returns the host whose primary address is `address`, or `None` if no host has it.
    pub fn of(address: IpAddr) -> Option<Self> {
        Self::ALL.into_iter().find(|spot| spot.address(IpFamily::of(address)) == address)
    }
}

/// TCP and UDP ports that are open on every host.
pub const PORTS: [u16; 4] = [8080, 8081, 9090, 7005];
/// Additional TCP and UDP ports that are open on the workloads only.
pub const WORKLOAD_PORTS: [u16; 4] = [80, 443, 7001, 7010];
/// Port of a daemon on the node that listens on all addresses and belongs to no Service.
pub const DAEMON_PORT: u16 = 2222;
/// Networks that contain the addresses of all workloads.
pub const WORKLOAD_NETWORKS: [&str; 4] = ["10.1.0.0/16", "10.2.0.0/16", "fd01::/16", "fd02::/16"];
/// Networks that contain the addresses of the workloads on the node under test.
pub const LOCAL_WORKLOAD_NETWORKS: [&str; 2] = ["10.1.0.0/16", "fd01::/16"];
/// Number of client addresses that affinity tests use.
pub const CROWD: u8 = 16;

pub struct Hosts {
    namespaces: Vec<(Spot, Namespace)>,
    pub servers: Servers,
}

impl Hosts {
    /// Creates the namespaces and starts the servers.
    pub fn new(test: &str) -> Self {
        let names = Spot::ALL.map(|spot| format!("{test}-{}", spot.name()));
        let namespaces = Spot::ALL.into_iter().zip(Namespace::several(names)).collect();
        let hosts = Self { namespaces, servers: Servers::new() };
        hosts.wire();
        for (spot, namespace) in &hosts.namespaces {
            // A new namespace may inherit this setting; only the node forwards packets.
            let forwards = if *spot == Node { "1" } else { "0" };
            namespace.run(|| {
                for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                    std::fs::write(format!("/proc/sys/net/{file}"), forwards).unwrap();
                }
                // Disables the rate limit of ICMP errors.
                for file in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
                    std::fs::write(format!("/proc/sys/net/{file}"), "0").unwrap();
                }
            });
        }
        hosts.serve();
        hosts
    }

    pub fn at(&self, spot: Spot) -> &Namespace {
        self.namespaces.iter().find(|(at, _)| *at == spot).map(|(_, namespace)| namespace).unwrap()
    }

    /// Connects the node with all other hosts.
    fn wire(&self) {
        let mut ours = "link set lo up\n".to_owned();
        let mut scripts = Vec::new();
        for spot in [Client, A, B, C, D, E] {
            let other = self.at(spot);
            let device = format!("to-{}", spot.name());
            ours += &format!("link add {device} type veth peer name eth0 netns {}\n", other.name());
            let mut theirs = "link set lo up\n".to_owned();
            for family in IpFamily::ALL {
                let address = spot.address(family);
                let (length, option) = if address.is_ipv4() { (24, "") } else { (64, " nodad") };
                ours += &format!("addr add {}/{length} dev {device}{option}\n", gateway(spot, family));
                theirs += &format!("addr add {address}/{length} dev eth0{option}\n");
            }
            ours += &format!("link set {device} up\n");
            theirs += "link set eth0 up\n";
            for family in IpFamily::ALL {
                theirs += &format!("route add default via {}\n", gateway(spot, family));
            }
            if spot == Client {
                theirs += &client_addresses();
            }
            scripts.push((other, theirs));
        }
        ours += "addr add 192.0.2.11/24 dev to-client\naddr add 2001:db8::11/64 dev to-client nodad\n";
        // Packets to virtual addresses need a route before they are translated.
        ours += "route add default via 192.0.2.2\nroute add default via 2001:db8::2\n";
        self.at(Node).batch(&ours);
        for (other, theirs) in scripts {
            other.batch(&theirs);
        }
    }

    /// Connects two workloads of other nodes directly, past the node under test, as the network of a real
    /// cluster does. [`Self::disconnect`] removes the link.
    pub fn connect(&self, one: Spot, other: Spot) {
        let [here, there] = [one, other].map(|spot| self.at(spot));
        here.ip(&["link", "add", "direct", "type", "veth", "peer", "name", "direct", "netns", there.name()]);
        for (namespace, peer) in [(here, other), (there, one)] {
            namespace.ip(&["link", "set", "direct", "up"]);
            for family in IpFamily::ALL {
                let word = if family == IpFamily::V4 { "-4" } else { "-6" };
                namespace.ip(&[word, "route", "add", &peer.address(family).to_string(), "dev", "direct"]);
            }
        }
    }

    /// Removes the direct link of a workload ([`Self::connect`]).
    pub fn disconnect(&self, one: Spot) {
        self.at(one).ip(&["link", "del", "direct"]);
    }

    fn serve(&self) {
        for spot in Spot::WORKLOADS {
            let mut ports = PORTS.to_vec();
            ports.extend(WORKLOAD_PORTS);
            self.servers.serve(self.at(spot), spot.name(), &ports, Listen::Anywhere);
        }
        for family in IpFamily::ALL {
            let address = Node.address(family);
            self.servers.serve(self.at(Node), Node.name(), &PORTS, Listen::At(address));
        }
        self.servers.serve(self.at(Node), "daemon", &[DAEMON_PORT], Listen::Anywhere);
    }
}

/// Returns the address of the node on its link to a host.
fn gateway(spot: Spot, family: IpFamily) -> IpAddr {
    let text = spot.address(family).to_string();
    let end = text.len() - 1;
    format!("{}1", &text[..end]).parse().unwrap()
}

/// Returns every address of the node except loopback ones.
pub fn node_addresses() -> BTreeSet<IpAddr> {
    let wires = [Client, A, B, C, D, E]
        .into_iter()
        .flat_map(|spot| IpFamily::ALL.map(move |family| gateway(spot, family)));
    wires.chain(["192.0.2.11", "2001:db8::11"].map(|text| text.parse().unwrap())).collect()
}

/// Returns an address of the client by its number: 0 is the primary address, 1 another address in the same
/// network, 2 an address in a network behind the client.
pub fn client_address(family: IpFamily, number: usize) -> IpAddr {
    let list = match family {
        IpFamily::V4 => ["192.0.2.2", "192.0.2.3", "198.51.100.2"],
        IpFamily::V6 => ["2001:db8::2", "2001:db8::3", "2001:db8:100::2"],
    };
    list[number].parse().unwrap()
}

/// Returns the many client addresses that affinity tests use.
pub fn crowd(family: IpFamily) -> Vec<IpAddr> {
    let address = |number: u8| match family {
        IpFamily::V4 => format!("192.0.2.{}", 100 + number),
        IpFamily::V6 => format!("2001:db8::{:x}", 0x100 + u16::from(number)),
    };
    (0..CROWD).map(|number| address(number).parse().unwrap()).collect()
}

fn client_addresses() -> String {
    let mut script = String::new();
    let mut add = |address: IpAddr| {
        let (length, option) = if address.is_ipv4() { (24, "") } else { (64, " nodad") };
        script += &format!("addr add {address}/{length} dev eth0{option}\n");
    };
    for family in IpFamily::ALL {
        (1..3).for_each(|number| add(client_address(family, number)));
        crowd(family).into_iter().for_each(&mut add);
    }
    script
}
