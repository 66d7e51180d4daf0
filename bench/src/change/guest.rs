//! Run of the change benchmark in the guest VM (`lab/guest.sh`), for counters only, because times measured in the
//! VM are not meaningful.

use anyhow::Result;

use super::{ChangePoint, Options};
use crate::{
    guest::{Guest, GuestResults},
    progress::Say,
};

/// Proxy mode measured in the guest VM.
pub(super) const MODE: &str = "ipvs";
/// Maximum number of rounds in the guest VM, which is slow; counters are the same in every round.
const ROUNDS_MAX: u16 = 3;
const GROUPS_MAX: u16 = 3;
const CHANGES_MAX: u16 = 40;
/// Maximum number of endpoints per Service in the guest VM, where programming 100,000 endpoints takes minutes
/// and 500,000 is not feasible.
const ENDPOINTS_MAX: u8 = 2;
/// Guest memory, sufficient for the control server, the agent and the kernel with the most Services.
const MEMORY: &str = "6144M";
/// Timeout of the guest in seconds.
const TIMEOUT_SECS: u32 = 3_000;

/// Runs the change benchmark in the guest VM.
///
/// # Errors
/// Returns an error if the guest or this program is not installed, or if the benchmark fails in the guest.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<GuestResults<ChangePoint>> {
    let sizes: Vec<_> = options.sizes.iter().map(u32::to_string).collect();
    let arguments = [
        "--modes".to_owned(),
        MODE.to_owned(),
        format!("--rounds={}", options.rounds.min(ROUNDS_MAX)),
        format!("--groups={}", options.groups.min(GROUPS_MAX)),
        format!("--changes={}", options.changes.min(CHANGES_MAX)),
        format!("--sizes={}", sizes.join(",")),
        format!("--endpoints={}", options.endpoints.min(ENDPOINTS_MAX)),
    ];
    let guest = Guest { memory: MEMORY, timeout_secs: TIMEOUT_SECS };
    let is_progress = |line: &str| line.starts_with(MODE) || line.starts_with("  group");
    guest.measure("change", &arguments, &is_progress, say)
}
