//! Keeper of the routes and the tunnel device: reads the kernel, compares it with the plan and writes the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use ipnet::IpNet;
use kernel::netlink::{
    route,
    socket::{Netlink, Protocol},
    uapi::NLM_F_DUMP,
    wire::Message,
};
use model::primitives::{name::Name, net::IpFamily};
use netlink_packet_route::{RouteNetlinkMessage, address::AddressMessage, link::LinkMessage};
use nix::errno::Errno;
use tracing::warn;

use super::{
    HeldHop, RouteKey, TUNNEL,
    diff::{RouteChange, diff},
    parse::{self, FoundLink},
    render, tunnel,
};
use crate::{
    desired::{DesiredNetwork, Uplink},
    plan::{NetworkPlan, plan},
};

/// Keeper of the routes and the tunnel device in one network namespace.
pub struct RouteKeeper {
    own: Name,
    netlink: Netlink,
}

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutePass {
    /// Plan that the pass followed.
    pub plan: NetworkPlan,
    /// Interfaces of the node that lead to other nodes.
    pub uplinks: Vec<Uplink>,
    /// Number of changes in the kernel.
    pub writes: u64,
    /// Routes that the kernel rejected, with the error numbers.
    pub rejected: BTreeMap<IpNet, i32>,
    /// Failure of the tunnel device or of the table of nf_tables; the routes that do not need it are kept.
    pub failure: Option<String>,
}

/// Kernel state at the start of a pass, and the plan that follows from it.
#[derive(Debug, Clone)]
pub struct ObservedNetwork {
    /// Links and routes that the node needs.
    pub plan: NetworkPlan,
    /// Interfaces of the node that lead to other nodes.
    pub uplinks: Vec<Uplink>,
    /// Tunnel device, if a link has its name.
    tunnel: Option<FoundLink>,
}

/// Permission to use the tunnel device, which accepts packets from every machine unless the table of nf_tables drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelPermit {
    /// The table is in place: the device is created if the plan has one.
    Allowed,
    /// The table is in place, but could not be compared or changed: an existing device stays.
    Existing,
    /// The table is absent: the device is removed.
    Forbidden,
}

impl RouteKeeper {
    /// Opens a socket in the network namespace of the calling thread, on which the keeper must be used. `own` is the name
    /// of this node.
    ///
    /// # Errors
    /// Returns an error if the kernel denies it; `CAP_NET_ADMIN` is required.
    pub fn open(own: Name) -> io::Result<Self> {
        Ok(Self { own, netlink: Netlink::open(Protocol::Route)? })
    }

    /// Reads the links of the kernel and derives the plan. Changes nothing.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read. The socket is then replaced for the next pass.
    pub fn observe(
        &mut self,
        desired: &DesiredNetwork,
        workloads: &BTreeMap<IpAddr, u32>,
    ) -> io::Result<ObservedNetwork> {
        let read = links(&mut self.netlink).and_then(|links| {
            let uplinks = uplinks(&mut self.netlink, &links)?;
            Ok((links, uplinks))
        });
        let (links, uplinks) = self.replaced_on_error(read)?;
        let plan = plan(&self.own, desired, &uplinks, workloads);
        let tunnel = links.into_values().find(|link| link.name == TUNNEL);
        Ok(ObservedNetwork { plan, uplinks, tunnel })
    }

    /// Writes the difference between the kernel and the plan. A route that the kernel rejects does not prevent the others.
    /// Without a permission for the tunnel device, the routes through it are left out.
    ///
    /// # Errors
    /// Returns an error if the routes of the kernel cannot be read. The socket is then replaced for the next pass.
    pub fn apply(&mut self, observed: ObservedNetwork, permit: TunnelPermit) -> io::Result<RoutePass> {
        let ObservedNetwork { plan, uplinks, tunnel: found } = observed;
        let (mut writes, mut failure) = (0, None);
        let mtu = plan.tunnel_mtu.filter(|_| match permit {
            TunnelPermit::Allowed => true,
            TunnelPermit::Existing => found.is_some(),
            TunnelPermit::Forbidden => false,
        });
        let tunnel = match tunnel::follow(&mut self.netlink, found.as_ref(), mtu) {
            Ok((tunnel, changes)) => {
                writes += changes;
                tunnel
            }
            Err(error) => {
                failure = Some(format!("the tunnel device {TUNNEL} cannot be used: {error}"));
                None
            }
        };
        let applied = held(&mut self.netlink, tunnel).and_then(|held| {
            let changes = diff(&plan.routes, &held);
            apply(&mut self.netlink, &changes, tunnel)
        });
        let (applied, rejected) = self.replaced_on_error(applied)?;
        writes += applied;
        Ok(RoutePass { plan, uplinks, writes, rejected, failure })
    }

    /// Replaces the socket after an error, because responses to unfinished requests may still arrive on the former one.
    fn replaced_on_error<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() {
            self.netlink = Netlink::open(Protocol::Route)?;
        }
        outcome
    }
}

/// Removes the routes and the tunnel device of the agent in the network namespace of the calling thread, and returns
/// their number.
///
/// # Errors
/// Returns an error if the kernel cannot be read, or rejects a change.
pub fn cleanup() -> io::Result<u64> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let found = links(&mut netlink)?.into_values().find(|link| link.name == TUNNEL);
    let held = held(&mut netlink, None)?;
    let (mut removed, rejected) = apply(&mut netlink, &diff(&BTreeMap::new(), &held), None)?;
    if let Some(errno) = rejected.values().next() {
        return Err(io::Error::from_raw_os_error(*errno));
    }
    removed += tunnel::follow(&mut netlink, found.as_ref(), None)?.1;
    Ok(removed)
}

/// Sends requests that the kernel must accept.
///
/// # Errors
/// Returns an error if the kernel rejects one of them.
pub fn acknowledge(netlink: &mut Netlink, requests: &[Message]) -> io::Result<()> {
    let errnos = netlink.ask(requests, |_, _| Ok(()))?;
    match errnos.into_iter().find(|errno| *errno != 0) {
        None => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Lists the links by index.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn links(netlink: &mut Netlink) -> io::Result<BTreeMap<u32, FoundLink>> {
    let request = route::request(&RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
    netlink.dump(&request, BTreeMap::new, |found, answer| {
        match route::parse(answer) {
            Ok(message) => found.extend(parse::link(&message).map(|link| (link.index, link))),
            // One unusual interface must not hide the others.
            Err(error) => warn!(%error, "ignored an interface that cannot be parsed"),
        }
        Ok(())
    })
}

fn uplinks(netlink: &mut Netlink, links: &BTreeMap<u32, FoundLink>) -> io::Result<Vec<Uplink>> {
    let request = route::request(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP);
    let found = netlink.dump(&request, BTreeMap::new, |found, answer| {
        if let Ok(RouteNetlinkMessage::NewAddress(message)) = route::parse(answer)
            && let Some((index, net)) = parse::address(&message)
        {
            found.entry(index).or_insert_with(BTreeSet::new).insert(net);
        }
        Ok(())
    })?;
    let uplink = |(index, subnets)| {
        let link = links.get(&index).filter(|link| link.is_up && !link.is_loopback && link.name != TUNNEL)?;
        Some(Uplink { index, mtu: link.mtu, subnets })
    };
    Ok(found.into_iter().filter_map(uplink).collect())
}

/// Lists the routes of the agent. `tunnel` is the index of the tunnel device.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn held(netlink: &mut Netlink, tunnel: Option<u32>) -> io::Result<BTreeMap<RouteKey, HeldHop>> {
    let mut held = BTreeMap::new();
    for family in IpFamily::ALL {
        let request = render::dump_routes(family);
        held.extend(netlink.dump(&request, BTreeMap::new, |found, answer| {
            // Routes of other programs can have attributes that cannot be parsed.
            found.extend(route::parse(answer).ok().and_then(|message| parse::own_route(&message, tunnel)));
            Ok(())
        })?);
    }
    Ok(held)
}

/// Sends the changes in batches. Returns the number of accepted ones, and the error numbers of the others.
fn apply(
    netlink: &mut Netlink,
    changes: &[RouteChange],
    tunnel: Option<u32>,
) -> io::Result<(u64, BTreeMap<IpNet, i32>)> {
    let requests: Vec<_> = changes
        .iter()
        .filter_map(|change| render::change(change, tunnel).map(|request| (change, request)))
        .collect();
    let messages: Vec<_> = requests.iter().map(|(_, message)| message.clone()).collect();
    let errnos = netlink.ask(&messages, |_, _| Ok(()))?;
    let (mut writes, mut rejected) = (0, BTreeMap::new());
    for ((change, _), errno) in requests.iter().zip(errnos) {
        let (destination, is_removal) = match change {
            RouteChange::Add(destination, _) | RouteChange::Replace(destination, _) => (*destination, false),
            RouteChange::Remove(key) => (key.destination, true),
        };
        // A route goes with its interface.
        let is_gone = is_removal && errno == Errno::ESRCH as i32;
        if errno == 0 {
            writes += 1;
        } else if !is_gone {
            rejected.insert(destination, errno);
        }
    }
    Ok((writes, rejected))
}
