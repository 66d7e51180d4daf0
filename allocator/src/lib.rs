//! The allocator of the servers, and how many bytes it holds: one choice for both, so that their figures mean the same.
//!
//! A program chooses it in its main file:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: allocator::Allocator = allocator::ALLOCATOR;
//! ```
//!
//! Libraries never do: their tests run on the allocator of the system. [`Figures`] says what *this* allocator holds, so that it is next to
//! nothing in a program that has not chosen it.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use tikv_jemalloc_ctl::{Access as _, AsName as _, epoch, stats};
pub use tikv_jemallocator::Jemalloc as Allocator;

/// The value that a program's `#[global_allocator]` is set to.
pub const ALLOCATOR: Allocator = Allocator;

/// How the allocator behaves: settings of jemalloc, in its words, read before the first allocation.
///
/// - Freed pages go back to the system after about a second, by a thread of its own: a server that has taken a large state and then
///   waits would otherwise keep what that took until somebody allocates again. Within the second they are used anew for nothing.
/// - Four arenas, whatever the number of processors: each keeps partly used pages of its own, and only a few threads of a server
///   allocate much.
const SETTINGS: &[u8; 78] =
    b"background_thread:true,max_background_threads:1,dirty_decay_ms:1000,narenas:4\0";

/// The name by which the allocator looks for its settings.
#[allow(
    unsafe_code,
    reason = "the allocator reads its settings before any code of ours runs, from a symbol of this name"
)]
// SAFETY: the allocator declares the symbol as a pointer to bytes that end with a zero. A reference to an array is one pointer, and the bytes end so.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static SETTINGS_SYMBOL: &[u8; SETTINGS.len()] = SETTINGS;

/// What the allocator holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that the program has asked for and not given back, with what sizes are rounded up by. What threads have given back, and the
    /// allocator keeps at hand for each of them, is not among them.
    pub in_use_bytes: u64,
    /// Bytes of memory that the allocator keeps from the system, with its own records and what is free and not yet given back.
    pub resident_bytes: u64,
}

impl Figures {
    /// Reads them; nothing when the allocator does not say.
    pub fn read() -> Option<Self> {
        // The figures stand still until the allocator is told to count again.
        epoch::advance().ok()?;
        let bytes = |figure: usize| u64::try_from(figure).ok();
        let allocated = stats::allocated::read().ok()?;
        Some(Self {
            in_use_bytes: bytes(allocated.saturating_sub(kept_for_threads()?))?,
            resident_bytes: bytes(stats::resident::read().ok()?)?,
        })
    }
}

/// Bytes that the allocator keeps at hand for each thread: it counts them as allocated. 4096 stands for all arenas
/// (`MALLCTL_ARENAS_ALL`).
fn kept_for_threads() -> Option<usize> {
    b"stats.arenas.4096.tcache_bytes\0"[..].name().read().ok()
}

/// Shows the figures of the moment as metrics, under the prefix of the registry.
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
                "Bytes of memory that the allocator has from the system, freed ones that it keeps included",
                resident_bytes,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(bytes).encode(metric)?;
        }
        Ok(())
    }
}
