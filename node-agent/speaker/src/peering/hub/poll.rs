//! Waits for events of the neighbor tasks, and polls BFD paths, listening sockets and TCP MD5 failure
//! counters.

use std::net::IpAddr;

use tracing::warn;

use super::{Hub, Reports, Running};
use crate::peering::{settings::Place, signatures};

impl Hub {
    pub(super) fn take_reports(&mut self, reports: Reports) {
        let Reports { paths, ended } = reports;
        let is_different = !paths.is_empty();
        for (key, path) in paths {
            match path {
                Some(path) => self.paths.insert(key, path),
                None => self.paths.remove(&key),
            };
        }
        if is_different {
            self.watch_paths();
        }
        for key in &ended {
            self.running.remove(key);
        }
        if !ended.is_empty() {
            // Ended neighbors may have been configured again in the meantime.
            let peers = self.state.as_ref().map(|state| state.peers.clone()).unwrap_or_default();
            let wanted = self.settings(&peers);
            self.start_missing(wanted);
        }
    }

    fn watch_paths(&self) {
        let wanted = self.paths.values().cloned().collect();
        let outcome = self.bfd.set_peers(wanted);
        if let Err(error) = &outcome {
            warn!(%error, "cannot monitor the paths to BGP neighbors");
        }
        for key in self.paths.keys() {
            if let Some(running) = self.running.get(key) {
                let fault = outcome.as_ref().err().map(ToString::to_string);
                running.inbox.put(|inbox| inbox.path_fault = Some(fault));
            }
        }
        self.follow_paths();
    }

    pub(super) fn follow_paths(&self) {
        let states = self.bfd.states();
        for (key, (path, _)) in &self.paths {
            if let (Some(running), Some(state)) = (self.running.get(key), states.get(path)) {
                running.inbox.put(|inbox| inbox.path = Some(state.clone()));
            }
        }
    }

    /// Reads the TCP MD5 failure counters and retries failed listening sockets. Both are polled, because the
    /// kernel sends no events about them.
    pub(super) fn look(&mut self) {
        if self.doors.try_again() {
            self.show_doors();
        }
        let before = self.bad_signatures;
        self.bad_signatures = signatures::failures();
        let Some(more) = self.bad_signatures.zip(before).map(|(now, before)| now.saturating_sub(before))
        else {
            return;
        };
        if more == 0 {
            return;
        }
        // The counters cover the whole node. They are attributed to peers with a password; without any, to
        // all, because a neighbor may sign unexpectedly.
        let is_signed = |running: &&Running| running.settings.way.password.is_some();
        let has_password = self.running.values().any(|running| is_signed(&running));
        for running in self.running.values().filter(|running| !has_password || is_signed(running)) {
            running.inbox.put(|inbox| inbox.bad_signatures += more);
        }
    }

    pub(super) fn show_doors(&self) {
        let faults = self.doors.faults();
        for running in self.running.values() {
            let Place::Address(address) = &running.settings.place else { continue };
            let source = running.settings.way.source;
            let concerns = |door: &IpAddr| {
                door.is_ipv4() == address.is_ipv4() && (door.is_unspecified() || source == Some(*door))
            };
            let fault = faults.iter().find(|(door, _)| concerns(door)).map(|(_, fault)| fault.clone());
            running.inbox.put(|inbox| inbox.door_fault = Some(fault));
        }
        let faults: Vec<_> = faults.into_values().collect();
        self.board.send_if_modified(|board| {
            let is_news = board.faults != faults;
            for fault in faults.iter().filter(|fault| !board.faults.contains(fault)) {
                warn!(fault, "BGP neighbors cannot connect to this node");
            }
            board.faults = faults;
            is_news
        });
    }
}
