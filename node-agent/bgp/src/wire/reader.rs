//! Cursor over received bytes. Reading beyond the end returns `None`.

/// Cursor over received bytes: contains the bytes that have not been read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all bytes that have not been read yet.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Reads `count` bytes. If fewer are left, returns `None` and consumes none.
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a field preceded by its length in one byte.
    pub(super) fn counted_by_u8(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u8()?;
        let taken = ahead.bytes(count.into())?;
        *self = ahead;
        Some(taken)
    }

    /// Reads a field preceded by its length in two bytes.
    pub(super) fn counted_by_u16(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u16()?;
        let taken = ahead.bytes(count.into())?;
        *self = ahead;
        Some(taken)
    }
}
