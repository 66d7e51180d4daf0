//! Journal format: a header, then the frames of a feed (stream of state from the control server), with a
//! checksum after every batch of changes. Does no I/O.
//!
//! ```text
//! {"journal":1,"node":"n1"}                 owner of the state
//! {"type":"start","mode":"full",…}          a recording of a feed: first the full state …
//! {"type":"service",…}
//! {"type":"synced","position":"7-42"}
//! {"check":"9ae0daaf"}                      CRC-32 of all lines since the last check
//! {"type":"removed",…}                      … then only changes
//! {"type":"synced","position":"7-43"}
//! {"check":"0e5c8f1a"}
//! ```
//! Lines without a following check are ignored, so an incomplete tail costs at most the batch that was being
//! written.

use std::{
    io::{self, Write},
    sync::Arc,
};

use model::{
    primitives::{name::Name, quantity::Position},
    wire::feed::{Frame, StartMode},
};
use serde::{Deserialize, Serialize};

use crate::{
    feed::machine::{Assembler, Batch},
    state::{ChangedObjects, State},
};

/// Version of the journal format. Files of other versions are moved aside.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    journal: u32,
    node: Name,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChecksumLine {
    check: String,
}

/// Writes the full state as a journal, line by line, and returns its size in bytes.
///
/// # Errors
/// Returns the I/O error of `out`.
pub fn write_state(out: &mut impl Write, node: &Name, state: &State, position: Position) -> io::Result<u64> {
    let mut lines = Vec::new();
    let mut crc = crc32fast::Hasher::new();
    let mut bytes = 0;
    let mut flush = |lines: &mut Vec<u8>| {
        crc.update(lines);
        bytes += lines.len() as u64;
        let outcome = out.write_all(lines);
        lines.clear();
        outcome
    };
    push_line(&mut lines, &Header { journal: FORMAT, node: node.clone() });
    push_line(&mut lines, &Frame::Start { mode: StartMode::Full, position });
    push_line(&mut lines, &Frame::Network(state.network().clone()));
    push_line(&mut lines, &Frame::Node(state.node().clone()));
    for service in state.services().values() {
        flush(&mut lines)?;
        push_line(&mut lines, &Frame::Service { service: Arc::clone(service) });
    }
    for address in state.addresses().values() {
        flush(&mut lines)?;
        push_line(&mut lines, &Frame::Address { address: Arc::clone(address) });
    }
    for network in state.workload_networks().values() {
        push_line(&mut lines, &Frame::WorkloadNetwork { network: Arc::clone(network) });
    }
    for block in state.blocks().values() {
        flush(&mut lines)?;
        push_line(&mut lines, &Frame::Block { block: Arc::clone(block) });
    }
    for set in state.policy().sets().values() {
        flush(&mut lines)?;
        push_line(&mut lines, &Frame::PolicySet { set: Arc::clone(set) });
    }
    for workload in state.policy().workloads().values() {
        flush(&mut lines)?;
        push_line(&mut lines, &Frame::PolicyWorkload { workload: Arc::clone(workload) });
    }
    push_line(&mut lines, &synced(state, position));
    flush(&mut lines)?;
    push_line(&mut lines, &ChecksumLine { check: format!("{:08x}", crc.finalize()) });
    out.write_all(&lines)?;
    Ok(bytes + lines.len() as u64)
}

/// Encodes the changes of a batch for appending to the journal. The size is proportional to the number of
/// changes.
#[must_use]
pub fn encode_change(state: &State, touched: &ChangedObjects, position: Position) -> Vec<u8> {
    let mut bytes = Vec::new();
    if touched.network {
        push_line(&mut bytes, &Frame::Network(state.network().clone()));
    }
    if touched.node || touched.bgp || touched.interfaces {
        push_line(&mut bytes, &Frame::Node(state.node().clone()));
    }
    for key in &touched.services {
        let frame = match state.services().get(key) {
            Some(service) => Frame::Service { service: Arc::clone(service) },
            None => Frame::Removed { service: key.clone(), revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    for address in &touched.addresses {
        let frame = match state.addresses().get(address) {
            Some(state) => Frame::Address { address: Arc::clone(state) },
            None => Frame::AddressRemoved { address: *address, revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    for name in &touched.workload_networks {
        let frame = match state.workload_networks().get(name) {
            Some(network) => Frame::WorkloadNetwork { network: Arc::clone(network) },
            None => Frame::WorkloadNetworkRemoved { network: name.clone(), revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    for cidr in &touched.blocks {
        let frame = match state.blocks().get(cidr) {
            Some(block) => Frame::Block { block: Arc::clone(block) },
            None => Frame::BlockRemoved { cidr: *cidr, revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    for id in &touched.policy_sets {
        let frame = match state.policy().sets().get(id) {
            Some(set) => Frame::PolicySet { set: Arc::clone(set) },
            None => Frame::PolicySetRemoved { set: *id, revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    for key in &touched.policy_workloads {
        let frame = match state.policy().workloads().get(key) {
            Some(workload) => Frame::PolicyWorkload { workload: Arc::clone(workload) },
            None => Frame::PolicyWorkloadRemoved { workload: key.clone(), revision: position.revision },
        };
        push_line(&mut bytes, &frame);
    }
    push_line(&mut bytes, &synced(state, position));
    let check = ChecksumLine { check: format!("{:08x}", crc32fast::hash(&bytes)) };
    push_line(&mut bytes, &check);
    bytes
}

fn synced(state: &State, position: Position) -> Frame {
    Frame::Synced {
        position,
        traces: Vec::new(),
        workload_networks: state.has_workload_networks(),
        network_policy: state.has_network_policy(),
    }
}

fn push_line(bytes: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *bytes, line)
        .expect("published types serialize to JSON, and writes to memory succeed");
    bytes.push(b'\n');
}

/// Reason why a journal file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The first line is not a header of this format version.
    #[error("its first line is not the header of a journal of format {FORMAT}")]
    Header,
    /// The journal contains the state of another node, which is named here.
    #[error("it belongs to node `{0}`")]
    OtherNode(Name),
    /// The batches in the file are not consecutive.
    #[error("its batches do not follow each other")]
    OutOfOrder,
    /// A line before the last batch is damaged, so that the cause is not an interrupted write.
    #[error("line {line} is damaged, and checked lines follow")]
    Damaged {
        /// Line number, starting at 1.
        line: usize,
    },
}

/// Reader of a journal, line by line.
#[derive(Debug)]
pub struct JournalReader {
    node: Name,
    assembler: Assembler,
    ready: Option<Batch>,
    crc: crc32fast::Hasher,
    lines: usize,
    damaged_at: Option<usize>,
}

impl JournalReader {
    /// Creates a reader for the journal of the node with this name.
    #[must_use]
    pub fn new(node: Name) -> Self {
        Self {
            node,
            assembler: Assembler::new(None),
            ready: None,
            crc: crc32fast::Hasher::new(),
            lines: 0,
            damaged_at: None,
        }
    }

    /// Reads one line including its line feed. Returns a batch if the line is the checksum that completes
    /// the batch, otherwise `None`.
    ///
    /// No batch is returned after a damaged line. A checksum after the damaged line is an error, because it
    /// shows that the damage was not caused by an interrupted write.
    ///
    /// # Errors
    /// Returns [`Unreadable`] if the whole file must not be used.
    pub fn push(&mut self, line: &[u8]) -> Result<Option<Batch>, Unreadable> {
        self.lines += 1;
        if self.lines == 1 {
            let header: Header = serde_json::from_slice(line).map_err(|_| Unreadable::Header)?;
            if header.journal != FORMAT {
                return Err(Unreadable::Header);
            }
            if header.node != self.node {
                return Err(Unreadable::OtherNode(header.node));
            }
            self.crc.update(line);
            return Ok(None);
        }
        if let Some(damaged) = self.damaged_at {
            let is_check = serde_json::from_slice::<ChecksumLine>(line).is_ok();
            return if is_check { Err(Unreadable::Damaged { line: damaged }) } else { Ok(None) };
        }
        if line.starts_with(b"{\"check\"") {
            return Ok(self.check(line));
        }
        self.crc.update(line);
        let frame = serde_json::from_slice::<Frame>(line).ok();
        match frame.and_then(|frame| self.assembler.push(frame).ok()) {
            Some(Some(batch)) if self.ready.is_none() => self.ready = Some(batch),
            Some(None) if self.ready.is_none() => {}
            // A frame that cannot be parsed, is out of order, or is in place of a check.
            Some(_) | None => self.damaged_at = Some(self.lines),
        }
        Ok(None)
    }

    fn check(&mut self, line: &[u8]) -> Option<Batch> {
        let found = serde_json::from_slice::<ChecksumLine>(line).ok().map(|check| check.check);
        let expected = format!("{:08x}", std::mem::take(&mut self.crc).finalize());
        let batch = self.ready.take().filter(|_| found == Some(expected));
        if batch.is_none() {
            self.damaged_at = Some(self.lines);
        }
        batch
    }
}
