//! Removal of everything that the workload network has put into the kernel.

use std::{fs, io, path::Path};

use kernel::netlink::socket::{Netlink, Protocol};

use crate::{
    attach::{
        declared::{file, link, settings},
        names, veth,
    },
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

/// Restores the settings of the interfaces that Workloads declare in the network namespace of the calling thread, as they are
/// saved in a state directory. Returns the number of interfaces.
///
/// # Errors
/// Returns an error if the saved settings or the kernel cannot be read, or the kernel rejects a change.
pub fn restore_interfaces(state_dir: &Path) -> io::Result<u64> {
    let saved = file::links(state_dir, &boot()?)?;
    if saved.is_empty() {
        return Ok(0);
    }
    let mut netlink = Netlink::open(Protocol::Route)?;
    let links = link::observe(&mut netlink)?;
    let mut restored = 0;
    for record in saved.values() {
        if let Some(present) = links.values().find(|link| link.index == record.index) {
            settings::undo(&mut netlink, &present.name, record)?;
            restored += 1;
        }
    }
    Ok(restored)
}

/// Returns the identifier of the running boot of the machine.
///
/// # Errors
/// Returns an error if `/proc` is not mounted.
pub fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
