//! Clients of connections that end because the backend removes their destination. Clients are read before the
//! removal, while the kernel still has the conntrack entries.
//!
//! Once a destination is removed, IPVS ends its connections itself, at once or with the next packet, and
//! deletes their conntrack entries. A lookup afterwards may find nothing, so that clients that only receive
//! would get no reset and wait forever.

use std::collections::BTreeSet;

use kernel::conntrack::{self, Filter, nudge};
use model::kinds::service::Protocol;

use super::{
    IpvsBackend,
    commit::failed,
    desired::Owner,
    render::IpvsCommand,
    server::{Destination, Socket},
};
use crate::KernelError;

/// Maximum number of virtual servers that are queried for connections one by one. If more are changed, all
/// are assumed to have connections.
const ASKED_SINGLY_MAX: usize = 64;

/// Destinations about to be removed, each with its virtual server.
pub(super) type Ends = BTreeSet<(Socket, Destination)>;

impl IpvsBackend {
    /// Returns the destinations that these commands remove and that still have TCP connections.
    pub(super) fn ends(&mut self, commands: &[(Owner, IpvsCommand)]) -> Result<Ends, KernelError> {
        let mut ends = Ends::new();
        for (_, command) in commands {
            match command {
                IpvsCommand::RemoveDestination(socket, destination) => {
                    ends.insert((*socket, *destination));
                }
                IpvsCommand::RemoveServer(socket) => {
                    let server = self.mirror.as_ref().and_then(|mirror| mirror.servers.get(socket));
                    let all = server.into_iter().flat_map(|server| server.destinations.keys());
                    ends.extend(all.map(|destination| (*socket, *destination)));
                }
                IpvsCommand::AddServer(..)
                | IpvsCommand::EditServer(..)
                | IpvsCommand::AddDestination(..)
                | IpvsCommand::EditDestination(..)
                | IpvsCommand::Zero(_)
                | IpvsCommand::Flush
                | IpvsCommand::SetTimeouts(_)
                | IpvsCommand::AddDaemon(_)
                | IpvsCommand::RemoveDaemon(_) => {}
            }
        }
        ends.retain(|(socket, _)| socket.protocol == Protocol::Tcp);
        let sockets: BTreeSet<_> = ends.iter().map(|(socket, _)| *socket).collect();
        if sockets.len() <= ASKED_SINGLY_MAX {
            for socket in sockets {
                let loads = self.read_loads(&socket).map_err(failed("reading destinations"))?;
                ends.retain(|(at, destination)| {
                    *at != socket || loads.get(destination).is_some_and(|(_, load)| !load.is_empty())
                });
            }
        }
        Ok(ends)
    }

    /// Records the clients of the connections to these destinations for
    /// [`crate::Dataplane::take_cut`]. Best effort: clients that cannot be read are left out.
    pub(super) fn note_clients(&mut self, ends: &Ends) {
        let Some(filter) = filter(ends) else { return };
        let is_meant = |flow: &conntrack::Flow| {
            let socket = Socket { address: flow.destination, protocol: flow.protocol, port: flow.port };
            ends.contains(&(socket, Destination { address: flow.target, port: flow.target_port }))
        };
        match conntrack::clients(&filter, is_meant) {
            Ok(clients) => self.cut.extend(clients),
            Err(error) => {
                tracing::debug!(%error, "clients of terminated connections cannot be challenged; they \
                                         are reset when they next send a packet")
            }
        }
        self.cut.truncate(nudge::NUDGES_MAX);
    }
}

/// Returns the criteria that all connections to these destinations fulfill, to limit the conntrack dump;
/// `None` if there are no destinations.
fn filter(ends: &Ends) -> Option<Filter> {
    let (first, _) = ends.first()?;
    let all = |is_so: &dyn Fn(&Socket) -> bool| ends.iter().all(|(socket, _)| is_so(socket));
    Some(Filter {
        family: Some(first.family()).filter(|family| all(&|socket| socket.family() == *family)),
        protocol: Some(Protocol::Tcp),
        destination: Some(first.address).filter(|address| all(&|socket| socket.address == *address)),
        port: Some(first.port).filter(|port| all(&|socket| socket.port == *port)),
    })
}
