//! Run of the connection benchmark in the guest VM, for a proxy mode that the host's kernel does not support.
//! The paths without Tidegate (direct, HAProxy, nginx) are measured there too, because results from different
//! kernels cannot be compared.

use anyhow::Result;

use super::{ConnectionSeries, Options};
use crate::{
    guest::{Guest, GuestResults},
    progress::Say,
};

/// Proxy mode measured in the guest VM.
pub(super) const MODE: &str = "ipvs";
/// Memory and timeout of the guest VM. Enough for two nodes in ipvs mode with their control servers, and for
/// the paths without Tidegate (direct, HAProxy, nginx).
const GUEST: Guest = Guest { memory: "4096M", timeout_secs: 3_600 };

/// Runs the connection benchmark in the guest VM.
///
/// # Errors
/// Returns an error if the guest or this program is not installed, or if the benchmark fails in the guest.
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
