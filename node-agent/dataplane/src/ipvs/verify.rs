//! Read-back of the virtual servers and destinations that a plan has changed.

use std::{collections::BTreeMap, io};

use model::wire::report::FailureReason;

use super::{
    IpvsBackend,
    commit::{failed, refuse},
    desired::Owner,
    plan::Plan,
    render::IpvsCommand,
    server::{SchedulingParameters, Socket},
};
use crate::{KernelError, RejectedServices};

/// Maximum number of changed virtual servers that are read back one by one; beyond, all are read at once.
const READ_BACK_SINGLY_MAX: usize = 64;

impl IpvsBackend {
    /// Compares the virtual servers and destinations that `plan` has changed with the kernel. Adds the
    /// Services with a difference to `refused`.
    pub(super) fn verify(&mut self, plan: &Plan, refused: &mut RejectedServices) -> Result<(), KernelError> {
        let mut changed: BTreeMap<Socket, &Owner> = BTreeMap::new();
        for (owner, command) in &plan.commands {
            changed.extend(command.socket().map(|socket| (socket, owner)));
        }
        let found = self.read_changed(&changed).map_err(failed("reading back virtual servers"))?;
        for (socket, owner) in changed {
            let held = self.mirror.as_ref().and_then(|mirror| mirror.servers.get(&socket)).cloned();
            let mut is_right = held.as_ref().map(|held| &held.service) == found.get(&socket);
            if let Some(held) = held.filter(|_| is_right) {
                let loads = self.read_loads(&socket).map_err(failed("reading back destinations"))?;
                is_right = loads.into_iter().map(|(name, (held, _))| (name, held)).eq(held.destinations);
            }
            // The virtual server on this socket belongs to another program.
            let is_foreign = self.mirror.as_ref().is_some_and(|mirror| mirror.foreign.contains(&socket));
            if !is_right && !is_foreign {
                let message = format!("virtual server {socket} is not as it was written");
                match owner {
                    Some(owner) => {
                        refuse(refused, owner, FailureReason::VerificationFailed, message);
                    }
                    None => return Err(failed("reading back")(io::Error::other(message))),
                }
            }
        }
        Ok(())
    }

    fn read_changed(
        &mut self,
        changed: &BTreeMap<Socket, &Owner>,
    ) -> io::Result<BTreeMap<Socket, SchedulingParameters>> {
        let sockets: Vec<_> = changed.keys().copied().collect();
        if sockets.len() > READ_BACK_SINGLY_MAX {
            return Ok(self.read_servers()?.into_iter().collect());
        }
        let services = self.read_some(&sockets)?;
        Ok(sockets.into_iter().zip(services).filter_map(|(socket, found)| Some((socket, found?))).collect())
    }
}

impl IpvsCommand {
    const fn socket(&self) -> Option<Socket> {
        match self {
            Self::AddServer(socket, _)
            | Self::EditServer(socket, _)
            | Self::RemoveServer(socket)
            | Self::AddDestination(socket, ..)
            | Self::EditDestination(socket, ..)
            | Self::RemoveDestination(socket, _)
            | Self::Zero(socket) => Some(*socket),
            Self::Flush | Self::SetTimeouts(_) | Self::AddDaemon(_) | Self::RemoveDaemon(_) => None,
        }
    }
}
