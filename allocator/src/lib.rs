//! Memory allocator of the server programs (jemalloc), and metrics of its memory usage. All servers use the same
//! allocator, so their memory figures are comparable.
//!
//! A program selects the allocator in its main file:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;
//! ```
//!
//! Libraries do not select an allocator, so their tests run with the system allocator. [`Figures`] describes only
//! this allocator, so the values are close to zero in a program that has not selected it.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use tikv_jemalloc_ctl::{Access as _, AsName as _, epoch, stats};
pub use tikv_jemallocator::Jemalloc as Allocator;

/// The allocator, to be assigned to the `#[global_allocator]` of a program.
pub const ALLOCATOR: Allocator = Allocator;

/// Settings of jemalloc, which it reads before the first allocation.
///
/// - A background thread returns freed pages to the system after about one second. Without it, a server that
///   has applied a large state and then idles would keep that memory until the next allocation. Within the
///   second, pages are reused without cost.
/// - Four arenas, whatever the number of processors: each arena keeps its own partly used pages, and only a
///   few threads of a server allocate much.
const SETTINGS: &[u8; 78] =
    b"background_thread:true,max_background_threads:1,dirty_decay_ms:1000,narenas:4\0";

/// Exported symbol (`_rjem_malloc_conf`) from which jemalloc reads its settings.
#[allow(
    unsafe_code,
    reason = "the allocator reads its settings from a symbol of this name before any Rust code runs"
)]
// SAFETY: the allocator declares the symbol as a pointer to zero-terminated bytes. A reference to an array is
// a single pointer, and the array ends with a zero.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static SETTINGS_SYMBOL: &[u8; SETTINGS.len()] = SETTINGS;

/// Memory usage of the allocator in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Bytes allocated and not freed by the program, including rounding to size classes, excluding freed
    /// memory in per-thread caches.
    pub in_use_bytes: u64,
    /// Bytes of physical memory held by the allocator, including its metadata and freed memory not yet
    /// returned to the system.
    pub resident_bytes: u64,
}

impl Figures {
    /// Reads the current memory usage, or returns `None` if the allocator provides no statistics.
    pub fn read() -> Option<Self> {
        // The allocator updates its statistics only when the epoch is advanced.
        epoch::advance().ok()?;
        let bytes = |figure: usize| u64::try_from(figure).ok();
        let allocated = stats::allocated::read().ok()?;
        Some(Self {
            in_use_bytes: bytes(allocated.saturating_sub(kept_for_threads()?))?,
            resident_bytes: bytes(stats::resident::read().ok()?)?,
        })
    }
}

/// Returns the number of freed bytes in the per-thread caches of all arenas (arena index 4096,
/// `MALLCTL_ARENAS_ALL`), which jemalloc counts as allocated. Returns `None` if the allocator provides no
/// statistics.
fn kept_for_threads() -> Option<usize> {
    b"stats.arenas.4096.tcache_bytes\0"[..].name().read().ok()
}

/// Metrics collector that exports the memory usage of the allocator. The metrics registry prepends its common
/// prefix to the metric names.
#[derive(Debug, Clone, Copy)]
pub struct HeapCollector;

impl Collector for HeapCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(Figures { in_use_bytes, resident_bytes }) = Figures::read() else { return Ok(()) };
        for (name, help, bytes) in [
            (
                "heap_in_use_bytes",
                "Bytes of memory that the program has allocated and not freed",
                in_use_bytes,
            ),
            (
                "heap_resident_bytes",
                "Bytes of physical memory held by the allocator, including freed memory that it retains",
                resident_bytes,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(bytes).encode(metric)?;
        }
        Ok(())
    }
}
