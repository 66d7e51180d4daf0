//! Tests of a full or failing disk of the control server: no write is acknowledged unless it is stored,
//! existing objects stay readable, the error is reported, and writes succeed again once there is space. The
//! disks are real file systems of a few megabytes in memory.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers, and prints counts"
)]

mod machine;

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::ensure;
use lab::host::wait;
use machine::{Machine, Medium};

/// Maximum number of writes until the full disk must have caused a rejection; more than the disk can store.
const WRITES_MAX: usize = 2000;
/// Error of SQLite for a failed fsync (`SQLITE_IOERR_FSYNC`).
const FSYNC_FAILED: &str = "code: 1034";

/// Write attempts with their outcomes.
#[derive(Default)]
struct Writes {
    kept: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Writes {
    fn write(&mut self, machine: &Machine, name: String) -> u16 {
        let status = machine.write(&name).unwrap();
        match status {
            201 => self.kept.insert(name),
            503 => self.refused.insert(name),
            other => panic!("{name}: {other}"),
        };
        status
    }

    /// Writes objects until one is rejected because the disk is full, and then asserts that further writes
    /// are rejected and that the server is alive but not ready.
    fn until_refused(&mut self, machine: &Machine) {
        for number in 0..20 {
            assert_eq!(self.write(machine, format!("before-{number}")), 201);
        }
        machine.fill();
        let full = (0..WRITES_MAX).find(|number| self.write(machine, format!("filling-{number}")) == 503);
        full.expect("a disk of a few megabytes is full at some time");
        machine.fill();
        for number in 0..20 {
            assert_eq!(self.write(machine, format!("full-{number}")), 503);
        }
        assert_eq!(machine.api.get("/healthz").unwrap().status, 200);
        let ready = machine.api.get("/readyz").unwrap();
        assert_eq!(ready.status, 503, "{}", ready.text);
    }
}

/// On a full disk exactly the acknowledged writes exist. The others are rejected with status 503 and an error
/// code, and `readyz` reports the reason. With free space, writes succeed again without a restart. After a
/// kill of the server, all acknowledged writes still exist.
#[test]
fn on_a_full_disk_nothing_is_acknowledged_that_is_not_kept_and_with_room_it_goes_on() {
    let mut machine = Machine::start(Medium::Small);
    let pid = machine.server.pid();
    let mut writes = Writes::default();
    writes.until_refused(&machine);
    let ready = machine.api.get("/readyz").unwrap().text;
    assert!(ready.contains("full"), "it does not say that the disk is full: {ready}");
    assert_eq!(machine.names().unwrap(), writes.kept, "reads go on");

    fs::remove_file(machine.filler()).unwrap();
    // Recovery is reported without a preceding write.
    machine.wait_ready();
    let mut attempts = 0;
    wait::until("a write with room on the disk", || {
        attempts += 1;
        let status = writes.write(&machine, format!("after-{attempts}"));
        ensure!(status == 201, "{status}");
        Ok(())
    })
    .unwrap();
    assert_eq!((machine.server.exit_status(), machine.server.pid()), (None, pid), "it was not started again");
    assert_eq!(machine.names().unwrap(), writes.kept);
    machine.server.kill();
    machine.server.start_again().unwrap();
    machine.wait_ready();
    assert_eq!(machine.names().unwrap(), writes.kept, "after a kill");
    let Writes { kept, refused } = writes;
    println!("full disk: {} writes acknowledged, 0 lost; {} refused, 0 kept", kept.len(), refused.len());
}

/// If `fsync` fails and unsynced data are lost, as in a power failure, all acknowledged writes exist after
/// the repair. No other object exists, except one whose write got an error response that does not exclude a
/// later commit.
#[test]
fn when_fsync_fails_nothing_is_acknowledged_and_nothing_that_was_is_lost() {
    assert!(Path::new("/dev/loop-control").exists(), "this test needs loop devices, which this kernel lacks");
    let mut machine = Machine::start(Medium::Thin);
    let mut writes = Writes::default();
    writes.until_refused(&machine);
    assert!(machine.server.log().contains(FSYNC_FAILED), "{}", machine.server.log_tail());
    assert_eq!(machine.names().unwrap(), writes.kept, "reads go on");

    machine.server.kill();
    fs::remove_file(machine.filler()).unwrap();
    machine.mount_again();
    machine.server.start_again().unwrap();
    machine.wait_ready();
    let found = machine.names().unwrap();
    let Writes { kept, refused } = &writes;
    let lost: Vec<_> = kept.difference(&found).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    // The outcome of the write that hit the failure is unknown, as its response stated.
    let unasked: Vec<_> = found.difference(kept).filter(|name| !refused.contains(*name)).collect();
    assert!(unasked.is_empty(), "{unasked:?}");
    let unknown = found.len() - kept.len();
    println!(
        "failing fsync: {} writes acknowledged, 0 lost; {} refused, {unknown} kept",
        kept.len(),
        refused.len()
    );
    assert_eq!(writes.write(&machine, "after".to_owned()), 201);
}
