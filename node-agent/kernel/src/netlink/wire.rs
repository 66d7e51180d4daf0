//! Netlink message format (RFC 3549 §2.2–2.3): headers and attributes.
//!
//! Decoding is total: for any input it terminates, reads only within the input, and returns a value or
//! [`MalformedMessage`].

/// Bit of an attribute type that marks the payload as a list of attributes (`NLA_F_NESTED`).
const NLA_F_NESTED: u16 = 0x8000;
/// Mask that removes the flag bits from an attribute type (`NLA_TYPE_MASK`).
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Size of `nlmsghdr` in bytes.
const NLMSG_HEADER_BYTES: usize = 16;

/// Error for bytes that are not a valid netlink message. Contains a description of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed netlink message: {0}")]
pub struct MalformedMessage(pub &'static str);

/// Netlink message to send, before encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Subsystem and message number, or the number of a generic netlink family (`nlmsg_type`).
    pub kind: u16,
    /// Message flags (`NLM_F_…`).
    pub flags: u16,
    /// Subsystem-specific header after `nlmsghdr`, such as that of [`netfilter_header`] or
    /// [`generic_header`]. The length of the header is a multiple of four bytes.
    pub header: Vec<u8>,
    /// Attributes that follow the header.
    pub attributes: Attributes,
}

/// Encodes `nfgenmsg`: the address family, and the `res_id`, which is 0 except in the begin and end messages
/// of a batch.
#[must_use]
pub fn netfilter_header(family: u8, resource: u16) -> Vec<u8> {
    let [high, low] = resource.to_be_bytes();
    vec![family, 0, high, low]
}

/// Encodes `genlmsghdr`: the command number, and the version of the family's protocol.
#[must_use]
pub fn generic_header(command: u8, version: u8) -> Vec<u8> {
    vec![command, version, 0, 0]
}

impl Message {
    /// Appends the encoded message to a buffer.
    ///
    /// # Panics
    /// Never: a message is far below 4 GiB.
    pub fn encode_into(&self, sequence: u32, buffer: &mut Vec<u8>) {
        let length = u32::try_from(self.length()).expect("a message is far below 4 GiB");
        buffer.extend(length.to_ne_bytes());
        buffer.extend(self.kind.to_ne_bytes());
        buffer.extend(self.flags.to_ne_bytes());
        buffer.extend(sequence.to_ne_bytes());
        buffer.extend(0u32.to_ne_bytes());
        buffer.extend(&self.header);
        buffer.extend(&self.attributes.0);
    }

    const fn length(&self) -> usize {
        NLMSG_HEADER_BYTES + self.header.len() + self.attributes.0.len()
    }

    /// Returns the total size of the messages after encoding, in bytes.
    #[must_use]
    pub fn total_bytes(messages: &[Self]) -> u64 {
        messages.iter().map(|message| u64::try_from(message.length()).unwrap_or(u64::MAX)).sum()
    }
}

/// List of netlink attributes, encoded while it is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute with raw bytes.
    ///
    /// # Panics
    /// Panics if the attribute would be longer than 65,535 bytes. Callers split longer lists.
    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len() + 4).expect("callers split lists below 64 KiB");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a 16-bit integer in network byte order.
    #[must_use]
    pub fn be16(self, kind: u16, value: u16) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds a 32-bit integer in network byte order, as nf_tables and ctnetlink require.
    #[must_use]
    pub fn be32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds a 64-bit integer in network byte order.
    #[must_use]
    pub fn be64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds a 16-bit integer in host byte order.
    #[must_use]
    pub fn ne16(self, kind: u16, value: u16) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a 32-bit integer in host byte order, as generic netlink families require.
    #[must_use]
    pub fn ne32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a string with its terminating NUL.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Adds another list as the payload of one attribute.
    #[must_use]
    pub fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inner.0)
    }

    /// Returns the encoded attributes, each padded to a multiple of four bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the encoded size of the list in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the list contains no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Netlink message that was received from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMessage<'a> {
    /// Subsystem and message number; values below 16 are control messages such as `NLMSG_ERROR`.
    pub kind: u16,
    /// Message flags (`NLM_F_…`).
    pub flags: u16,
    /// Sequence number of the request to which this is a response.
    pub sequence: u32,
    /// Bytes of the message after its `nlmsghdr`.
    pub payload: &'a [u8],
}

impl<'a> ReceivedMessage<'a> {
    /// Iterates over the attributes after a header of four bytes, as in netfilter and generic netlink
    /// messages.
    #[must_use]
    pub fn attributes(&self) -> AttributeIter<'a> {
        self.attributes_behind(4)
    }

    /// Iterates over the attributes after a header of the given size.
    #[must_use]
    pub fn attributes_behind(&self, header_bytes: usize) -> AttributeIter<'a> {
        AttributeIter::new(self.payload.get(header_bytes..).unwrap_or_default())
    }

    /// Returns the `errno` of an `NLMSG_ERROR` or `NLMSG_DONE` as a positive number; 0 is an acknowledgement.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let number = self.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        number.saturating_neg()
    }
}

/// Iterator over the messages of one datagram. Ends after the first malformed message.
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Creates an iterator over the messages of a whole datagram.
    #[must_use]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<ReceivedMessage<'a>, MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let parsed = split_message(self.0);
        self.0 = parsed.map_or(&[][..], |(_, rest)| rest);
        Some(parsed.map(|(message, _)| message))
    }
}

fn split_message(bytes: &[u8]) -> Result<(ReceivedMessage<'_>, &[u8]), MalformedMessage> {
    let header: &[u8; NLMSG_HEADER_BYTES] =
        bytes.first_chunk().ok_or(MalformedMessage("truncated header"))?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    let length = usize::try_from(length).map_err(|_| MalformedMessage("length exceeds the address space"))?;
    let payload =
        bytes.get(NLMSG_HEADER_BYTES..length).ok_or(MalformedMessage("length does not fit the datagram"))?;
    let message = ReceivedMessage {
        kind: u16::from_ne_bytes([header[4], header[5]]),
        flags: u16::from_ne_bytes([header[6], header[7]]),
        sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
        payload,
    };
    Ok((message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Iterator over a list of attributes. Ends after the first malformed attribute.
#[derive(Clone)]
pub struct AttributeIter<'a>(&'a [u8]);

impl<'a> AttributeIter<'a> {
    /// Creates an iterator over a whole encoded list.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for AttributeIter<'a> {
    type Item = Result<Attribute<'a>, MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let parsed = split_attribute(self.0);
        self.0 = parsed.map_or(&[][..], |(_, rest)| rest);
        Some(parsed.map(|(attribute, _)| attribute))
    }
}

fn split_attribute(bytes: &[u8]) -> Result<(Attribute<'_>, &[u8]), MalformedMessage> {
    let header: &[u8; 4] = bytes.first_chunk().ok_or(MalformedMessage("truncated attribute header"))?;
    let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
    let value = bytes.get(4..length).ok_or(MalformedMessage("attribute length does not fit"))?;
    let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
    Ok((Attribute { kind, value }, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Netlink attribute that was received from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Attribute type, without the flag bits.
    pub kind: u16,
    /// Bytes of the payload, without padding.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Returns the payload as a list of attributes.
    #[must_use]
    pub const fn nested(&self) -> AttributeIter<'a> {
        AttributeIter::new(self.value)
    }

    /// Returns the payload as a 16-bit integer in network byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not two bytes long.
    pub fn be16(&self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns the payload as a 32-bit integer in network byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not four bytes long.
    pub fn be32(&self) -> Result<u32, MalformedMessage> {
        self.array().map(u32::from_be_bytes)
    }

    /// Returns the payload as a 64-bit integer in network byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not eight bytes long.
    pub fn be64(&self) -> Result<u64, MalformedMessage> {
        self.array().map(u64::from_be_bytes)
    }

    /// Returns the payload as a 16-bit integer in host byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not two bytes long.
    pub fn ne16(&self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_ne_bytes)
    }

    /// Returns the payload as a 32-bit integer in host byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not four bytes long.
    pub fn ne32(&self) -> Result<u32, MalformedMessage> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Returns the payload as a 64-bit integer in host byte order.
    ///
    /// # Errors
    /// Returns an error if the payload is not eight bytes long.
    pub fn ne64(&self) -> Result<u64, MalformedMessage> {
        self.array().map(u64::from_ne_bytes)
    }

    fn array<const N: usize>(&self) -> Result<[u8; N], MalformedMessage> {
        self.value.try_into().map_err(|_| MalformedMessage("an integer has the wrong length"))
    }

    /// Returns the payload as text, without the terminating NUL.
    ///
    /// # Errors
    /// Returns an error if the payload is not UTF-8.
    pub fn text(&self) -> Result<&'a str, MalformedMessage> {
        let end = self.value.iter().position(|&byte| byte == 0).unwrap_or(self.value.len());
        std::str::from_utf8(&self.value[..end]).map_err(|_| MalformedMessage("a name must be UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(values in prop::collection::vec((0u16..0x3fff, prop::collection::vec(any::<u8>(), 0..40)), 0..20), sequence: u32) {
            let mut attributes = Attributes::default();
            for (kind, value) in &values {
                attributes = attributes.bytes(*kind, value);
            }
            let message = Message { kind: 0x0a0c, flags: 5, header: netfilter_header(1, 10), attributes };
            let mut buffer = Vec::new();
            message.encode_into(sequence, &mut buffer);
            message.encode_into(sequence, &mut buffer);
            let received: Vec<_> = Messages::new(&buffer).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(received.len(), 2);
            for one in received {
                prop_assert_eq!((one.kind, one.flags, one.sequence), (0x0a0c, 5, sequence));
                let back: Vec<_> = one.attributes().map(|a| a.map(|a| (a.kind, a.value.to_vec()))).collect::<Result<_, _>>().unwrap();
                prop_assert_eq!(&back, &values);
            }
        }

        #[test]
        fn any_bytes_are_decoded_without_panic_and_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut seen = 0;
            for message in Messages::new(&bytes).flatten() {
                seen += message.payload.len();
                let _ = message.errno();
                for attribute in message.attributes().flatten() {
                    let _ = (attribute.be32(), attribute.text(), attribute.nested().count());
                }
            }
            prop_assert!(seen <= bytes.len());
            prop_assert!(AttributeIter::new(&bytes).count() <= bytes.len());
        }
    }
}
