//! Codec of the BFD Control packet (RFC 5880 §4.1) and its SHA1 Authentication Section (§4.4).
//!
//! Parsing is total: for any input the parser terminates, reads only within the input, and returns a packet
//! or the rule of §6.8.6 by which the packet is discarded. Only rules that do not depend on a session are
//! checked.

use std::num::{NonZeroU8, NonZeroU32};

use crate::state::{Diagnostic, State};

/// Length of the mandatory section of a packet, in bytes.
pub const MANDATORY_BYTES: usize = 24;
/// Length in bytes of a packet with a SHA1 section, the longest packet that this implementation sends.
pub const SHA1_PACKET_BYTES: usize = MANDATORY_BYTES + SHA1_SECTION_BYTES as usize;
/// Minimum length in bytes of a packet with the Authentication Present bit.
const AUTHENTICATED_BYTES_MIN: usize = MANDATORY_BYTES + 2;
const SHA1_SECTION_BYTES: u8 = 28;
const VERSION: u8 = 1;

/// Offset of the digest in a packet with a SHA1 section.
pub(crate) const SHA1_DIGEST_AT: usize = MANDATORY_BYTES + 8;
/// Length of a SHA1 digest, in bytes. Keys are padded to this length.
pub const SHA1_DIGEST_BYTES: usize = 20;

const KEYED_SHA1: u8 = 4;
const METICULOUS_KEYED_SHA1: u8 = 5;

const POLL: u8 = 1 << 5;
const FINAL: u8 = 1 << 4;
const CONTROL_PLANE_INDEPENDENT: u8 = 1 << 3;
const AUTHENTICATION_PRESENT: u8 = 1 << 2;
const DEMAND: u8 = 1 << 1;
const MULTIPOINT: u8 = 1;

/// Mandatory section of a valid BFD Control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the flags of the packet")]
pub struct Packet {
    /// Diagnostic: the reason for the sender's last state change.
    pub diagnostic: Diagnostic,
    /// Sta: the session state of the sender.
    pub state: State,
    /// Poll bit: the sender requests a packet with the Final bit.
    pub poll: bool,
    /// Final bit: the packet responds to a packet with the Poll bit.
    pub is_final: bool,
    /// Control Plane Independent bit: the sender's BFD continues when its control plane fails.
    pub control_plane_independent: bool,
    /// Demand bit: the sender wants no periodic packets while both sessions are up.
    pub demand: bool,
    /// Detect Mult: the number of transmit intervals that make up the receiver's detection time.
    pub multiplier: NonZeroU8,
    /// My Discriminator: the sender's session identifier.
    pub my_discriminator: NonZeroU32,
    /// Your Discriminator: the receiver's session identifier, or `None` (0) if the sender has not received it
    /// yet.
    pub your_discriminator: Option<NonZeroU32>,
    /// Desired Min TX Interval: the sender's minimum interval between sent packets, in microseconds.
    pub desired_min_tx_micros: u32,
    /// Required Min RX Interval: the sender's minimum interval between received packets, in microseconds; 0
    /// if it wants no periodic packets.
    pub required_min_rx_micros: u32,
    /// Required Min Echo RX Interval, in microseconds; 0 if the sender does not support echoes.
    pub required_min_echo_rx_micros: u32,
}

/// SHA1 Authentication Section (RFC 5880 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha1Section {
    /// True for Meticulous Keyed SHA1: the sequence number increases with every packet.
    pub meticulous: bool,
    /// Auth Key ID: identifies the key that computed the digest.
    pub key_id: u8,
    /// Sequence number for replay protection.
    pub sequence: u32,
    /// Auth Key/Hash: the digest of the packet with the key in this field.
    pub digest: [u8; SHA1_DIGEST_BYTES],
}

/// Authentication section of a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Keyed SHA1 or Meticulous Keyed SHA1 section of valid length.
    Sha1(Sha1Section),
    /// Section with an unsupported authentication type, given by its Auth Type field.
    Unsupported(u8),
}

/// Parsed BFD Control packet with its authentication section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedPacket<'a> {
    /// Mandatory section of the packet.
    pub packet: Packet,
    /// Authentication section, or `None` if the packet has none.
    pub section: Option<Section>,
    /// Bytes covered by the Length field, over which the digest is computed.
    pub(crate) bytes: &'a [u8],
}

/// Reason why bytes are discarded before a session is looked up (RFC 5880 §6.8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The payload is shorter than the mandatory section.
    #[error("shorter than a control packet")]
    Short,
    /// The version is not 1.
    #[error("not BFD version 1")]
    Version,
    /// The Length field is below the minimum or larger than the payload.
    #[error("wrong length field")]
    Length,
    /// Detect Mult is zero.
    #[error("detect multiplier 0")]
    Multiplier,
    /// The Multipoint bit is set.
    #[error("multipoint bit")]
    Multipoint,
    /// My Discriminator is zero.
    #[error("my discriminator 0")]
    MyDiscriminator,
    /// Your Discriminator is zero although State is not Down or AdminDown.
    #[error("your discriminator 0 in a state that requires one")]
    YourDiscriminator,
    /// The authentication section exceeds the packet, or its length does not match its type.
    #[error("wrong length of the authentication section")]
    AuthenticationLength,
}

/// Parses the payload of a UDP datagram. Bytes beyond the length in the Length field are ignored.
///
/// # Errors
/// Returns [`PacketError`] if the packet must be discarded regardless of its session.
pub fn parse(payload: &[u8]) -> Result<ReceivedPacket<'_>, PacketError> {
    let head: &[u8; MANDATORY_BYTES] = payload.first_chunk().ok_or(PacketError::Short)?;
    if head[0] >> 5 != VERSION {
        return Err(PacketError::Version);
    }
    let (flags, length) = (head[1], usize::from(head[3]));
    let authenticated = flags & AUTHENTICATION_PRESENT != 0;
    let length_min = if authenticated { AUTHENTICATED_BYTES_MIN } else { MANDATORY_BYTES };
    if length < length_min {
        return Err(PacketError::Length);
    }
    let bytes = payload.get(..length).ok_or(PacketError::Length)?;
    let packet = mandatory(head)?;
    let section = if authenticated { Some(section(&bytes[MANDATORY_BYTES..])?) } else { None };
    Ok(ReceivedPacket { packet, section, bytes })
}

fn mandatory(head: &[u8; MANDATORY_BYTES]) -> Result<Packet, PacketError> {
    let flags = head[1];
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let multiplier = NonZeroU8::new(head[2]).ok_or(PacketError::Multiplier)?;
    if flags & MULTIPOINT != 0 {
        return Err(PacketError::Multipoint);
    }
    let my_discriminator = NonZeroU32::new(word(4)).ok_or(PacketError::MyDiscriminator)?;
    let your_discriminator = NonZeroU32::new(word(8));
    let state = State::from_bits(flags >> 6);
    if your_discriminator.is_none() && matches!(state, State::Init | State::Up) {
        return Err(PacketError::YourDiscriminator);
    }
    Ok(Packet {
        diagnostic: Diagnostic::from_bits(head[0]),
        state,
        poll: flags & POLL != 0,
        is_final: flags & FINAL != 0,
        control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
        demand: flags & DEMAND != 0,
        multiplier,
        my_discriminator,
        your_discriminator,
        desired_min_tx_micros: word(12),
        required_min_rx_micros: word(16),
        required_min_echo_rx_micros: word(20),
    })
}

fn section(bytes: &[u8]) -> Result<Section, PacketError> {
    let [kind, length, ..] = *bytes else { return Err(PacketError::AuthenticationLength) };
    if length < 2 || usize::from(length) > bytes.len() {
        return Err(PacketError::AuthenticationLength);
    }
    if kind != KEYED_SHA1 && kind != METICULOUS_KEYED_SHA1 {
        return Ok(Section::Unsupported(kind));
    }
    if length != SHA1_SECTION_BYTES {
        return Err(PacketError::AuthenticationLength);
    }
    // The reserved byte at offset 3 is ignored on receipt (§4.4).
    let sequence = bytes.get(4..8).and_then(|bytes| bytes.first_chunk());
    let digest = bytes.get(8..).and_then(|bytes| bytes.first_chunk());
    match (bytes.get(2), sequence, digest) {
        (Some(key_id), Some(sequence), Some(digest)) => Ok(Section::Sha1(Sha1Section {
            meticulous: kind == METICULOUS_KEYED_SHA1,
            key_id: *key_id,
            sequence: u32::from_be_bytes(*sequence),
            digest: *digest,
        })),
        _ => Err(PacketError::AuthenticationLength),
    }
}

/// Encodes a packet, with an optional authentication section, as the payload of a UDP datagram.
#[must_use]
pub fn render(packet: &Packet, section: Option<&Sha1Section>) -> Vec<u8> {
    let Packet {
        diagnostic,
        state,
        poll,
        is_final,
        control_plane_independent,
        demand,
        multiplier,
        my_discriminator,
        your_discriminator,
        desired_min_tx_micros,
        required_min_rx_micros,
        required_min_echo_rx_micros,
    } = *packet;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = state.bits() << 6
        | flag(poll, POLL)
        | flag(is_final, FINAL)
        | flag(control_plane_independent, CONTROL_PLANE_INDEPENDENT)
        | flag(section.is_some(), AUTHENTICATION_PRESENT)
        | flag(demand, DEMAND);
    let length = if section.is_some() { SHA1_PACKET_BYTES } else { MANDATORY_BYTES };
    let mut bytes = Vec::with_capacity(length);
    bytes.extend([VERSION << 5 | diagnostic.bits(), flags, multiplier.get()]);
    bytes.push(u8::try_from(length).expect("a packet is shorter than 256 bytes"));
    let discriminators = [my_discriminator.get(), your_discriminator.map_or(0, NonZeroU32::get)];
    let intervals = [desired_min_tx_micros, required_min_rx_micros, required_min_echo_rx_micros];
    for word in discriminators.into_iter().chain(intervals) {
        bytes.extend(word.to_be_bytes());
    }
    if let Some(Sha1Section { meticulous, key_id, sequence, digest }) = section {
        let kind = if *meticulous { METICULOUS_KEYED_SHA1 } else { KEYED_SHA1 };
        bytes.extend([kind, SHA1_SECTION_BYTES, *key_id, 0]);
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(digest);
    }
    bytes
}
