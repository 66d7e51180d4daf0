//! Run of this benchmark on the second kernel, for a mode that this kernel does not support, together with
//! the same peers.

use anyhow::Result;

use super::{ConnectionSeries, Options};
use crate::{
    guest::{Guest, GuestResults},
    progress::Say,
};

/// The mode measured there.
pub(super) const MODE: &str = "ipvs";
/// Guest size for two nodes in that mode with their control servers, and the peers.
const GUEST: Guest = Guest { memory: "4096M", timeout_secs: 3_600 };

/// Runs this benchmark on the second kernel.
///
/// # Errors
/// Returns an error if the guest or this program is not installed, or the benchmark fails there.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<GuestResults<ConnectionSeries>> {
    let sizes: Vec<_> = options.sizes.iter().map(u32::to_string).collect();
    let arguments = [
        format!("--modes={MODE}"),
        format!("--rounds={}", options.rounds),
        format!("--slice-ms={}", options.slice.as_millis()),
        format!("--sizes={}", sizes.join(",")),
        format!("--clients={}", options.clients),
    ];
    let is_progress = |line: &str| line.contains("connections/s,") || line.starts_with(MODE);
    GUEST.measure("connections", &arguments, &is_progress, say)
}
