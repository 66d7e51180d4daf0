//! Tunnel device in the kernel, and kernel parameters of interfaces.

use std::{fs, io, path::Path};

use kernel::netlink::socket::Netlink;

use super::{TUNNEL, keeper::acknowledge, parse::FoundLink, render};

/// Kernel parameters of the tunnel device. Packets that another node itself sends arrive encapsulated with the address of
/// that node, to which the route does not lead through the tunnel; therefore the reverse path is checked loosely.
const PARAMETERS: [(&str, &str); 4] = [
    ("ipv4/conf/tg-vx/forwarding", "1"),
    ("ipv4/conf/tg-vx/rp_filter", "2"),
    ("ipv6/conf/tg-vx/accept_ra", "0"),
    // No link-local address: the tunnel has no neighbors.
    ("ipv6/conf/tg-vx/addr_gen_mode", "1"),
];

/// Creates, repairs or removes the tunnel device. Returns its index, if it exists afterwards, and the number of changes.
///
/// # Errors
/// Returns an error if the kernel rejects a change.
pub fn follow(
    netlink: &mut Netlink,
    found: Option<&FoundLink>,
    mtu: Option<u32>,
) -> io::Result<(Option<u32>, u64)> {
    let mut changes = 0;
    let usable = found.filter(|link| link.is_tunnel && mtu.is_some());
    if let (Some(link), None) = (found, usable) {
        acknowledge(netlink, &[render::remove_link(link.index)])?;
        changes += 1;
    }
    let Some(mtu) = mtu else { return Ok((None, changes)) };
    let index = match usable {
        Some(link) => link.index,
        None => {
            acknowledge(netlink, &[render::add_tunnel(mtu)])?;
            changes += 1;
            nix::net::if_::if_nametoindex(TUNNEL)?
        }
    };
    for (parameter, value) in PARAMETERS {
        changes += u64::from(set_parameter(parameter, value)?);
    }
    if usable.is_none_or(|link| !link.is_up || link.mtu != mtu) {
        acknowledge(netlink, &[render::set_up(index, mtu)])?;
        changes += 1;
    }
    Ok((Some(index), changes))
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
