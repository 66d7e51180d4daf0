//! Values of one metric over an hour: a bitmap of the known points, and an array of values that is allocated once
//! a point is not zero.

/// Number of points of a track: one hour in steps of 10 s.
pub(super) const POINTS: usize = 360;
/// Number of bits in a word of the bitmap.
const WORD_BITS: usize = 64;

/// Values of one metric over an hour. Without an allocated array of values, all known points are zero.
#[derive(Debug, Default)]
pub(super) struct Track {
    known: [u64; POINTS.div_ceil(WORD_BITS)],
    values: Option<Box<[f32; POINTS]>>,
}

impl Track {
    /// Sets the value of a slot. If the array of values would have to be allocated and `may_grow` is false, leaves
    /// the slot unknown and returns `false`.
    pub(super) fn set(&mut self, slot: usize, value: Option<f32>, may_grow: bool) -> bool {
        self.forget(slot);
        let Some(value) = value.filter(|value| value.is_finite()) else { return true };
        if value != 0.0 && self.values.is_none() {
            if !may_grow {
                return false;
            }
            self.values = Some(Box::new([0.0; POINTS]));
        }
        if let Some(values) = &mut self.values {
            values[slot] = value;
        }
        self.known[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
        true
    }

    /// Marks the point in a slot as unknown.
    pub(super) fn forget(&mut self, slot: usize) {
        self.known[slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
    }

    /// Returns the value of a slot, or `None` if it is unknown.
    pub(super) fn get(&self, slot: usize) -> Option<f32> {
        let is_known = self.known[slot / WORD_BITS] & (1 << (slot % WORD_BITS)) != 0;
        is_known.then(|| self.values.as_ref().map_or(0.0, |values| values[slot]))
    }

    /// Returns true if at least one point is known.
    pub(super) fn has_any(&self) -> bool {
        self.known.iter().any(|word| *word != 0)
    }

    /// Returns true if the array of values is allocated.
    pub(super) const fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// Releases the array of values if all known points are zero. Returns true if the array remains allocated.
    pub(super) fn shrink(&mut self) -> bool {
        if (0..POINTS).all(|slot| self.get(slot).is_none_or(|value| value == 0.0)) {
            self.values = None;
        }
        self.has_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_no_zeros_and_zeros_take_no_room() {
        let mut track = Track::default();
        assert!(track.set(0, Some(0.0), false) && track.set(359, Some(0.0), false));
        assert_eq!((track.get(0), track.get(1), track.get(359)), (Some(0.0), None, Some(0.0)));
        assert!(!track.has_values() && track.has_any());
        assert!(!track.set(5, Some(1.5), false), "there is no room");
        assert_eq!(track.get(5), None);
        assert!(track.set(5, Some(1.5), true) && track.set(6, Some(f32::NAN), true));
        assert_eq!((track.get(0), track.get(5), track.get(6)), (Some(0.0), Some(1.5), None));
        assert!(track.shrink());
        track.forget(5);
        assert!(!track.shrink());
        assert_eq!((track.get(0), track.get(5)), (Some(0.0), None));
    }
}
