//! Deletes conntrack entries of pings (ICMP echo requests) that started before this node began to reply to
//! pings for their destination address.
//!
//! NAT applies only to the first packet of a connection. If this node forwarded a ping before the address was
//! in its echo reply table, later requests of that ping would stay unanswered, because each of them keeps the
//! conntrack entry alive.

use std::{collections::BTreeSet, io, net::IpAddr};

use kernel::{conntrack::wire, netlink::socket::Netlink};
use model::primitives::net::IpFamily;

/// Returns the IP protocol number of echo requests: ICMP (RFC 792) or ICMPv6 (RFC 4443).
const fn ping_protocol(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 58,
    }
}

/// Deletes the conntrack entries of pings to `addresses` to which no NAT rule was applied. Returns the number
/// of deleted entries.
///
/// # Errors
/// Returns an I/O error if the kernel cannot list conntrack entries or the socket fails.
pub(super) fn forget(netlink: &mut Netlink, addresses: &BTreeSet<IpAddr>) -> io::Result<usize> {
    let mut forgotten = 0;
    for family in IpFamily::ALL {
        let mut of_family = addresses.iter().filter(|address| IpFamily::of(**address) == family);
        let Some(first) = of_family.next() else { continue };
        // For one address, the usual case, the kernel filters; for several, all pings are listed once.
        let only = of_family.next().is_none().then_some(*first);
        let request = wire::dump_protocol(family, ping_protocol(family), only, None);
        let deletions = netlink.dump(&request, Vec::new, |deletions, answer| {
            let shown = wire::ConntrackEntry::parse(answer)?;
            let is_ping = shown.original.protocol == ping_protocol(family);
            let is_asked = shown.original.destination.is_some_and(|to| addresses.contains(&to));
            if is_ping && is_asked && shown.reply.source == shown.original.destination {
                deletions.push(shown.deletion());
            }
            Ok(())
        })?;
        // An error for a flow that has expired in the meantime is harmless.
        let errnos = netlink.ask(&deletions, |_, _| Ok(()))?;
        forgotten += errnos.iter().filter(|errno| **errno == 0).count();
    }
    Ok(forgotten)
}
