//! The flows of the kernel of this network namespace. Nothing is decided here.

use std::{collections::BTreeSet, io, net::IpAddr};

use super::{Filter, Flow, FlowTable, wire};
use crate::{
    facts,
    netlink::socket::{Netlink, Protocol},
};

/// The flows of the kernel, over a socket of its own that is made when it is first needed.
#[derive(Default)]
pub struct KernelFlows {
    netlink: Option<Netlink>,
}

impl FlowTable for KernelFlows {
    fn remove(&mut self, filter: &Filter, condemned: &mut dyn FnMut(&Flow) -> bool) -> io::Result<u64> {
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open(Protocol::Netfilter)?,
        };
        let deletions = netlink.dump(&wire::dump(filter), Vec::new, |deletions, answer| {
            let entry = wire::Entry::parse(answer)?;
            deletions.extend(entry.filter(|entry| condemned(&entry.flow)).map(|entry| entry.deletion()));
            Ok(())
        })?;
        let errnos = netlink.ask(&deletions, |_, _| Ok(()))?;
        // After a failure the socket is not kept: answers may still be on their way to it.
        self.netlink = Some(netlink);
        // An entry that went by itself in the meantime is refused, and that is as good.
        let deleted = errnos.iter().filter(|errno| **errno == 0).count();
        Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
    }

    fn local_addresses(&mut self) -> io::Result<BTreeSet<IpAddr>> {
        facts::local_addresses()
    }
}
