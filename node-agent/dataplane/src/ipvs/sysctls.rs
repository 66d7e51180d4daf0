//! Sysctls that IPVS requires. The backend sets them when it starts and restores them in `cleanup`.
//!
//! Before a sysctl is changed, its value is stored in an ipset, as the element `id << 8 | value`. A restarted agent
//! reads the original value from the ipset, which exists as long as the sysctls: until the network namespace is
//! deleted.

use std::{fs, io, path::Path};

use model::primitives::net::IpFamily;

use super::sets::{IpsetElement, Set, SetKind, Value};

/// First kernel version in which `net.ipv4.vs.conn_reuse_mode` no longer delays connections that reuse a
/// client port, so that the sysctl may keep its value.
const REUSE_FIXED_IN: (u32, u32) = (5, 9);

/// Sysctl and the value that the backend needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sysctl {
    /// Identifier in the set of former values; must never be reassigned.
    number: u8,
    path: &'static str,
    value: u8,
}

const ALWAYS: [Sysctl; 4] = [
    // Track connections, so that they can be masqueraded.
    Sysctl { number: 1, path: "net/ipv4/vs/conntrack", value: 1 },
    // Flows to a removed destination move at once.
    Sysctl { number: 2, path: "net/ipv4/vs/expire_nodest_conn", value: 1 },
    // Session affinity does not keep clients on a draining destination.
    Sysctl { number: 3, path: "net/ipv4/vs/expire_quiescent_template", value: 1 },
    Sysctl { number: 5, path: "net/ipv4/ip_forward", value: 1 },
];
const BEFORE_REUSE_FIXED: Sysctl = Sysctl { number: 4, path: "net/ipv4/vs/conn_reuse_mode", value: 0 };
const STRICT_ARP: [Sysctl; 2] = [
    Sysctl { number: 6, path: "net/ipv4/conf/all/arp_ignore", value: 1 },
    Sysctl { number: 7, path: "net/ipv4/conf/all/arp_announce", value: 2 },
];

/// Returns the sysctls that this node needs. `strict_arp` adds those that restrict ARP replies to an
/// interface's own addresses.
pub(super) fn wanted(strict_arp: bool) -> Vec<Sysctl> {
    let mut wanted = ALWAYS.to_vec();
    if release() < REUSE_FIXED_IN {
        wanted.push(BEFORE_REUSE_FIXED);
    }
    if strict_arp {
        wanted.extend(STRICT_ARP);
    }
    wanted
}

fn all() -> impl Iterator<Item = Sysctl> {
    ALWAYS.into_iter().chain([BEFORE_REUSE_FIXED]).chain(STRICT_ARP)
}

impl Sysctl {
    /// Returns true if the sysctl has the wanted value now.
    pub(super) fn is_set(self) -> bool {
        self.read().is_ok_and(|value| value == self.value)
    }

    /// Sets the sysctl to the wanted value.
    pub(super) fn set(self) -> io::Result<()> {
        self.write(self.value)
    }

    /// Returns the element that records the current value, or `None` if an earlier value is already recorded.
    pub(super) fn former(
        self,
        remembered: impl Fn(&IpsetElement) -> bool,
    ) -> io::Result<Option<IpsetElement>> {
        let mut earlier = (0..=u8::MAX).map(|value| self.element(value));
        if earlier.any(|element| remembered(&element)) {
            return Ok(None);
        }
        self.read().map(|value| Some(self.element(value)))
    }

    /// Returns the change that [`Sysctl::set`] would make: the removed and the added line of `sysctl` output.
    pub(super) fn changed(self) -> io::Result<(String, String)> {
        Ok((self.line(self.read()?), self.line(self.value)))
    }

    /// Formats a line as `sysctl` prints it.
    fn line(self, value: u8) -> String {
        format!("{} = {value}", self.path.replace('/', "."))
    }

    const fn element(self, value: u8) -> IpsetElement {
        let set = Set { kind: SetKind::Sysctls, family: IpFamily::V4 };
        IpsetElement { set, value: Value::Port((self.number as u16) << 8 | value as u16) }
    }

    fn read(self) -> io::Result<u8> {
        let text = fs::read_to_string(Path::new("/proc/sys").join(self.path))?;
        text.trim().parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "value is not an \
                                                                                    integer from 0 to 255",
            )
        })
    }

    fn write(self, value: u8) -> io::Result<()> {
        fs::write(Path::new("/proc/sys").join(self.path), format!("{value}\n"))
    }
}

/// Restores the recorded value of a sysctl, unless another program has changed the sysctl since.
pub(super) fn restore(element: &IpsetElement) -> io::Result<()> {
    let Value::Port(number) = element.value else { return Ok(()) };
    let [setting, value] = number.to_be_bytes();
    let Some(sysctl) = all().find(|sysctl| sysctl.number == setting) else { return Ok(()) };
    if sysctl.is_set() { sysctl.write(value) } else { Ok(()) }
}

/// Returns the change that [`restore`] would make: the removed and the added line of `sysctl` output.
pub(super) fn restored(element: &IpsetElement) -> Option<(String, String)> {
    let Value::Port(number) = element.value else { return None };
    let [setting, value] = number.to_be_bytes();
    let sysctl = all().find(|sysctl| sysctl.number == setting).filter(|sysctl| sysctl.is_set())?;
    (sysctl.value != value).then(|| (sysctl.line(sysctl.value), sysctl.line(value)))
}

/// Returns true if an element records the value of a sysctl that this node no longer needs to change.
pub(super) fn is_superfluous(element: &IpsetElement, wanted: &[Sysctl]) -> bool {
    let Value::Port(number) = element.value else { return false };
    let [setting, _] = number.to_be_bytes();
    element.set.kind == SetKind::Sysctls && !wanted.iter().any(|sysctl| sysctl.number == setting)
}

fn release() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(['.', '-']).map_while(|part| part.trim().parse().ok());
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0))
}
