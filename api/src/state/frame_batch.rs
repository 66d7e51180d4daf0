//! Batches of feed lines (lines of the state streams to agents). Each batch is collected and compressed once,
//! and sent as the same bytes to all agents that need it.
//!
//! A compressed feed is one deflate stream (RFC 1951) whose blocks may be compressed independently: each chunk
//! refers to nothing before it and ends on a byte boundary. Therefore no feed needs its own compressor, which
//! would use a third of a mebibyte per agent and repeat the same work.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use flate2::{Compression, Crc, write::DeflateEncoder};
use model::{
    primitives::{
        quantity::{Position, Revision},
        trace_parent::TraceParent,
    },
    wire::feed::Frame,
};

use crate::{
    base::body_stream::PIECE_BYTES,
    state::{
        commit_traces::CommitTraces,
        compiled_set::{Delta, line},
        published::Published,
    },
};

/// Maximum number of cached batches. All feeds that keep up share the newest one; the others serve feeds that
/// lag behind.
const RECENT_MAX: usize = 8;
/// Limit for the reuse of a cached full state: the changes since then, which are sent after it, may have at
/// most an eighth (one divided by this value) as many objects as the full state.
const STALE_SHARE: usize = 8;

/// Feed lines that are sent together to many agents.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Number of objects and removals among the lines.
    pub(crate) objects: usize,
    /// Lines of the batch, grouped into chunks.
    pub(crate) chunks: Vec<Chunk>,
}

/// Group of feed lines of about the size of one piece of the response body, compressed once for all agents.
#[derive(Debug)]
pub(crate) struct Chunk {
    lines: Vec<Bytes>,
    length: usize,
    plain: OnceLock<Bytes>,
    packed: OnceLock<PackedLines>,
}

/// Feed lines compressed into deflate blocks that are not final and end on a byte boundary.
#[derive(Debug)]
pub(crate) struct PackedLines {
    /// Compressed lines as complete deflate blocks (RFC 1951), which can be appended to any gzip stream.
    pub(crate) bytes: Bytes,
    /// CRC-32 of the uncompressed lines, for the gzip trailer.
    pub(crate) crc: Crc,
}

impl PackedLines {
    /// Compresses feed lines at the fastest level: they are repetitive text, and all agents wait for the
    /// compression.
    pub(crate) fn of<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let mut crc = Crc::new();
        for line in lines {
            crc.update(line);
            encoder.write_all(line).expect("a vector takes everything");
        }
        encoder.flush().expect("a vector takes everything");
        Self { bytes: Bytes::from(std::mem::take(encoder.get_mut())), crc }
    }
}

impl Chunk {
    /// Creates a chunk of lines, not compressed yet.
    pub(crate) fn of(lines: Vec<Bytes>) -> Self {
        let length = lines.iter().map(Bytes::len).sum();
        Self { lines, length, plain: OnceLock::new(), packed: OnceLock::new() }
    }

    /// Returns the size of the uncompressed lines in bytes.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// Returns the uncompressed lines, concatenated on the first call.
    pub(crate) fn plain(&self) -> &Bytes {
        self.plain.get_or_init(|| match &*self.lines {
            [line] => line.clone(),
            lines => Bytes::from(lines.concat()),
        })
    }

    /// Returns the compressed lines, compressed on the first call.
    pub(crate) fn packed(&self) -> &PackedLines {
        self.packed.get_or_init(|| PackedLines::of(self.lines.iter().map(|line| &**line)))
    }
}

impl Batch {
    /// Creates a batch from the lines of objects, followed by an optional last line, and splits it into chunks.
    fn of(objects: Vec<Bytes>, last: Option<Bytes>) -> Self {
        let count = objects.len();
        let (mut chunks, mut lines, mut length) = (Vec::new(), Vec::new(), 0);
        for line in objects.into_iter().chain(last) {
            length += line.len();
            lines.push(line);
            if length >= PIECE_BYTES {
                chunks.push(Chunk::of(std::mem::take(&mut lines)));
                length = 0;
            }
        }
        if !lines.is_empty() {
            chunks.push(Chunk::of(lines));
        }
        Self { objects: count, chunks }
    }
}

/// Frames that an agent understands, besides those that all agents understand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FrameSelection {
    /// True if the agent understands the frames of WorkloadNetworks and blocks.
    pub(crate) workload_networks: bool,
    /// True if the agent understands the frames of network policy.
    pub(crate) network_policy: bool,
}

impl FrameSelection {
    /// All selections, each at its index.
    const ALL: [Self; 4] =
        [Self::new(false, false), Self::new(false, true), Self::new(true, false), Self::new(true, true)];

    const fn new(workload_networks: bool, network_policy: bool) -> Self {
        Self { workload_networks, network_policy }
    }

    fn index(self) -> usize {
        usize::from(self.workload_networks) * 2 + usize::from(self.network_policy)
    }
}

/// Cache of the full state and of recent deltas as batches, shared by all feeds. Agents of each [`FrameSelection`] have a
/// cache of their own.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    caches: [Mutex<BatchCache>; FrameSelection::ALL.len()],
    traces: Arc<CommitTraces>,
}

#[derive(Debug, Default)]
struct BatchCache {
    recent: VecDeque<Between>,
    whole: Option<(Position, Arc<Batch>)>,
}

#[derive(Debug)]
struct Between {
    from: Revision,
    to: Position,
    batch: Arc<Batch>,
}

impl Batches {
    /// Creates an empty cache. The deltas pass on the trace contexts of `traces`.
    pub(crate) fn new(traces: Arc<CommitTraces>) -> Self {
        Self { traces, ..Self::default() }
    }

    fn lock(&self, selection: FrameSelection) -> MutexGuard<'_, BatchCache> {
        // Cache entries are replaced as a whole.
        self.caches[selection.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns one batch with the changes after revision `from`, up to the published state, or `None` if
    /// these changes are no longer in memory. `from` must belong to the epoch of the published state.
    pub(crate) fn since(
        &self,
        from: Revision,
        published: &Published,
        selection: FrameSelection,
    ) -> Option<Arc<Batch>> {
        self.lock(selection).since(from, published, selection, &self.traces)
    }

    /// Returns the full state as two batches to send in order: a complete state, which may be slightly older
    /// than the published state, and the changes since then.
    pub(crate) fn whole(&self, published: &Published, selection: FrameSelection) -> [Arc<Batch>; 2] {
        let mut kept = self.lock(selection);
        let position = published.position();
        let known = kept.whole.clone().filter(|(at, _)| at.epoch == position.epoch && *at <= position);
        if let Some((at, whole)) = known
            && let Some(rest) = kept.since(at.revision, published, selection, &self.traces)
            && rest.objects <= whole.objects / STALE_SHARE
        {
            return [whole, rest];
        }
        let whole = Arc::new(Batch::of(everything(published, selection), None));
        kept.whole = Some((position, Arc::clone(&whole)));
        [whole, Arc::new(Batch::of(Vec::new(), Some(synced(position, selection, Vec::new()))))]
    }

    /// Drops the cached batches to release memory. Feeds that are sending a batch keep it until it is sent.
    pub(crate) fn forget(&self) {
        for selection in FrameSelection::ALL {
            *self.lock(selection) = BatchCache::default();
        }
    }
}

impl BatchCache {
    fn since(
        &mut self,
        from: Revision,
        published: &Published,
        selection: FrameSelection,
        traces: &CommitTraces,
    ) -> Option<Arc<Batch>> {
        let to = published.position();
        if let Some(known) = self.recent.iter().find(|one| one.from == from && one.to == to) {
            return Some(Arc::clone(&known.batch));
        }
        let last = synced(to, selection, traces.between(from, to));
        let batch = Arc::new(Batch::of(deltas(published, from, selection)?, Some(last)));
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Between { from, to, batch: Arc::clone(&batch) });
        Some(batch)
    }
}

fn synced(position: Position, selection: FrameSelection, traces: Vec<TraceParent>) -> Bytes {
    let FrameSelection { workload_networks, network_policy } = selection;
    line(&Frame::Synced { position, traces, workload_networks, network_policy })
}

/// Returns the feed lines of the changes after a revision, or `None` if they are no longer in memory.
fn deltas(published: &Published, position: Revision, selection: FrameSelection) -> Option<Vec<Bytes>> {
    let services = published.compiled.since(position)?.map(Delta::line);
    let addresses = published.addresses.since(position)?.map(Delta::line);
    let networks = published.workload_networks.since(position)?.map(Delta::line);
    let blocks = published.blocks.since(position)?.map(Delta::line);
    let networks = networks.chain(blocks).filter(|_| selection.workload_networks);
    let sets = published.policy_sets.since(position)?.map(Delta::line);
    let workloads = published.policy_workloads.since(position)?.map(Delta::line);
    let policy = sets.chain(workloads).filter(|_| selection.network_policy);
    Some(services.chain(addresses).chain(networks).chain(policy).collect())
}

/// Returns the feed lines of the complete published state.
fn everything(published: &Published, selection: FrameSelection) -> Vec<Bytes> {
    let services = published.compiled.after(None).map(|(_, entry)| entry.line());
    let addresses = published.addresses.after(None).map(|(_, entry)| entry.line());
    let networks = published.workload_networks.after(None).map(|(_, entry)| entry.line());
    let blocks = published.blocks.after(None).map(|(_, entry)| entry.line());
    let networks = networks.chain(blocks).filter(|_| selection.workload_networks);
    let sets = published.policy_sets.after(None).map(|(_, entry)| entry.line());
    let workloads = published.policy_workloads.after(None).map(|(_, entry)| entry.line());
    let policy = sets.chain(workloads).filter(|_| selection.network_policy);
    services.chain(addresses).chain(networks).chain(policy).collect()
}
