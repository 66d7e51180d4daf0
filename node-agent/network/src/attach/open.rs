//! Start of the engine: completes interrupted steps of the journal, and recognizes interfaces of lost records.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use kernel::netlink::socket::Netlink;
use nix::net::if_::if_nametoindex;
use tracing::{info, warn};

use super::{
    allocator::Allocator,
    journal::{AttachJournal, AttachPhase, AttachRecords, AttachStep},
    names, veth,
};
use crate::{
    plan::Hop,
    routes::{HeldHop, keeper},
};

/// Interface to a workload that no record of the journal has, such as after the loss of the state directory. Its
/// addresses stay in use until the workload is detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) index: u32,
    pub(super) addresses: Vec<IpAddr>,
}

/// Removes the interfaces of attachments that are incomplete or being removed. After a restart of the machine, these are all.
pub(super) fn complete_steps(
    netlink: &mut Netlink,
    journal: &mut AttachJournal,
    records: &mut AttachRecords,
    now: u64,
) -> io::Result<()> {
    let incomplete: Vec<_> = records
        .attachments
        .values()
        .filter(|(_, phase)| *phase != AttachPhase::Complete)
        .map(|(attached, _)| (attached.key.clone(), attached.host_interface.clone()))
        .collect();
    for (key, host_interface) in incomplete {
        veth::remove(netlink, &host_interface)?;
        info!(attachment = %key, "removed an attachment that was incomplete, or older than the boot of the machine");
        let step = AttachStep::Removed { key, at: now };
        records.apply(step.clone());
        journal.append(&step, records)?;
    }
    Ok(())
}

/// Finds the interfaces to workloads without a record, by their names, with the addresses of their routes. An interface
/// without a route is removed.
pub(super) fn orphans(
    netlink: &mut Netlink,
    records: &AttachRecords,
) -> io::Result<BTreeMap<String, Orphan>> {
    let known: BTreeSet<_> =
        records.attachments.values().map(|(attached, _)| attached.host_interface.as_str()).collect();
    let links = keeper::links(netlink)?;
    let unknown = links
        .values()
        .filter(|link| names::is_host_interface(&link.name) && !known.contains(link.name.as_str()));
    let unknown: Vec<_> = unknown.collect();
    if unknown.is_empty() {
        return Ok(BTreeMap::new());
    }
    let routes = keeper::held(netlink, &BTreeMap::new())?;
    let mut orphans = BTreeMap::new();
    for link in unknown {
        let leads_here = HeldHop::Known(Hop::Interface(link.index));
        let to_link = routes.iter().filter(|(_, hop)| **hop == leads_here);
        let addresses: Vec<_> = to_link.map(|(key, _)| key.destination.addr()).collect();
        if addresses.is_empty() {
            veth::remove(netlink, &link.name)?;
            continue;
        }
        warn!(
            interface = link.name,
            ?addresses,
            "an interface to a workload has no record; its addresses stay in use"
        );
        orphans.insert(link.name.clone(), Orphan { index: link.index, addresses });
    }
    Ok(orphans)
}

/// Returns the allocator with the addresses of all records and orphans in use.
pub(super) fn allocator(records: &AttachRecords, orphans: &BTreeMap<String, Orphan>) -> Allocator {
    let mut allocator = Allocator::default();
    for (address, at) in &records.released {
        allocator.release(*address, *at);
    }
    let attached = records.attachments.values().flat_map(|(attached, _)| attached.addresses.iter());
    let orphaned = orphans.values().flat_map(|orphan| orphan.addresses.iter());
    for address in attached.chain(orphaned) {
        allocator.hold(*address);
    }
    allocator
}

/// Returns the indexes of the interfaces of complete attachments. A missing one went with its network namespace.
pub(super) fn indexes(records: &AttachRecords) -> BTreeMap<attach_socket::AttachmentKey, u32> {
    let index =
        |attached: &attach_socket::AttachedWorkload| if_nametoindex(attached.host_interface.as_str()).ok();
    let attached = records.attachments.values().map(|(attached, _)| attached);
    attached.filter_map(|attached| Some((attached.key.clone(), index(attached)?))).collect()
}
