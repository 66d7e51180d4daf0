//! A view on bytes that is read from its beginning; what is not there is `None`.

/// Bytes not read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next bytes; when there are fewer, none is taken.
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

    /// As many bytes as the next byte says.
    pub(super) fn counted_by_u8(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u8()?;
        let taken = ahead.bytes(count.into())?;
        *self = ahead;
        Some(taken)
    }

    /// As many bytes as the next two bytes say.
    pub(super) fn counted_by_u16(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let count = ahead.u16()?;
        let taken = ahead.bytes(count.into())?;
        *self = ahead;
        Some(taken)
    }
}
