//! Run of this benchmark on the second kernel for its counters; times measured there mean little.

use anyhow::Result;

use super::{ChangePoint, Options};
use crate::{
    guest::{Guest, GuestResults},
    progress::Say,
};

/// The mode measured there.
pub(super) const MODE: &str = "ipvs";
/// Limits for the slow guest: counters are the same in every run.
const ROUNDS_MAX: u16 = 3;
const GROUPS_MAX: u16 = 3;
const CHANGES_MAX: u16 = 40;
/// Maximum number of endpoints per Service: programming a hundred thousand takes minutes; half a million is
/// not feasible.
const ENDPOINTS_MAX: u8 = 2;
/// Guest memory, sufficient for the control server, the agent and the kernel with the most Services.
const MEMORY: &str = "6144M";
/// Timeout of the guest in seconds.
const TIMEOUT_SECS: u32 = 3_000;

/// Runs this benchmark on the second kernel.
///
/// # Errors
/// Returns an error if the guest or this program is not installed, or the benchmark fails there.
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
