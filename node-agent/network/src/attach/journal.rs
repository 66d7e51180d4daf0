//! Journal of attachments on disk: one line for each step, written and synced before the next step begins.
//!
//! ```text
//! 8f3a01c2 {"journal":1,"node":"n1","boot":"…"}   owner of the attachments, and the boot of the machine
//! 1b00c4d7 {"intent":{…}}                         interfaces of the attachment may exist
//! 5e9177aa {"done":{"key":{…}}}                   … exist, and the caller may have the answer
//! 90c1f3e0 {"removing":{"key":{…},"at":…}}        … may be incomplete
//! 22d80b14 {"removed":{"key":{…}}}                … do not exist
//! ```
//! Each line begins with the CRC-32 of its JSON. An incomplete last line is ignored. A new process removes the interfaces of
//! attachments without `done` and with `removing`. After a restart of the machine, no interface exists.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
};

use attach_socket::{AttachedWorkload, AttachmentKey};
use serde::{Deserialize, Serialize};
use tracing::warn;

const FILE: &str = "attachments.journal";
/// Version of the format.
const FORMAT: u32 = 1;
/// Number of lines beyond those of the attachments after which the journal is written anew.
const SURPLUS_LINES_MAX: usize = 1024;

/// Journal that is open for appending.
pub struct AttachJournal {
    path: PathBuf,
    /// File, which the first step creates.
    file: Option<File>,
    node: String,
    boot: String,
    lines: usize,
}

/// Progress of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttachPhase {
    /// Interfaces may exist in part.
    Intended,
    /// The attachment is complete.
    Complete,
    /// Interfaces may be gone in part.
    Removing,
}

/// Attachments of a journal, and the addresses that were released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachRecords {
    /// Attachments with their progress.
    pub attachments: BTreeMap<AttachmentKey, (AttachedWorkload, AttachPhase)>,
    /// Released addresses with the time of their release in seconds since 1970, oldest first.
    pub released: Vec<(IpAddr, u64)>,
    /// Highest number of an attachment.
    pub generation: u64,
}

/// Step of an attachment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(clippy::large_enum_variant, reason = "a step exists only while it is written or read")]
pub enum AttachStep {
    /// The interfaces are about to be created.
    Intent(AttachedWorkload),
    /// The attachment is complete.
    Done {
        /// Identity of the attachment.
        key: AttachmentKey,
    },
    /// The interfaces are about to be removed.
    Removing {
        /// Identity of the attachment.
        key: AttachmentKey,
        /// Time in seconds since 1970, at which the cooldown of the addresses begins.
        at: u64,
    },
    /// The interfaces do not exist, and the addresses are released.
    Removed {
        /// Identity of the attachment.
        key: AttachmentKey,
        /// Time in seconds since 1970, at which the cooldown of the addresses begins.
        at: u64,
    },
    /// Addresses were released before the journal was written anew.
    Released {
        /// Released addresses with the time of their release in seconds since 1970, oldest first.
        addresses: Vec<(IpAddr, u64)>,
        /// Highest number of an attachment so far.
        generation: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    journal: u32,
    node: String,
    boot: String,
}

impl AttachJournal {
    /// Opens the journal in the state directory and returns its records. The first step creates the file. `boot` identifies
    /// the running boot of the machine. A journal that cannot be read is moved aside.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn open(dir: &Path, node: &str, boot: &str) -> io::Result<(Self, AttachRecords)> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let records = match read(&text, node, boot) {
            Ok(records) => records,
            Err(reason) => {
                let aside = dir.join(format!("{FILE}.unreadable"));
                warn!(reason, aside = %aside.display(), "the journal of attachments cannot be used; moved it aside");
                fs::rename(&path, aside)?;
                AttachRecords::default()
            }
        };
        let (node, boot) = (node.to_owned(), boot.to_owned());
        let mut journal = Self { path, file: None, node, boot, lines: 0 };
        if records != AttachRecords::default() {
            journal.rewrite(&records)?;
        }
        Ok((journal, records))
    }

    /// Appends a step and syncs it to the disk. `records` is the state after the step.
    ///
    /// # Errors
    /// Returns the error of the disk. The step may then be written or not.
    pub fn append(&mut self, step: &AttachStep, records: &AttachRecords) -> io::Result<()> {
        let is_long = self.lines > records.attachments.len() + SURPLUS_LINES_MAX;
        // After an error, the file may end with an incomplete line, which must not be followed by others.
        let Some(mut file) = self.file.take().filter(|_| !is_long) else { return self.rewrite(records) };
        file.write_all(line(step)?.as_bytes())?;
        file.sync_data()?;
        self.file = Some(file);
        self.lines += 1;
        Ok(())
    }

    fn rewrite(&mut self, records: &AttachRecords) -> io::Result<()> {
        let header = Header { journal: FORMAT, node: self.node.clone(), boot: self.boot.clone() };
        let mut text = line(&header)?;
        let released =
            AttachStep::Released { addresses: records.released.clone(), generation: records.generation };
        text += &line(&released)?;
        self.lines = 0;
        for (attached, phase) in records.attachments.values() {
            text += &line(&AttachStep::Intent(attached.clone()))?;
            let key = attached.key.clone();
            match phase {
                AttachPhase::Intended => {}
                AttachPhase::Complete => text += &line(&AttachStep::Done { key })?,
                AttachPhase::Removing => text += &line(&AttachStep::Removing { key, at: 0 })?,
            }
            self.lines += 2;
        }
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        Ok(())
    }
}

/// Removes the journal of a state directory. Returns true if it existed.
///
/// # Errors
/// Returns an error if the file cannot be removed.
pub fn remove(dir: &Path) -> io::Result<bool> {
    match fs::remove_file(dir.join(FILE)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl AttachRecords {
    /// Applies a step.
    pub fn apply(&mut self, step: AttachStep) {
        match step {
            AttachStep::Intent(attached) => {
                self.generation = self.generation.max(attached.generation);
                self.released.retain(|(address, _)| !attached.addresses.contains(address));
                self.attachments.insert(attached.key.clone(), (attached, AttachPhase::Intended));
            }
            AttachStep::Done { key } => self.set(&key, AttachPhase::Complete),
            AttachStep::Removing { key, at: _ } => self.set(&key, AttachPhase::Removing),
            AttachStep::Removed { key, at } => {
                let removed = self.attachments.remove(&key);
                let addresses = removed.map(|(attached, _)| attached.addresses).unwrap_or_default();
                self.released.extend(addresses.into_iter().map(|address| (address, at)));
            }
            AttachStep::Released { addresses, generation } => {
                self.released.extend(addresses);
                self.generation = self.generation.max(generation);
            }
        }
    }

    fn set(&mut self, key: &AttachmentKey, phase: AttachPhase) {
        if let Some((_, held)) = self.attachments.get_mut(key) {
            *held = phase;
        }
    }
}

fn line(value: &impl Serialize) -> io::Result<String> {
    let json = serde_json::to_string(value)?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())))
}

/// Reads the records of a journal. An incomplete tail is ignored; a damaged line before others is an error.
fn read(text: &[u8], node: &str, boot: &str) -> Result<AttachRecords, &'static str> {
    let mut records = AttachRecords::default();
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Ok(records) };
    let header: Header = parse(first).ok_or("its first line is not a header")?;
    if header.journal != FORMAT {
        return Err("it has another format");
    }
    if header.node != node {
        return Err("it belongs to another node");
    }
    let mut is_damaged = false;
    for line in lines {
        match parse::<AttachStep>(line) {
            Some(_) if is_damaged => return Err("a line before others is damaged"),
            Some(step) => records.apply(step),
            None => is_damaged = true,
        }
    }
    if header.boot != boot {
        // The machine was restarted, so that no interface exists. The journal keeps this if the removal is interrupted.
        records.attachments.values_mut().for_each(|(_, phase)| *phase = AttachPhase::Removing);
    }
    Ok(records)
}

fn parse<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let (check, json) = line.split_at_checked(9)?;
    let check = u32::from_str_radix(std::str::from_utf8(check).ok()?.strip_suffix(' ')?, 16).ok()?;
    (crc32fast::hash(json) == check).then(|| serde_json::from_slice(json).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(id: &str, address: &str) -> AttachedWorkload {
        AttachedWorkload {
            key: AttachmentKey { container_id: id.to_owned(), interface: "eth0".to_owned() },
            netns: "/run/netns/x".to_owned(),
            network: "pods".to_owned(),
            namespace: "default".to_owned(),
            workload: id.to_owned(),
            labels: BTreeMap::new(),
            manager: String::new(),
            host_interface: "tgaaaaaaaaaaa".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            addresses: vec![address.parse().unwrap()],
            mtu: 1464,
            generation: 3,
            refusal: None,
        }
    }

    /// After a crash at any byte, the records are those of the complete lines.
    #[test]
    fn a_journal_is_read_up_to_the_last_complete_line() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut records) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        let (one, two) = (attached("c1", "10.9.0.1"), attached("c2", "10.9.0.2"));
        let steps = [
            // The first step creates the file, with the highest number of an attachment before any other line.
            AttachStep::Released { addresses: Vec::new(), generation: 3 },
            AttachStep::Intent(one.clone()),
            AttachStep::Done { key: one.key.clone() },
            AttachStep::Intent(two.clone()),
            AttachStep::Removing { key: one.key.clone(), at: 5 },
            AttachStep::Removed { key: one.key.clone(), at: 5 },
        ];
        let mut states = vec![records.clone()];
        for step in steps {
            records.apply(step.clone());
            journal.append(&step, &records).unwrap();
            states.push(records.clone());
        }
        let text = fs::read(dir.path().join(FILE)).unwrap();
        let header = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut seen = 0;
        for end in header..=text.len() {
            let read = read(&text[..end], "n1", "b1").unwrap();
            let position = states.iter().position(|state| *state == read).unwrap();
            assert!(position == seen || position == seen + 1, "{end}");
            seen = position;
        }
        assert_eq!(seen, states.len() - 1);
        drop(journal);
        let (_, read_again) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        assert_eq!(read_again, records);
        // Nothing is complete after a restart of the machine, also if the agent ends before the removal.
        for _ in 0..2 {
            let (_, rebooted) = AttachJournal::open(dir.path(), "n1", "b2").unwrap();
            assert!(
                rebooted.attachments.len() == records.attachments.len() && !rebooted.attachments.is_empty()
            );
            let mut phases = rebooted.attachments.values().map(|(_, phase)| *phase);
            assert!(phases.all(|phase| phase == AttachPhase::Removing));
        }
    }

    #[test]
    fn a_damaged_or_foreign_journal_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (mut journal, mut records) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        for id in ["c1", "c2"] {
            let step = AttachStep::Intent(attached(id, "10.9.0.1"));
            records.apply(step.clone());
            journal.append(&step, &records).unwrap();
        }
        let mut text = fs::read(&path).unwrap();
        let position = text.windows(4).position(|window| window == b"\"c1\"").unwrap();
        text[position + 1] = b'd';
        fs::write(&path, &text).unwrap();
        assert_eq!(read(&text, "n1", "b1"), Err("a line before others is damaged"));
        assert_eq!(read(&text, "n2", "b1"), Err("it belongs to another node"));
        let (_, records) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        assert_eq!(records, AttachRecords::default());
        assert!(dir.path().join("attachments.journal.unreadable").exists());
    }

    #[test]
    fn a_long_journal_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut records) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        let one = attached("c1", "10.9.0.1");
        for at in 0..600 {
            for step in [
                AttachStep::Intent(one.clone()),
                AttachStep::Done { key: one.key.clone() },
                AttachStep::Removed { key: one.key.clone(), at },
            ] {
                records.apply(step.clone());
                journal.append(&step, &records).unwrap();
            }
        }
        let lines = fs::read(dir.path().join(FILE)).unwrap().iter().filter(|byte| **byte == b'\n').count();
        assert!(lines < 1100, "{lines}");
        let (_, read_again) = AttachJournal::open(dir.path(), "n1", "b1").unwrap();
        assert_eq!(read_again, records);
    }
}
