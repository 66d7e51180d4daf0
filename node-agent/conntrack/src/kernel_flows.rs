//! Access to the conntrack table of this network namespace. Contains no decisions.

use std::{collections::BTreeSet, fs, io, net::IpAddr, time::Instant};

use kernel::{
    conntrack::{
        Filter, Flow, Sighting,
        nudge::{self, wire::Nudge},
        wire,
    },
    links::local_addresses,
    netlink::socket::{Netlink, Protocol},
};

use super::FlowTable;

/// File of the sysctl that enables packet and byte counters of flows.
const ACCOUNTING: &str = "/proc/sys/net/netfilter/nf_conntrack_acct";

/// Conntrack table of the kernel, over its own netlink socket, which is opened on first use.
#[derive(Default)]
pub struct KernelFlows {
    netlink: Option<Netlink>,
    nudger: nudge::Nudger,
}

impl FlowTable for KernelFlows {
    fn remove(&mut self, filter: &Filter, condemned: &mut dyn FnMut(&Flow) -> bool) -> io::Result<u64> {
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open(Protocol::Netfilter)?,
        };
        let begin = || (Vec::new(), Vec::new());
        let (deletions, clients) =
            netlink.dump(&wire::dump(filter), begin, |(deletions, clients), answer| {
                if let Some(entry) = wire::Entry::parse(answer)?.filter(|entry| condemned(&entry.flow)) {
                    deletions.push(entry.deletion());
                    clients.push(entry.nudge());
                }
                Ok(())
            })?;
        let errnos = netlink.ask(&deletions, |_, _| Ok(()))?;
        // The socket is dropped after a failure, because responses may still arrive on it.
        self.netlink = Some(netlink);
        // An entry that expired in the meantime yields an error, which is as good as a deletion.
        let deleted = errnos.iter().filter(|errno| **errno == 0).count();
        let is_deleted = |(errno, client): (&i32, _)| if *errno == 0 { client } else { None };
        let clients: Vec<_> = errnos.iter().zip(clients).filter_map(is_deleted).collect();
        self.nudger.ask(clients, Instant::now());
        Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
    }

    fn tell(&mut self, clients: Vec<Nudge>, now: Instant) {
        self.nudger.ask(clients, now);
    }

    fn tell_again(&mut self, now: Instant) {
        self.nudger.ask_again(now);
    }

    fn show(&mut self, each: &mut dyn FnMut(&Sighting)) -> io::Result<()> {
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open(Protocol::Netfilter)?,
        };
        netlink.dump(
            &wire::dump_translated(),
            || (),
            |(), answer| {
                if let Some(sighting) = wire::sighting(answer)? {
                    each(&sighting);
                }
                Ok(())
            },
        )?;
        self.netlink = Some(netlink);
        Ok(())
    }

    fn count(&mut self) -> bool {
        let is_set = fs::read_to_string(ACCOUNTING).is_ok_and(|value| value.trim() == "1");
        is_set || fs::write(ACCOUNTING, "1").is_ok()
    }

    fn local_addresses(&mut self) -> io::Result<BTreeSet<IpAddr>> {
        local_addresses()
    }
}
