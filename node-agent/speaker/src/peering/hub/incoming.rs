//! Assigns incoming connections to neighbors.

use std::net::{IpAddr, SocketAddr};

use kernel::links::Links;
use model::{
    bgp::{report::BgpSessionState, settings::BgpRemote},
    kinds::advertisement::InterfaceName,
    primitives::name::Name,
};
use tracing::debug;

use super::Hub;
use crate::peering::{listeners::IncomingConnection, neighbour::End, settings, status::NeighbourKey};

impl Hub {
    /// Passes an incoming connection to the task of its neighbor, or closes the connection if it belongs to
    /// no peer.
    pub(super) fn receive(&mut self, visit: IncomingConnection) {
        let IncomingConnection { stream, remote, local } = visit;
        let host = self.host(remote, local.ip());
        let running = host.as_ref().and_then(|key| self.running.get(key));
        match running.filter(|running| !running.is_ending) {
            Some(running) => running.inbox.put(|inbox| inbox.visitor = Some(stream)),
            None => {
                debug!(%remote, %local, "rejected a BGP connection from an address that is no peer");
                self.board.send_if_modified(|board| {
                    board.strangers += 1;
                    false
                });
            }
        }
    }

    /// Returns the neighbor to which a connection belongs: the peer with the remote address, otherwise the
    /// peer on the receiving interface, otherwise a dynamic neighbor of the peer with the most specific
    /// network. Returns `None` if no peer matches, or if the matching network has no room for another
    /// neighbor.
    fn host(&mut self, remote: SocketAddr, local: IpAddr) -> Option<NeighbourKey> {
        let peers = &self.state.as_ref()?.peers;
        let link = link_of(remote, &self.links.borrow());
        let is_by = |device: Option<&InterfaceName>| {
            device.is_none_or(|name| link.as_deref().is_none_or(|link| link == name.as_str()))
        };
        let candidates = peers.iter().filter(|(_, peer)| settings::is_from(peer, remote.ip(), local));
        let best = candidates.filter_map(|(name, peer)| {
            let rank = match &peer.remote {
                BgpRemote::Address(_) if is_by(peer.device.as_ref()) => 256,
                BgpRemote::Interface(interface) if is_by(Some(interface)) => 255,
                BgpRemote::Network { network, limit: _ } => u16::from(network.prefix_len()),
                BgpRemote::Address(_) | BgpRemote::Interface(_) => return None,
            };
            Some((rank, name, peer))
        });
        let (_, name, peer) = best.max_by_key(|(rank, _, _)| *rank)?;
        match &peer.remote {
            BgpRemote::Address(_) | BgpRemote::Interface(_) => {
                Some(NeighbourKey { peer: name.clone(), address: None })
            }
            BgpRemote::Network { network: _, limit } => {
                let (name, limit) = (name.clone(), usize::from(*limit));
                self.place(name, remote.ip(), limit)
            }
        }
    }

    /// Returns the dynamic neighbor at `address`: a neighbor that belongs to a peer which is configured as a
    /// network. Creates the neighbor if the peer has fewer than `limit` neighbors or an inactive one can be
    /// removed; otherwise returns `None`.
    fn place(&mut self, peer: Name, address: IpAddr, limit: usize) -> Option<NeighbourKey> {
        let key = NeighbourKey { peer, address: Some(address) };
        if self.running.contains_key(&key) {
            return Some(key);
        }
        let shown = self.board.borrow().neighbours.clone();
        let is_idle = |key: &NeighbourKey| {
            shown.get(key).is_some_and(|shown| shown.session.state < BgpSessionState::OpenSent)
        };
        let siblings =
            || self.running.iter().filter(|(other, running)| other.peer == key.peer && !running.is_ending);
        if siblings().count() >= limit {
            let idle = siblings().find(|(key, _)| is_idle(key)).map(|(key, _)| key.clone())?;
            self.running.get_mut(&idle)?.end(End::Forgotten);
        }
        let state = self.state.as_ref()?;
        let settings = settings::of(state.peers.get(&key.peer)?, self.identity(state, &key), key.address)?;
        self.start(key.clone(), settings);
        Some(key)
    }
}

/// Returns the name of the interface in the scope of a link-local address; `None` for other addresses.
fn link_of(remote: SocketAddr, links: &Links) -> Option<String> {
    let SocketAddr::V6(v6) = remote else { return None };
    let index = v6.scope_id();
    links.by_index.get(&index).map(|link| link.name.clone())
}
