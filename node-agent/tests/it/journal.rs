//! Tests of the journal, in which an agent stores its last state: after any damage of the file, the loaded
//! state is either one that a control server has sent, or none.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    fs,
    time::{Duration, Instant},
};

use model::wire::feed::NodeState;
use node_agent::{
    feed::machine::Batch,
    journal::{
        Journal,
        lock::{LockError, StateDirLock},
    },
    state::State,
};

use crate::support::{dir::StateDir, states::*};

/// Journal under test, and the state that results from all batches appended to it.
struct Recorder {
    journal: Journal,
    state: State,
    now: Instant,
}

impl Recorder {
    fn open(dir: &StateDir) -> Self {
        let (journal, state) = dir.open();
        Self { journal, state, now: Instant::now() }
    }

    /// Applies a batch of state changes and appends it to the journal, as the agent loop does. Returns the
    /// growth of the file in bytes.
    fn take(&mut self, batch: Batch) -> u64 {
        let (previous, before) = (self.state.position(), self.journal.bytes());
        let touched = self.state.apply(batch).unwrap();
        self.journal.append(previous, &self.state, &touched, self.now);
        self.journal.bytes().saturating_sub(before)
    }
}

/// The journal contains session keys, so that only its owner can read the file, even if an earlier version
/// has created it with wider permissions.
#[test]
fn the_saved_state_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = StateDir::new("owner");
    let file = dir.path().join(node_agent::journal::JOURNAL_FILE);
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let mut recorder = Recorder::open(&dir);
    assert_eq!(mode(), 0o600);
    for batch in batches() {
        recorder.take(batch);
    }
    recorder.journal.close().unwrap();
    assert_eq!(mode(), 0o600, "also after a rewrite");
}

/// Returns batches of state changes that together contain every kind of change.
fn batches() -> Vec<Batch> {
    let mut settings = delta("7-13", vec![service(3, 0, 13)]);
    settings.network = Some(network(&["10.244.0.0/16", "fd00:1::/64"]));
    settings.node = Some(NodeState {
        proxy: model::kinds::node::ProxyOptions { masquerade_all: true, ..Default::default() },
        ..NodeState::default()
    });
    vec![
        full("7-10", vec![service(1, 1, 9), service(2, 1, 10)]),
        delta("7-11", vec![service(1, 2, 11)]),
        without("7-12", &[2]),
        settings,
        delta("7-14", Vec::new()),
        delta("7-15", vec![unsupported(2, 15)]),
    ]
}

/// Appends the batches of [`batches`] to a journal. Returns the bytes of the file, and the offset and the
/// state at each batch boundary, starting with the empty state.
fn recorded(dir: &StateDir) -> (Vec<u8>, Vec<(usize, State)>) {
    let mut recorder = Recorder::open(dir);
    let mut boundaries = vec![(0, State::default())];
    for batch in batches() {
        recorder.take(batch);
        boundaries.push((usize::try_from(recorder.journal.bytes()).unwrap(), recorder.state.clone()));
    }
    recorder.journal.close().unwrap();
    let bytes = dir.read();
    assert_eq!(bytes.len(), boundaries.last().unwrap().0);
    (bytes, boundaries)
}

#[test]
fn a_file_cut_anywhere_loads_the_last_batch_that_is_whole() {
    let dir = StateDir::new("journal-cut");
    let (bytes, boundaries) = recorded(&dir);
    for length in 0..=bytes.len() {
        dir.write(&bytes[..length]);
        let (at, wanted) = boundaries.iter().rev().find(|(at, _)| *at <= length).unwrap();
        let (journal, state) = dir.open();
        assert_eq!(state, *wanted, "cut at {length}");
        assert_eq!(journal.bytes(), *at as u64, "cut at {length}: the torn tail is gone");
        assert_eq!(dir.damaged(), None, "a torn tail is no damage");
    }
}

#[test]
fn a_journal_goes_on_after_a_torn_tail() {
    let dir = StateDir::new("journal-on");
    let (bytes, boundaries) = recorded(&dir);
    let (at, held) = &boundaries[3];
    for length in [*at, at + 1, at + 40, boundaries[4].0 - 1] {
        dir.write(&bytes[..length]);
        let mut recorder = Recorder::open(&dir);
        assert_eq!(recorder.state, *held);
        recorder.take(delta("7-20", vec![service(9, 1, 20)]));
        let wanted = recorder.state.clone();
        drop(recorder);
        assert_eq!(dir.open().1, wanted, "cut at {length}, then appended");
    }
}

/// If any single bit of the journal file is flipped, the loaded state is one that existed after a batch, or
/// none; in the latter case the file is kept for analysis.
#[test]
fn a_flipped_bit_never_makes_a_state_that_control_did_not_say() {
    let dir = StateDir::new("journal-flip");
    let (bytes, boundaries) = recorded(&dir);
    let last_batch_at = boundaries[boundaries.len() - 2].0;
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << bit;
            dir.write(&flipped);
            let (_, state) = dir.open();
            let what = format!("bit {bit} of byte {index}");
            match dir.damaged() {
                Some(damaged) => {
                    assert_eq!(state, State::default(), "{what}");
                    assert_eq!(damaged, flipped, "{what}: kept aside as it was");
                    fs::remove_file(dir.path().join("state.ndjson.damaged")).unwrap();
                }
                None => {
                    assert!(boundaries.iter().any(|(_, known)| *known == state), "{what}: {state:?}");
                    assert!(index >= last_batch_at, "{what}: damage before the last batch is noticed");
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_no_journal_is_kept_aside() {
    for (name, bytes) in [
        ("text", &b"hello\n"[..]),
        ("zeros", &[b'\0', b'\0', b'\n'][..]),
        ("later", &b"{\"journal\":2,\"node\":\"n1\"}\n"[..]),
    ] {
        let dir = StateDir::new(&format!("journal-{name}"));
        dir.write(bytes);
        let (journal, state) = dir.open();
        assert_eq!((state, journal.bytes()), (State::default(), 0), "{name}");
        assert_eq!(dir.damaged().as_deref(), Some(bytes), "{name}");
    }
}

#[test]
fn the_state_of_another_node_is_refused_and_kept_aside() {
    let dir = StateDir::new("journal-node");
    let (bytes, _) = recorded(&dir);
    let lock = StateDirLock::acquire(dir.path()).unwrap();
    let (journal, state) =
        Journal::open(dir.path(), &model::primitives::name::Name::parse("n2").unwrap(), lock).unwrap();
    assert_eq!((state, journal.bytes()), (State::default(), 0));
    assert_eq!(dir.damaged(), Some(bytes));
}

#[test]
fn two_agents_cannot_share_a_state_directory() {
    let dir = StateDir::new("journal-lock");
    let first = dir.open();
    let error = StateDirLock::acquire(dir.path()).unwrap_err();
    assert!(matches!(&error, LockError::Held { pid } if *pid == std::process::id().to_string()), "{error}");
    assert!(error.to_string().contains("a running agent"), "{error}");
    drop(first);
    StateDirLock::acquire(dir.path()).unwrap();
}

#[test]
fn one_change_writes_the_same_few_hundred_bytes_at_5_and_at_5000_services() {
    let growth = |count: u16| {
        let dir = StateDir::new(&format!("journal-size-{count}"));
        let mut recorder = Recorder::open(&dir);
        recorder.take(full("7-10", (1..=count).map(|number| service(number, 10, 9)).collect()));
        let file = fs::metadata(dir.journal_path()).unwrap().len();
        let grown = recorder.take(delta("7-11", vec![service(3, 2, 11)]));
        assert_eq!(fs::metadata(dir.journal_path()).unwrap().len(), file + grown, "only appended");
        grown
    };
    let small = growth(5);
    assert!((100..800).contains(&small), "{small} bytes");
    assert_eq!(small, growth(5000));
}

/// After 4,000 changes of about 10 KB each on an initial file of 20 KB, the state is complete and the file
/// has a limited size.
#[test]
fn compaction_keeps_the_state_and_bounds_the_file() {
    let dir = StateDir::new("journal-compact");
    let mut recorder = Recorder::open(&dir);
    recorder.take(full("7-1", vec![service(1, 100, 1), service(2, 100, 1)]));
    let base = recorder.journal.bytes();
    let (mut written, mut largest, mut shrunk) = (0, 0, 0);
    for revision in 2..4000_u64 {
        let endpoints = 100 + u8::try_from(revision % 2).unwrap();
        written += recorder.take(delta(&format!("7-{revision}"), vec![service(1, endpoints, revision)]));
        let before = recorder.journal.bytes();
        recorder.journal.maintain(&recorder.state, recorder.now);
        shrunk += u32::from(recorder.journal.bytes() < before);
        largest = largest.max(fs::metadata(dir.journal_path()).unwrap().len());
        if recorder.journal.bytes() > 2 * base + (1 << 20) {
            // The rewrite runs concurrently; here the loop has no kernel work to do meanwhile.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    assert!(written > 30 << 20, "{written} bytes: enough to be rewritten many times");
    assert!(shrunk > 5, "rewritten {shrunk} times");
    assert!(largest < 8 << 20, "{largest} bytes");
    let wanted = recorder.state.clone();
    drop(recorder);
    assert_eq!(dir.open().1, wanted);
}

/// Changes that are appended during a rewrite of the journal are not lost, both if the rewritten file is used
/// and if it is discarded.
#[test]
fn changes_during_a_rewrite_are_kept_whether_it_is_taken_over_or_not() {
    for is_taken_over in [true, false] {
        let dir = StateDir::new(&format!("journal-tail-{is_taken_over}"));
        let mut recorder = Recorder::open(&dir);
        recorder.take(full("7-1", vec![service(1, 200, 1)]));
        let mut revision = 1;
        while !dir.path().join("state.ndjson.new").exists() {
            revision += 1;
            let endpoints = 200 + u8::try_from(revision % 2).unwrap();
            recorder.take(delta(&format!("7-{revision}"), vec![service(1, endpoints, revision)]));
            assert!(revision < 10_000, "a rewrite begins");
        }
        recorder.take(delta(&format!("7-{}", revision + 1), vec![service(2, 1, revision)]));
        recorder.take(without(&format!("7-{}", revision + 2), &[1]));
        let before = recorder.journal.bytes();
        while is_taken_over && recorder.journal.bytes() == before {
            std::thread::sleep(Duration::from_millis(1));
            recorder.journal.maintain(&recorder.state, recorder.now);
        }
        let wanted = recorder.state.clone();
        drop(recorder);
        let (journal, state) = dir.open();
        assert_eq!(state, wanted);
        // Regardless of the changes before the rewrite began, it holds fewer than the file that it replaces.
        assert_eq!(journal.bytes() < before, is_taken_over, "{} bytes, {before} before", journal.bytes());
    }
}

#[test]
fn another_epoch_begins_another_file() {
    let dir = StateDir::new("journal-epoch");
    let mut recorder = Recorder::open(&dir);
    recorder.take(full("7-10", vec![service(1, 1, 9)]));
    recorder.take(full("8-2", vec![service(2, 1, 2)]));
    let wanted = recorder.state.clone();
    drop(recorder);
    let text = String::from_utf8(dir.read()).unwrap();
    assert_eq!((text.matches("\"start\"").count(), text.contains("7-10")), (1, false), "{text}");
    assert_eq!(dir.open().1, wanted);
}

#[test]
fn a_heartbeat_without_news_writes_nothing() {
    let dir = StateDir::new("journal-idle");
    let mut recorder = Recorder::open(&dir);
    recorder.take(full("7-10", vec![service(1, 1, 9)]));
    assert_eq!(recorder.take(delta("7-10", Vec::new())), 0);
    assert_eq!(recorder.take(delta("7-10", vec![service(1, 1, 9)])), 0, "said again, but the same");
}
