//! What many agents lack alike: gathered once, packed once, and the same bytes for all of them.
//!
//! A feed that is packed is one stream of deflate (RFC 1951), whose blocks may come from different hands: each chunk is packed
//! by itself, refers to nothing before it, and ends at a byte. So no feed needs a packer of its own, which would hold a third of
//! a mebibyte for each agent and do the same work for each.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use flate2::{Compression, Crc, write::DeflateEncoder};
use model::{
    primitives::quantity::{Position, Revision},
    wire::feed::Frame,
};

use crate::{
    base::body_stream::PIECE_BYTES,
    state::{
        compiled_set::{Delta, line},
        published::Published,
    },
};

/// Batches that are kept for feeds that are a little later than others. One is made for each beat, and feeds that keep up ask for
/// the newest only.
const RECENT_MAX: usize = 8;
/// A kept complete state is sent with what has changed since, as long as that is at most one part in so many of it.
const STALE_SHARE: usize = 8;

/// Lines that are sent together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// How many of them are objects or removals.
    pub(crate) objects: usize,
    /// The lines.
    pub(crate) chunks: Vec<Chunk>,
}

/// Some lines, about as many as go into one piece of a stream.
#[derive(Debug)]
pub(crate) struct Chunk {
    lines: Vec<Bytes>,
    length: usize,
    plain: OnceLock<Bytes>,
    packed: OnceLock<Packed>,
}

/// Lines as blocks of deflate that end at a byte and are not the last ones.
#[derive(Debug)]
pub(crate) struct Packed {
    /// The blocks.
    pub(crate) bytes: Bytes,
    /// The checksum of what is in them.
    pub(crate) crc: Crc,
}

impl Packed {
    /// Packs bytes. Level 1: a feed is repetitive text, and the first agent of many waits for it.
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
    /// Lines.
    pub(crate) fn of(lines: Vec<Bytes>) -> Self {
        let length = lines.iter().map(Bytes::len).sum();
        Self { lines, length, plain: OnceLock::new(), packed: OnceLock::new() }
    }

    /// Bytes before they are packed.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// The lines as they are.
    pub(crate) fn plain(&self) -> &Bytes {
        self.plain.get_or_init(|| match &*self.lines {
            [line] => line.clone(),
            lines => Bytes::from(lines.concat()),
        })
    }

    /// The lines packed.
    pub(crate) fn packed(&self) -> &Packed {
        self.packed.get_or_init(|| Packed::of(self.lines.iter().map(|line| &**line)))
    }
}

impl Batch {
    /// Objects, and a line behind them if there is one.
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

/// The batches of this moment.
#[derive(Debug, Default)]
pub(crate) struct Batches(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
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
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // What is kept is put in place whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a position of the same epoch lacks of a state, with the `synced` that ends it; `None` when that is no longer known.
    pub(crate) fn since(&self, from: Revision, published: &Published) -> Option<Arc<Batch>> {
        self.lock().since(from, published)
    }

    /// A complete state that is not much older than the published one, and what it lacks of that.
    pub(crate) fn whole(&self, published: &Published) -> [Arc<Batch>; 2] {
        let mut kept = self.lock();
        let position = published.position();
        let known = kept.whole.clone().filter(|(at, _)| at.epoch == position.epoch && *at <= position);
        if let Some((at, whole)) = known
            && let Some(rest) = kept.since(at.revision, published)
            && rest.objects <= whole.objects / STALE_SHARE
        {
            return [whole, rest];
        }
        let whole = Arc::new(Batch::of(everything(published), None));
        kept.whole = Some((position, Arc::clone(&whole)));
        [whole, Arc::new(Batch::of(Vec::new(), Some(synced(position))))]
    }

    /// Gives the memory back; what is asked for next is made anew. Feeds that are being sent something keep it until it is sent.
    pub(crate) fn forget(&self) {
        *self.lock() = Kept::default();
    }
}

impl Kept {
    fn since(&mut self, from: Revision, published: &Published) -> Option<Arc<Batch>> {
        let to = published.position();
        if let Some(known) = self.recent.iter().find(|one| one.from == from && one.to == to) {
            return Some(Arc::clone(&known.batch));
        }
        let batch = Arc::new(Batch::of(deltas(published, from)?, Some(synced(to))));
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Between { from, to, batch: Arc::clone(&batch) });
        Some(batch)
    }
}

fn synced(position: Position) -> Bytes {
    line(&Frame::Synced { position })
}

/// The lines of what a position lacks; `None` when that is no longer known.
fn deltas(published: &Published, position: Revision) -> Option<Vec<Bytes>> {
    let services = published.compiled.since(position)?.map(Delta::line);
    let addresses = published.addresses.since(position)?.map(Delta::line);
    Some(services.chain(addresses).collect())
}

/// The lines of everything.
fn everything(published: &Published) -> Vec<Bytes> {
    let services = published.compiled.after(None).map(|(_, entry)| entry.line());
    let addresses = published.addresses.after(None).map(|(_, entry)| entry.line());
    services.chain(addresses).collect()
}
