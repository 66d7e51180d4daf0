//! Connections that end with their destination: whose they are is asked while the kernel still knows.
//!
//! Once a destination is removed, IPVS ends its connections by itself, at once or with the next packet, and takes what
//! connection tracking knows of them along. Whoever looks for them there afterwards may find nothing, and clients that only
//! receive would wait for ever.

use std::collections::BTreeSet;

use model::kinds::service::Protocol;

use super::{
    IpvsBackend,
    commit::failed,
    desired::Owner,
    render::Command,
    server::{Destination, Socket},
};
use crate::{
    conntrack::{self, Filter, nudge},
    dataplane::KernelError,
};

/// Virtual servers that are asked one by one whether they have connections; above, all are taken to have some.
const ASKED_SINGLY_MAX: usize = 64;

/// Destinations of virtual servers.
pub(super) type Ends = BTreeSet<(Socket, Destination)>;

impl IpvsBackend {
    /// The destinations with TCP connections that these commands remove.
    pub(super) fn ends(&mut self, commands: &[(Owner, Command)]) -> Result<Ends, KernelError> {
        let mut ends = Ends::new();
        for (_, command) in commands {
            match command {
                Command::RemoveDestination(socket, destination) => {
                    ends.insert((*socket, *destination));
                }
                Command::RemoveServer(socket) => {
                    let server = self.mirror.as_ref().and_then(|mirror| mirror.servers.get(socket));
                    let all = server.into_iter().flat_map(|server| server.destinations.keys());
                    ends.extend(all.map(|destination| (*socket, *destination)));
                }
                Command::AddServer(..)
                | Command::EditServer(..)
                | Command::AddDestination(..)
                | Command::EditDestination(..)
                | Command::Zero(_)
                | Command::Flush
                | Command::SetTimeouts(_)
                | Command::AddDaemon(_)
                | Command::RemoveDaemon(_) => {}
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

    /// Notes whose connections end with these destinations. Nobody rests on it: what cannot be read is left out.
    pub(super) fn note_clients(&mut self, ends: &Ends) {
        let Some(filter) = filter(ends) else { return };
        let is_meant = |flow: &conntrack::Flow| {
            let socket = Socket { address: flow.destination, protocol: flow.protocol, port: flow.port };
            ends.contains(&(socket, Destination { address: flow.target, port: flow.target_port }))
        };
        match conntrack::clients(&filter, is_meant) {
            Ok(clients) => self.cut.extend(clients),
            Err(error) => {
                tracing::debug!(%error, "clients of cut connections are told when they say something")
            }
        }
        self.cut.truncate(nudge::NUDGES_MAX);
    }
}

/// What the connections of all of them have in common; `None` when there is none.
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
