//! Keeper of the routes and the tunnel devices: reads the kernel, compares it with the plan and writes the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    time::Instant,
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
    HeldHop, RouteKey, TunnelIndexes,
    diff::{RouteChange, diff},
    handover::Handover,
    parse::{self, FoundLink},
    render, tunnel,
};
use crate::{
    desired::{DesiredNetwork, TunnelKind, Uplink},
    plan::{NetworkPlan, plan},
};

/// Keeper of the routes and the tunnel devices in one network namespace.
pub struct RouteKeeper {
    own: Name,
    netlink: Netlink,
    handover: Handover,
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
    /// Failure of a tunnel device or of the table of nf_tables; the routes that do not need it are kept.
    pub failure: Option<String>,
    /// True if a change from one tunnel to another is not complete, so that a later pass has changes.
    pub is_pending: bool,
}

/// Kernel state at the start of a pass, and the plan that follows from it.
#[derive(Debug, Clone)]
pub struct ObservedNetwork {
    /// Links and routes that the node needs.
    pub plan: NetworkPlan,
    /// Interfaces of the node that lead to other nodes.
    pub uplinks: Vec<Uplink>,
    /// Links with the name of a tunnel device.
    devices: BTreeMap<TunnelKind, FoundLink>,
    /// Name of a link of another program that receives IPIP packets from every machine.
    ipip_rival: Option<String>,
}

impl ObservedNetwork {
    /// Returns the tunnels whose packets this node receives: those of the plan, and existing ones that a tunnel of the plan
    /// replaces. Without IPIP, if the device of another program is in its place: its packets are those of that program, and
    /// must not be dropped.
    #[must_use]
    pub fn tunnels(&self) -> BTreeSet<TunnelKind> {
        if self.plan.tunnels.is_empty() {
            return BTreeSet::new();
        }
        let mut tunnels: BTreeSet<_> = self.plan.tunnels.keys().chain(self.devices.keys()).copied().collect();
        if self.ipip_rival.is_some() && !self.devices.contains_key(&TunnelKind::Ipip) {
            tunnels.remove(&TunnelKind::Ipip);
        }
        tunnels
    }
}

/// Permission to use tunnel devices, which accept packets from every machine unless the table of nf_tables drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelPermit {
    /// The table is in place: the devices of the plan are created.
    Allowed,
    /// The table is in place, but could not be compared or changed: existing devices stay.
    Existing,
    /// The table is absent: devices are removed.
    Forbidden,
}

impl RouteKeeper {
    /// Opens a socket in the network namespace of the calling thread, on which the keeper must be used. `own` is the name
    /// of this node.
    ///
    /// # Errors
    /// Returns an error if the kernel denies it; `CAP_NET_ADMIN` is required.
    pub fn open(own: Name) -> io::Result<Self> {
        Ok(Self { own, netlink: Netlink::open(Protocol::Route)?, handover: Handover::default() })
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
        let ipip_rival = ipip_rival(&links);
        Ok(ObservedNetwork { plan, uplinks, devices: devices(&links), ipip_rival })
    }

    /// Writes the difference between the kernel and the plan at the time `now`. A route that the kernel rejects does not prevent
    /// the others. Without a permission for the tunnel devices, the routes through them are left out.
    ///
    /// # Errors
    /// Returns an error if the routes of the kernel cannot be read. The socket is then replaced for the next pass.
    pub fn apply(
        &mut self,
        observed: ObservedNetwork,
        permit: TunnelPermit,
        now: Instant,
    ) -> io::Result<RoutePass> {
        let mut devices = self.keep_devices(&observed, permit, now);
        let ObservedNetwork { mut plan, uplinks, devices: _, ipip_rival: _ } = observed;
        let handover = &self.handover;
        let applied = held(&mut self.netlink, &devices.indexes).and_then(|held| {
            devices.is_pending |= handover.defer(&mut plan.routes, &held, &devices.indexes, now);
            let changes = diff(&plan.routes, &held);
            apply(&mut self.netlink, &changes, &devices.indexes)
        });
        let (applied, rejected) = self.replaced_on_error(applied)?;
        // Removed after the routes, so that a packet finds a route at all times.
        for (kind, link) in &devices.leftover {
            self.remove_device(*kind, link, &mut devices.outcome);
        }
        let DeviceOutcome { writes, failure } = devices.outcome;
        let is_pending = devices.is_pending;
        Ok(RoutePass { plan, uplinks, writes: writes + applied, rejected, failure, is_pending })
    }

    /// Creates and repairs the devices of the plan, and removes those that are not permitted.
    fn keep_devices(
        &mut self,
        observed: &ObservedNetwork,
        permit: TunnelPermit,
        now: Instant,
    ) -> KeptDevices {
        let ObservedNetwork { plan, uplinks: _, devices, ipip_rival } = observed;
        let mut kept = KeptDevices::default();
        for (kind, mtu) in &plan.tunnels {
            self.handover.note_needed(*kind);
            let found = devices.get(kind);
            let rival = ipip_rival.as_ref().filter(|_| *kind == TunnelKind::Ipip);
            if let Some(rival) = rival {
                kept.outcome.fail(rival_failure(rival));
            }
            match (permit, found) {
                (TunnelPermit::Allowed, None) if rival.is_some() => continue,
                (TunnelPermit::Allowed, _) | (TunnelPermit::Existing, Some(_)) => {}
                (TunnelPermit::Forbidden, Some(link)) => {
                    self.remove_device(*kind, link, &mut kept.outcome);
                    continue;
                }
                (TunnelPermit::Existing | TunnelPermit::Forbidden, None) => continue,
            }
            match tunnel::keep(&mut self.netlink, *kind, found, *mtu) {
                Ok(device) => {
                    kept.outcome.writes += device.changes;
                    kept.indexes.insert(*kind, device.index);
                    if device.is_created && devices.keys().any(|other| other != kind) {
                        self.handover.note_created(*kind, now);
                    }
                }
                Err(error) => kept.outcome.fail(tunnel::failure(*kind, &error)),
            }
        }
        for (kind, link) in devices.iter().filter(|(kind, _)| !plan.tunnels.contains_key(*kind)) {
            let is_usable = link.tunnel == Some(*kind) && permit != TunnelPermit::Forbidden;
            if is_usable && self.handover.retains(*kind, plan, &kept.indexes, now) {
                kept.is_pending = true;
            } else {
                kept.leftover.insert(*kind, link.clone());
            }
            kept.indexes.insert(*kind, link.index);
        }
        for kind in TunnelKind::ALL.iter().filter(|kind| !kept.indexes.contains_key(*kind)) {
            self.handover.note_absent(*kind);
        }
        kept
    }

    fn remove_device(&mut self, kind: TunnelKind, link: &FoundLink, outcome: &mut DeviceOutcome) {
        match tunnel::remove(&mut self.netlink, link) {
            Ok(()) => {
                outcome.writes += 1;
                self.handover.note_absent(kind);
            }
            Err(error) => outcome.fail(tunnel::failure(kind, &error)),
        }
    }

    /// Replaces the socket after an error, because responses to unfinished requests may still arrive on the former one.
    fn replaced_on_error<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() {
            self.netlink = Netlink::open(Protocol::Route)?;
        }
        outcome
    }
}

/// Tunnel devices during a pass.
#[derive(Default)]
struct KeptDevices {
    /// Devices that exist.
    indexes: TunnelIndexes,
    /// Devices that are removed after the routes.
    leftover: BTreeMap<TunnelKind, FoundLink>,
    outcome: DeviceOutcome,
    is_pending: bool,
}

/// Changes of tunnel devices, and the first failure.
#[derive(Default)]
struct DeviceOutcome {
    writes: u64,
    failure: Option<String>,
}

impl DeviceOutcome {
    fn fail(&mut self, failure: String) {
        self.failure.get_or_insert(failure);
    }
}

fn devices(links: &BTreeMap<u32, FoundLink>) -> BTreeMap<TunnelKind, FoundLink> {
    let link = |kind: TunnelKind| links.values().find(|link| link.name == kind.device()).cloned();
    TunnelKind::ALL.into_iter().filter_map(|kind| Some((kind, link(kind)?))).collect()
}

/// Returns the name of a link of another program that takes packets of the IPIP device, or loses its own to it: one that receives
/// from every machine. The kernel creates `tunl0` of this kind in each network namespace; it is down and takes none
/// unless another program uses it.
fn ipip_rival(links: &BTreeMap<u32, FoundLink>) -> Option<String> {
    let is_rival = |link: &&FoundLink| {
        let is_foreign = link.name != TunnelKind::Ipip.device();
        is_foreign && link.is_open_ipip && (link.is_up || link.tunnel == Some(TunnelKind::Ipip))
    };
    links.values().find(is_rival).map(|link| link.name.clone())
}

fn rival_failure(rival: &str) -> String {
    format!(
        "the device {rival} of another program receives the IPIP packets of all machines, so {} cannot be used beside it. Remove or \
         set down {rival} if nothing uses it, or choose `encapsulation: Vxlan` for the WorkloadNetwork",
        TunnelKind::Ipip.device()
    )
}

/// Removes the routes and the tunnel devices of the agent in the network namespace of the calling thread, and returns
/// their number.
///
/// # Errors
/// Returns an error if the kernel cannot be read, or rejects a change.
pub fn cleanup() -> io::Result<u64> {
    let mut netlink = Netlink::open(Protocol::Route)?;
    let found = devices(&links(&mut netlink)?);
    let none = TunnelIndexes::new();
    let held = held(&mut netlink, &none)?;
    let (mut removed, rejected) = apply(&mut netlink, &diff(&BTreeMap::new(), &held), &none)?;
    if let Some(errno) = rejected.values().next() {
        return Err(io::Error::from_raw_os_error(*errno));
    }
    for link in found.values() {
        tunnel::remove(&mut netlink, link)?;
        removed += 1;
    }
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
        let is_tunnel = |link: &FoundLink| TunnelKind::ALL.iter().any(|tunnel| link.name == tunnel.device());
        let link = links.get(&index).filter(|link| link.is_up && !link.is_loopback && !is_tunnel(link))?;
        Some(Uplink { index, mtu: link.mtu, subnets })
    };
    Ok(found.into_iter().filter_map(uplink).collect())
}

/// Lists the routes of the agent. `tunnels` has the indexes of the tunnel devices.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn held(netlink: &mut Netlink, tunnels: &TunnelIndexes) -> io::Result<BTreeMap<RouteKey, HeldHop>> {
    let mut held = BTreeMap::new();
    for family in IpFamily::ALL {
        let request = render::dump_routes(family);
        held.extend(netlink.dump(&request, BTreeMap::new, |found, answer| {
            // Routes of other programs can have attributes that cannot be parsed.
            found.extend(route::parse(answer).ok().and_then(|message| parse::own_route(&message, tunnels)));
            Ok(())
        })?);
    }
    Ok(held)
}

/// Sends the changes in batches. Returns the number of accepted ones, and the error numbers of the others.
fn apply(
    netlink: &mut Netlink,
    changes: &[RouteChange],
    tunnels: &TunnelIndexes,
) -> io::Result<(u64, BTreeMap<IpNet, i32>)> {
    let requests: Vec<_> = changes
        .iter()
        .filter_map(|change| render::change(change, tunnels).map(|request| (change, request)))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a plan with IPIP beside the device of another program. Output: the packets of that program are not those of a
    /// tunnel of this node, unless the agent has a device of its own.
    #[test]
    fn ipip_packets_of_another_program_are_not_filtered() {
        let observed = |rival: Option<&str>, has_device: bool| {
            let device = FoundLink {
                index: 7,
                name: "tg-ipip".to_owned(),
                mtu: 1480,
                is_up: true,
                is_loopback: false,
                tunnel: Some(TunnelKind::Ipip),
                is_open_ipip: false,
            };
            let plan = NetworkPlan { tunnels: [(TunnelKind::Ipip, 1480)].into(), ..NetworkPlan::default() };
            let devices = has_device.then_some((TunnelKind::Ipip, device)).into_iter().collect();
            ObservedNetwork { plan, uplinks: Vec::new(), devices, ipip_rival: rival.map(str::to_owned) }
                .tunnels()
        };
        assert_eq!(observed(None, false), [TunnelKind::Ipip].into());
        assert_eq!(observed(Some("tunl0"), false), BTreeSet::new());
        assert_eq!(observed(Some("tunl0"), true), [TunnelKind::Ipip].into());
    }
}
