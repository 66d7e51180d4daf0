//! Forgets the pings that began before their address was answered.
//!
//! Translation decides on the first packet of a flow alone. A ping that this node has passed on once, before the address was
//! in the table, would never be answered while it goes on, because each request keeps its flow alive.

use std::{collections::BTreeSet, io, net::IpAddr};

use model::primitives::net::IpFamily;

use crate::{conntrack::wire, netlink::socket::Netlink};

/// The protocol number of the pings of a family (RFC 792, RFC 4443).
const fn ping_protocol(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 58,
    }
}

/// Removes the flows of pings to these addresses whose destination was not translated. Answers how many.
///
/// # Errors
/// When the kernel shows no flows, or the socket fails.
pub(super) fn forget(netlink: &mut Netlink, addresses: &BTreeSet<IpAddr>) -> io::Result<usize> {
    let mut forgotten = 0;
    for family in IpFamily::ALL {
        let mut of_family = addresses.iter().filter(|address| IpFamily::of(**address) == family);
        let Some(first) = of_family.next() else { continue };
        // One address is the usual case, and the kernel looks for it; more of them cost one look at all pings.
        let only = of_family.next().is_none().then_some(*first);
        let request = wire::dump_protocol(family, ping_protocol(family), only, None);
        let deletions = netlink.dump(&request, Vec::new, |deletions, answer| {
            let shown = wire::Shown::parse(answer)?;
            let is_ping = shown.original.protocol == ping_protocol(family);
            let is_asked = shown.original.destination.is_some_and(|to| addresses.contains(&to));
            if is_ping && is_asked && shown.reply.source == shown.original.destination {
                deletions.push(shown.deletion());
            }
            Ok(())
        })?;
        // One that has ended in the meantime is refused, and that is as good.
        let errnos = netlink.ask(&deletions, |_, _| Ok(()))?;
        forgotten += errnos.iter().filter(|errno| **errno == 0).count();
    }
    Ok(forgotten)
}
