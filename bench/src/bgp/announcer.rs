//! Interface of the BGP implementations that the benchmark compares.

use std::{fs, net::Ipv4Addr};

use anyhow::{Context, Result};

use super::routers::Routers;

/// AS number of the implementation under test.
pub(super) const ASN: u32 = 64_512;
/// Hold time of all sessions in seconds: the shortest that all implementations accept.
pub(super) const HOLD_TIME: u16 = 3;

/// IPv4 address of prefix number 0; later prefixes follow consecutively.
const FIRST: u32 = u32::from_be_bytes([10, 200, 0, 0]);

/// BGP implementation under test on one node, with its own pair of routers.
pub(super) trait Announcer {
    /// Returns the name of the implementation in tables.
    fn name(&self) -> &'static str;
    /// Returns a description of the implementation's configuration for the results page.
    fn settings(&self) -> String;
    /// Returns the routers that have sessions with this announcer.
    fn routers(&self) -> &Routers;
    /// Requests the announcement of prefix `number`, and returns when the request is accepted.
    fn announce(&mut self, number: u32) -> Result<()>;
    /// Requests the withdrawal of prefix `number`.
    fn withdraw(&mut self, number: u32) -> Result<()>;
    /// Waits until all BGP sessions, and BFD sessions if used, are up.
    fn wait_settled(&mut self) -> Result<()>;
    /// Connects the announcing node to the network if `in_place` is true; otherwise disconnects it.
    fn plug(&mut self, in_place: bool) -> Result<()>;
    /// Closes the sessions and prepares this number of prefixes for announcement.
    fn prepare(&mut self, count: u32) -> Result<()>;
    /// Opens the BGP sessions again after they were closed.
    fn open(&mut self) -> Result<()>;
    /// Returns the resident memory of the announcing process in KiB.
    fn memory_kib(&self) -> Result<u64>;
}

/// Returns the address of prefix `number`.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + number)
}

/// Returns the host prefix with this number as printed by `ip route`.
pub(super) fn prefix(number: u32) -> String {
    address(number).to_string()
}

/// Returns the resident memory of a process in KiB.
pub(super) fn resident_kib(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")
}
