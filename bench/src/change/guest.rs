//! The same benchmark on the second kernel, for what is counted there: its times mean little.

use anyhow::Result;

use super::{Options, Point};
use crate::{
    guest::{Guest, Written},
    progress::Say,
};

/// The mode that is measured there.
pub(super) const MODE: &str = "ipvs";
/// What is counted is the same each time, and everything is slow there.
const ROUNDS_MAX: u16 = 3;
const GROUPS_MAX: u16 = 3;
const CHANGES_MAX: u16 = 40;
/// Endpoints of each Service: a hundred thousand of them are programmed in minutes, half a million are not.
const ENDPOINTS_MAX: u8 = 2;
/// Memory of the guest, for the control server, the agent and the kernel with the most Services.
const MEMORY: &str = "6144M";
/// When the guest is ended, in seconds.
const TIMEOUT_SECS: u32 = 3_000;

/// Runs this benchmark there.
///
/// # Errors
/// The guest or this program is not installed, or the benchmark fails there.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<Written<Point>> {
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
