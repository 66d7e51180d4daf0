//! Agent state directory of a test, removed when its guard is dropped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use node_agent::journal::{JOURNAL_FILE, Journal, lock::StateDirLock};
use node_agent::state::State;

use super::{states::node_name, unique};

pub struct StateDir(PathBuf);

impl StateDir {
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(unique(test));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn journal_path(&self) -> PathBuf {
        self.0.join(JOURNAL_FILE)
    }

    /// Opens the journal in the directory as the agent of the test node, and returns the journal with the
    /// state in it.
    pub fn open(&self) -> (Journal, State) {
        let lock = StateDirLock::acquire(&self.0).unwrap();
        Journal::open(&self.0, &node_name(), lock).unwrap()
    }

    pub fn read(&self) -> Vec<u8> {
        fs::read(self.journal_path()).unwrap()
    }

    pub fn write(&self, bytes: &[u8]) {
        fs::write(self.journal_path(), bytes).unwrap();
    }

    /// Returns the content of the damaged journal file that was moved aside, or `None` if there is none.
    pub fn damaged(&self) -> Option<Vec<u8>> {
        fs::read(self.0.join("state.ndjson.damaged")).ok()
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
