//! A directory for files of a run that goes with its owner, and when the process is interrupted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::{Builder, TempDir};

use crate::host::registry;

/// A directory of its own. What is in it is removed with it.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes one where temporary files are, with this word in its name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(word: &str) -> Result<Self> {
        Self::of(Builder::new().prefix(&prefix(word)).tempdir())
    }

    /// Makes one in memory where there is such a place, else where temporary files are.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn in_memory(word: &str) -> Result<Self> {
        let prefix = prefix(word);
        let in_memory = Builder::new().prefix(&prefix).tempdir_in("/dev/shm");
        Self::of(in_memory.or_else(|_| Builder::new().prefix(&prefix).tempdir()))
    }

    fn of(made: std::io::Result<TempDir>) -> Result<Self> {
        let made = made.context("no temporary directory")?;
        registry::add_directory(made.path());
        Ok(Self(made))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file or directory in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        registry::forget_directory(self.0.path());
    }
}

fn prefix(word: &str) -> String {
    format!("tidegate-{word}-")
}
