//! Temporary directory that is removed when its guard is dropped or the run is interrupted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::{Builder, TempDir};

use crate::host::registry;

/// Temporary directory, removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory in the default location, with `word` in its name.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created.
    pub fn new(word: &str) -> Result<Self> {
        Self::of(Builder::new().prefix(&prefix(word)).tempdir())
    }

    /// Creates a directory on a memory file system (`/dev/shm`) if there is one, else in the default
    /// location. `word` is a part of its name.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created.
    pub fn in_memory(word: &str) -> Result<Self> {
        let prefix = prefix(word);
        let in_memory = Builder::new().prefix(&prefix).tempdir_in("/dev/shm");
        Self::of(in_memory.or_else(|_| Builder::new().prefix(&prefix).tempdir()))
    }

    fn of(made: std::io::Result<TempDir>) -> Result<Self> {
        let made = made.context("cannot create a temporary directory")?;
        registry::add_directory(made.path());
        Ok(Self(made))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of the file or directory `name` inside the temporary directory.
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
