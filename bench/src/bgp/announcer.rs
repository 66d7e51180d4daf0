//! Who announces.

use std::{fs, net::Ipv4Addr};

use anyhow::{Context, Result};

use super::routers::Routers;

/// The AS of the announcer.
pub(super) const ASN: u32 = 64_512;
/// The hold time of all sessions, in seconds: the shortest that all of them take.
pub(super) const HOLD_TIME: u16 = 3;

/// The numbers of prefixes begin here.
const FIRST: u32 = u32::from_be_bytes([10, 200, 0, 0]);

/// A contestant with routers of its own.
pub(super) trait Announcer {
    /// What tables call it.
    fn name(&self) -> &'static str;
    /// How it is set, in words.
    fn settings(&self) -> String;
    /// The routers that it speaks with.
    fn routers(&self) -> &Routers;
    /// Writes that an address is to be announced; returns when the write was taken.
    fn announce(&mut self, number: u32) -> Result<()>;
    /// Writes that it is not to be announced any longer.
    fn withdraw(&mut self, number: u32) -> Result<()>;
    /// Waits until sessions, and what watches them, are up.
    fn wait_settled(&mut self) -> Result<()>;
    /// Takes the announcing machine off the network, or puts it back.
    fn plug(&mut self, in_place: bool) -> Result<()>;
    /// Closes the sessions and has this many prefixes ready to be announced.
    fn prepare(&mut self, count: u32) -> Result<()>;
    /// Opens the sessions again.
    fn open(&mut self) -> Result<()>;
    /// The resident memory of the process that announces, in KiB.
    fn memory_kib(&self) -> Result<u64>;
}

/// The address with a number.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST + number)
}

/// The same, as `ip route` shows a route to it.
pub(super) fn prefix(number: u32) -> String {
    address(number).to_string()
}

/// The resident memory of a process, in KiB.
pub(super) fn resident_kib(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().context("VmRSS is no number")
}
