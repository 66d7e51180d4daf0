//! Repeated reading of written elements.
//!
//! The kernel resizes a grown hash table in the background, and a concurrent dump omits some elements and reports others
//! twice. So a difference between the written and the read elements counts only if it persists.

use std::{io, thread, time::Duration};

/// Number of readings after which a remaining difference counts as a failure. The pause between readings starts at
/// [`RESIZE_PAUSE`] and doubles, to 0.6 s in total.
pub const LOOKS_MAX: u32 = 6;
/// Pause after the first reading.
pub const RESIZE_PAUSE: Duration = Duration::from_millis(20);

/// Reads until the elements are as written. Returns false if they still differ at the last of [`LOOKS_MAX`] readings.
///
/// # Errors
/// Returns the error of a reading.
pub fn settle(mut is_as_written: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let mut pause = RESIZE_PAUSE;
    for _ in 1..LOOKS_MAX {
        if is_as_written()? {
            return Ok(true);
        }
        thread::sleep(pause);
        pause *= 2;
    }
    is_as_written()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_only_if_it_persists() {
        let mut readings = 0;
        let third = settle(|| {
            readings += 1;
            Ok(readings == 3)
        });
        assert_eq!((third.unwrap(), readings), (true, 3));
        let mut readings = 0;
        let never = settle(|| {
            readings += 1;
            Ok(false)
        });
        assert_eq!((never.unwrap(), readings), (false, LOOKS_MAX));
        assert!(settle(|| Err(io::ErrorKind::TimedOut.into())).is_err());
    }
}
