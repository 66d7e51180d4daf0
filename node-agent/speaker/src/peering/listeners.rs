//! Listening sockets for BGP connections, with their addresses, MD5 keys and hop limits.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use model::{
    bgp::settings::{BgpNeighbour, BgpRemote},
    kinds::bgp_peer::BGP_PORT,
    primitives::secret::Secret,
};
use nix::errno::Errno;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};
use tracing::debug;

use super::{key, settings, socket};

/// Delay after an error from `accept`, for example for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Accepted connection with its remote and local address, not yet assigned to a neighbor.
#[derive(Debug)]
pub(super) struct IncomingConnection {
    pub(super) stream: TcpStream,
    pub(super) remote: SocketAddr,
    pub(super) local: SocketAddr,
}

/// Desired MD5 keys and hop limit of the listening socket at one local address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DesiredListener {
    /// MD5 password by the network from which the peer connects.
    keys: BTreeMap<IpNet, Secret>,
    /// Lowest minimum hop limit (GTSM) of all peers that may connect to this socket; 0 allows any hop limit.
    hop_limit_min: u8,
}

/// Plans the listening sockets for the configured peers. If one peer of an address family has no configured
/// local address, a single socket for all addresses of the family is used, because the kernel does not allow
/// both kinds of socket on one port.
pub(super) fn plan<'a>(
    peers: impl Iterator<Item = &'a BgpNeighbour> + Clone,
) -> BTreeMap<IpAddr, DesiredListener> {
    let mut doors = BTreeMap::new();
    for is_ipv4 in [true, false] {
        let of_family = peers.clone().filter(|peer| is_of(&peer.remote, is_ipv4));
        let is_open = of_family.clone().any(|peer| named_address(peer).is_none());
        for peer in of_family {
            let all: IpAddr =
                if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let address = named_address(peer).filter(|_| !is_open).unwrap_or(all);
            let near = peer.ttl_security.map_or(0, |hops| u8::MAX - (hops.max(1) - 1));
            let door = doors
                .entry(address)
                .or_insert(DesiredListener { keys: BTreeMap::new(), hop_limit_min: near });
            door.hop_limit_min = door.hop_limit_min.min(near);
            door.keys.extend(peer.password.clone().map(|key| (settings::sources(&peer.remote), key)));
        }
    }
    doors
}

const fn is_of(remote: &BgpRemote, is_ipv4: bool) -> bool {
    match remote {
        BgpRemote::Address(address) => address.is_ipv4() == is_ipv4,
        BgpRemote::Network { network, limit: _ } => matches!(network, IpNet::V4(_)) == is_ipv4,
        BgpRemote::Interface(_) => !is_ipv4,
    }
}

/// Returns the configured local address for a peer. Returns `None` if there is no such address or it is
/// link-local, because a link-local address is ambiguous without an interface.
fn named_address(peer: &BgpNeighbour) -> Option<IpAddr> {
    peer.source_address.filter(|source| !matches!(source, IpAddr::V6(v6) if v6.is_unicast_link_local()))
}

/// Listening sockets by local address, open or failed.
#[derive(Debug)]
pub(super) struct Listeners {
    doors: BTreeMap<IpAddr, Door>,
    visits: mpsc::Sender<IncomingConnection>,
}

#[derive(Debug)]
struct Door {
    wanted: DesiredListener,
    /// Open socket with the task that accepts its connections, or the reason why the socket is not open.
    open: Result<Open, Fault>,
}

#[derive(Debug)]
struct Open {
    listener: Arc<TcpListener>,
    task: JoinHandle<()>,
}

/// Reason why a socket is not open, as text, such as "address in use".
type Fault = String;

impl Listeners {
    pub(super) const fn new(visits: mpsc::Sender<IncomingConnection>) -> Self {
        Self { doors: BTreeMap::new(), visits }
    }

    /// Opens, closes and changes sockets until they match `wanted`. A socket that cannot be opened is retried
    /// by [`Self::try_again`].
    pub(super) fn set(&mut self, wanted: BTreeMap<IpAddr, DesiredListener>) {
        // Obsolete sockets are closed first, because they may conflict with new ones.
        self.doors.retain(|address, _| wanted.contains_key(address));
        for (address, wanted) in wanted {
            let door = match self.doors.remove(&address) {
                Some(Door { wanted: before, open: Ok(open) }) => {
                    let changed = change(open.listener.as_fd(), address, &before, &wanted);
                    let open = changed.map(|()| open).map_err(|error| fault(address, &error));
                    Door { wanted, open }
                }
                Some(Door { open: Err(_), .. }) | None => {
                    let open = self.open(address, &wanted);
                    Door { wanted, open }
                }
            };
            self.doors.insert(address, door);
        }
    }

    /// Retries sockets that could not be opened. Returns true if the result of [`Self::faults`] has changed.
    pub(super) fn try_again(&mut self) -> bool {
        let closed = self.doors.iter().filter(|(_, door)| door.open.is_err());
        let closed: Vec<_> = closed.map(|(address, door)| (*address, door.wanted.clone())).collect();
        let before = self.faults();
        for (address, wanted) in closed {
            let open = self.open(address, &wanted);
            self.doors.insert(address, Door { wanted, open });
        }
        self.faults() != before
    }

    /// Returns the sockets that are not open, by local address, with the reason.
    pub(super) fn faults(&self) -> BTreeMap<IpAddr, String> {
        let faults = self
            .doors
            .iter()
            .filter_map(|(address, door)| Some((*address, door.open.as_ref().err()?.clone())));
        faults.collect()
    }

    fn open(&self, address: IpAddr, wanted: &DesiredListener) -> Result<Open, Fault> {
        let nothing = DesiredListener::default();
        let prepare = |socket: BorrowedFd<'_>| change(socket, address, &nothing, wanted);
        let listener = socket::listener(SocketAddr::new(address, BGP_PORT), prepare)
            .map_err(|error| fault(address, &error))?;
        let listener = Arc::new(listener);
        let task = tokio::spawn(accept(Arc::clone(&listener), self.visits.clone()));
        Ok(Open { listener, task })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // The task owns the socket.
        self.task.abort();
    }
}

/// Applies a changed configuration to an open socket: keys and minimum hop limit.
fn change(
    socket: BorrowedFd<'_>,
    address: IpAddr,
    before: &DesiredListener,
    wanted: &DesiredListener,
) -> io::Result<()> {
    if before.hop_limit_min != wanted.hop_limit_min {
        socket::set_hop_limit_min(socket, address.is_ipv4(), wanted.hop_limit_min)?;
    }
    for network in before.keys.keys().filter(|network| !wanted.keys.contains_key(network)) {
        key::set(socket, network, None)?;
    }
    for (network, password) in &wanted.keys {
        if before.keys.get(network) != Some(password) {
            key::set(socket, network, Some(password))?;
        }
    }
    Ok(())
}

fn fault(address: IpAddr, error: &io::Error) -> Fault {
    let at = SocketAddr::new(address, BGP_PORT);
    let why = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EADDRINUSE) => "another program listens there".to_owned(),
        Some(Errno::EADDRNOTAVAIL) => "the address is not on this node".to_owned(),
        Some(_) | None => error.to_string(),
    };
    format!("connections to {at} cannot be accepted: {why}")
}

async fn accept(listener: Arc<TcpListener>, visits: mpsc::Sender<IncomingConnection>) {
    loop {
        let visit = match listener.accept().await {
            Ok((stream, remote)) => {
                stream.local_addr().map(|local| IncomingConnection { stream, remote, local })
            }
            Err(error) => Err(error),
        };
        match visit {
            Ok(visit) => {
                if visits.send(visit).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                debug!(%error, "a BGP connection was lost before it was accepted");
                // Only persistent errors occur in a row.
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::kinds::bgp_peer::PeerAsn;

    use super::*;

    fn peer(
        remote: &str,
        source: Option<&str>,
        ttl_security: Option<u8>,
        password: Option<&str>,
    ) -> BgpNeighbour {
        let remote = match (remote.parse(), remote.parse()) {
            (Ok(address), _) => BgpRemote::Address(address),
            (_, Ok(network)) => BgpRemote::Network { network, limit: 1 },
            _ => BgpRemote::Interface(remote.to_owned().try_into().unwrap()),
        };
        BgpNeighbour {
            remote,
            peer_asn: PeerAsn::External,
            local_asn: 65_001,
            port: 179,
            source_address: source.map(|text| text.parse().unwrap()),
            device: None,
            hold_time: 90,
            keepalive_time: None,
            connect_time: 5,
            password: password.map(|text| Secret::new(text.to_owned())),
            ttl: 1,
            ttl_security,
            passive: false,
            families: BTreeSet::new(),
            graceful_restart: None,
            role: None,
            bfd: None,
            max_prefixes: 1,
            route_reflector_client: false,
        }
    }

    fn shown(peers: &[BgpNeighbour]) -> Vec<String> {
        let doors = plan(peers.iter()).into_iter();
        let door = |(address, wanted): (IpAddr, DesiredListener)| {
            let keys: Vec<_> = wanted.keys.keys().map(ToString::to_string).collect();
            format!("{address} min {} keys {}", wanted.hop_limit_min, keys.join(","))
        };
        doors.map(door).collect()
    }

    #[test]
    fn doors_are_where_peers_expect_us_and_as_narrow_as_all_of_them_allow() {
        assert!(shown(&[]).is_empty());
        let near = peer("192.0.2.2", Some("192.0.2.1"), Some(1), Some("a"));
        let far = peer("198.51.100.2", Some("192.0.2.1"), Some(3), None);
        assert_eq!(shown(std::slice::from_ref(&near)), ["192.0.2.1 min 255 keys 192.0.2.2/32"]);
        assert_eq!(shown(&[near.clone(), far.clone()]), ["192.0.2.1 min 253 keys 192.0.2.2/32"]);
        // A peer without a configured local address requires a socket for all addresses.
        let anywhere = peer("192.0.2.0/24", None, None, Some("b"));
        let mixed = [near, far, anywhere, peer("eth0", None, Some(1), Some("c"))];
        assert_eq!(
            shown(&mixed),
            ["0.0.0.0 min 0 keys 192.0.2.0/24,192.0.2.2/32", ":: min 255 keys fe80::/10"]
        );
    }
}
