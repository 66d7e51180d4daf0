//! Removal of everything that the workload network has put into the kernel.

use std::io;

use kernel::netlink::socket::{Netlink, Protocol};

use crate::{
    attach::{names, veth},
    filter::keeper::FilterKeeper,
    routes::keeper,
};

/// Removes the interfaces to workloads, the routes, the tunnel devices and the table in the network namespace of the calling thread, and
/// returns their number.
///
/// # Errors
/// Returns an error if the kernel cannot be read, or rejects a change.
pub fn cleanup() -> io::Result<u64> {
    let mut removed = keeper::cleanup()?;
    let mut netlink = Netlink::open(Protocol::Route)?;
    for link in keeper::links(&mut netlink)?.values().filter(|link| names::is_host_interface(&link.name)) {
        removed += u64::from(veth::remove(&mut netlink, &link.name)?);
    }
    removed += FilterKeeper::default().follow(None)?;
    Ok(removed)
}
