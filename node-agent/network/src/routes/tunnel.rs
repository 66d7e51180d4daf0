//! Tunnel devices in the kernel, and kernel parameters of interfaces.

use std::{fs, io, path::Path};

use kernel::netlink::socket::Netlink;
use nix::errno::Errno;

use super::{keeper::acknowledge, parse::FoundLink, render};
use crate::desired::TunnelKind;

/// Kernel parameters of a tunnel device: parts of the path before and after its name, and value. Packets that another node
/// itself sends arrive encapsulated with the address of that node, to which the route does not lead through the tunnel, and so
/// do packets of a node that still uses the former tunnel. The loose check of the reverse path drops them too, because the
/// device has no address (`__fib_validate_source` in the kernel); therefore the reverse path is not checked.
const PARAMETERS: [(&str, &str, &str); 4] = [
    ("ipv4/conf", "forwarding", "1"),
    ("ipv4/conf", "rp_filter", "0"),
    ("ipv6/conf", "accept_ra", "0"),
    // No link-local address: the tunnel has no neighbors.
    ("ipv6/conf", "addr_gen_mode", "1"),
];

/// Tunnel device that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTunnel {
    /// Index of the device.
    pub index: u32,
    /// True if the device was created by this call.
    pub is_created: bool,
    /// Number of changes in the kernel.
    pub changes: u64,
}

/// Creates or repairs a tunnel device. A link with its name and other properties is replaced.
///
/// # Errors
/// Returns an error if the kernel rejects a change.
pub fn keep(
    netlink: &mut Netlink,
    kind: TunnelKind,
    found: Option<&FoundLink>,
    mtu: u32,
) -> io::Result<KeptTunnel> {
    let mut changes = 0;
    let usable = found.filter(|link| link.tunnel == Some(kind));
    if let (Some(link), None) = (found, usable) {
        remove(netlink, link)?;
        changes += 1;
    }
    let index = match usable {
        Some(link) => link.index,
        None => {
            acknowledge(netlink, &[render::add_tunnel(kind, mtu)])?;
            changes += 1;
            nix::net::if_::if_nametoindex(kind.device())?
        }
    };
    for (directory, parameter, value) in PARAMETERS {
        let path = format!("{directory}/{}/{parameter}", kind.device());
        changes += u64::from(set_parameter(&path, value)?);
    }
    if usable.is_none_or(|link| !link.is_up || link.mtu != mtu) {
        acknowledge(netlink, &[render::set_up(index, mtu)])?;
        changes += 1;
    }
    Ok(KeptTunnel { index, is_created: usable.is_none(), changes })
}

/// Removes a tunnel device, and with it its routes.
///
/// # Errors
/// Returns an error if the kernel rejects the removal.
pub fn remove(netlink: &mut Netlink, found: &FoundLink) -> io::Result<()> {
    acknowledge(netlink, &[render::remove_link(found.index)])
}

/// Returns the text of an error of a tunnel device, with its remedy if it is known. The attempt to create the device shows
/// if the kernel has the tunnel.
#[must_use]
pub fn failure(kind: TunnelKind, error: &io::Error) -> String {
    let device = kind.device();
    if error.raw_os_error() != Some(Errno::EOPNOTSUPP as i32) {
        return format!("the tunnel device {device} cannot be used: {error}");
    }
    let (name, module, other) = match kind {
        TunnelKind::Vxlan => ("VXLAN", "vxlan", "Ipip"),
        TunnelKind::Ipip => ("IPIP", "ipip", "Vxlan"),
    };
    format!(
        "the kernel of this node has no {name} tunnels for the device {device}. Run `modprobe {module}`, install the package with \
         the module `{module}`, or choose `encapsulation: {other}` for the WorkloadNetwork"
    )
}

/// Sets a kernel parameter of the network namespace of the calling thread, by its path below `/proc/sys/net`. Returns true
/// if the value has changed. A parameter of a family that the machine has disabled is skipped.
///
/// # Errors
/// Returns an error if the parameter cannot be read or written.
pub fn set_parameter(parameter: &str, value: &str) -> io::Result<bool> {
    let path = Path::new("/proc/sys/net").join(parameter);
    let current = match fs::read_to_string(&path) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if current.trim() == value {
        return Ok(false);
    }
    fs::write(&path, value)?;
    Ok(true)
}
