//! Disk baseline: sequential durable writes by a single writer.

use std::{
    fs::OpenOptions,
    io::{Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::measured::WritesTurn;
use crate::statistics::figures::Summary;

/// Number of bytes written per sync, which is the page size of SQLite.
const PAGE: usize = 4096;
/// Number of pages of the file, which is overwritten cyclically like a log.
const PAGES: u64 = 256;

/// Writes a page and syncs it to disk in a loop, and returns the rate.
pub(super) fn synced_per_second(directory: &Path, slice: Duration) -> Result<WritesTurn> {
    let path = directory.join("bound");
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("cannot open {}: {error}", path.display()))?;
    let (page, mut took) = ([0x5a; PAGE], Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < slice {
        let at = took.len() as u64 % PAGES * PAGE as u64;
        let before = Instant::now();
        file.seek(SeekFrom::Start(at)).context("seek")?;
        file.write_all(&page).context("write")?;
        file.sync_data().context("fdatasync")?;
        took.push(before.elapsed().as_secs_f64() * 1e3);
    }
    let per_second = took.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(WritesTurn { per_second, latency_ms: Summary::of(took).context("nothing was written")? })
}
