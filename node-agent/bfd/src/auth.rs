//! Keyed SHA1 and Meticulous Keyed SHA1 Authentication (RFC 5880 §6.7.4), with the ranges of accepted
//! sequence numbers of §6.7.3.

use std::fmt;

use sha1::{Digest as _, Sha1};

use crate::{
    dialogue::Refusal,
    wire::{self, Packet, ReceivedPacket, SHA1_DIGEST_AT, SHA1_DIGEST_BYTES, Section, Sha1Section},
};

/// Shared secret of 1 to 20 bytes. `Debug` does not print the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SHA1_DIGEST_BYTES]);

/// Error: the secret is empty or longer than 20 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a BFD secret must have 1 to 20 bytes")]
pub struct SecretLength;

impl Secret {
    /// Creates a secret from its bytes. Trailing zero bytes make no difference, because the protocol pads the
    /// secret with zeros.
    ///
    /// # Errors
    /// Returns [`SecretLength`] if `bytes` is empty or longer than 20 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretLength> {
        let mut padded = [0; SHA1_DIGEST_BYTES];
        let place = padded.get_mut(..bytes.len()).filter(|place| !place.is_empty()).ok_or(SecretLength)?;
        place.copy_from_slice(bytes);
        Ok(Self(padded))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Authentication type, which determines how strictly sequence numbers are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Keyed SHA1: the sequence number may be that of the previous packet.
    KeyedSha1,
    /// Meticulous Keyed SHA1: the sequence number increases with every packet. Preferred if the peer supports
    /// it.
    MeticulousKeyedSha1,
}

/// Authentication key of a session. RFC 5880 has one secret for both directions; systems that derive their
/// secrets can use one for each direction, so that a reflected packet of a system is not accepted by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Value of the Auth Key ID field in packets, by which the peer selects the key.
    pub id: u8,
    /// Authentication type of packets: Keyed SHA1 or Meticulous Keyed SHA1.
    pub algorithm: Algorithm,
    /// Secret from which the digests of transmitted packets are computed; `receive` of the peer.
    pub transmit: Secret,
    /// Secret from which the digests of received packets are computed; `transmit` of the peer.
    pub receive: Secret,
}

impl Key {
    /// Creates a key with one secret for both directions, as other implementations of BFD use it.
    #[must_use]
    pub fn symmetric(id: u8, algorithm: Algorithm, secret: Secret) -> Self {
        Self { id, algorithm, transmit: secret.clone(), receive: secret }
    }
}

/// Returns the digest of a packet that ends with a SHA1 section. During the computation the Auth Key/Hash field
/// contains the secret.
fn digest(secret: &Secret, packet: &[u8]) -> [u8; SHA1_DIGEST_BYTES] {
    let (head, tail) = packet.split_at(SHA1_DIGEST_AT.min(packet.len()));
    let behind = tail.get(SHA1_DIGEST_BYTES..).unwrap_or_default();
    Sha1::new().chain_update(head).chain_update(secret.0).chain_update(behind).finalize().into()
}

/// Key and sequence numbers of one session.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator {
    key: Key,
    /// Sequence number of the last sent packet (`bfd.XmitAuthSeq`).
    sent: u32,
    /// Last accepted sequence number (`bfd.RcvAuthSeq`); `None` while `bfd.AuthSeqKnown` is 0.
    received: Option<u32>,
}

impl Authenticator {
    /// Creates the authentication state of a session. `first`, the initial sequence number, must be random,
    /// so that an attacker who replays packets of an earlier session cannot predict it.
    pub(crate) const fn new(key: Key, first: u32) -> Self {
        Self { key, sent: first, received: None }
    }

    /// Encodes a packet with its authentication section. `repeated` is true if the content equals that of the
    /// previous packet; Keyed SHA1 then repeats the sequence number instead of increasing it.
    pub(crate) fn seal(&mut self, packet: &Packet, repeated: bool) -> Vec<u8> {
        let meticulous = self.key.algorithm == Algorithm::MeticulousKeyedSha1;
        if meticulous || !repeated {
            self.sent = self.sent.wrapping_add(1);
        }
        let unsigned = Sha1Section {
            meticulous,
            key_id: self.key.id,
            sequence: self.sent,
            digest: [0; SHA1_DIGEST_BYTES],
        };
        let digest = digest(&self.key.transmit, &wire::render(packet, Some(&unsigned)));
        wire::render(packet, Some(&Sha1Section { digest, ..unsigned }))
    }

    /// Accepts a packet only if its sequence number is in the accepted range and its digest is correct. A
    /// rejected packet changes no state, so that a forged packet cannot shift the range.
    pub(crate) fn verify(&mut self, received: &ReceivedPacket<'_>) -> Result<(), Refusal> {
        let section = match received.section {
            None => return Err(Refusal::AuthenticationMissing),
            Some(Section::Unsupported(_)) => return Err(Refusal::AuthenticationType),
            Some(Section::Sha1(section)) => section,
        };
        let meticulous = self.key.algorithm == Algorithm::MeticulousKeyedSha1;
        if section.meticulous != meticulous {
            return Err(Refusal::AuthenticationType);
        }
        if section.key_id != self.key.id {
            return Err(Refusal::KeyId);
        }
        if let Some(last) = self.received {
            let ahead = section.sequence.wrapping_sub(last);
            let window = u32::from(meticulous)..=3 * u32::from(received.packet.multiplier.get());
            if !window.contains(&ahead) {
                return Err(Refusal::Sequence);
            }
        }
        if !equal(&digest(&self.key.receive, received.bytes), &section.digest) {
            return Err(Refusal::Digest);
        }
        self.received = Some(section.sequence);
        Ok(())
    }

    /// Forgets the last received sequence number, so that the next packet may have any sequence number.
    pub(crate) const fn forget_sequence(&mut self) {
        self.received = None;
    }

    pub(crate) const fn knows_sequence(&self) -> bool {
        self.received.is_some()
    }
}

/// Compares two digests in constant time.
fn equal(one: &[u8; SHA1_DIGEST_BYTES], other: &[u8; SHA1_DIGEST_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_its_length_and_shows_nothing() {
        assert_eq!(Secret::new(b""), Err(SecretLength));
        assert_eq!(Secret::new(&[1; 21]), Err(SecretLength));
        let secret = Secret::new(b"open sesame").unwrap();
        let key = Key::symmetric(1, Algorithm::KeyedSha1, secret);
        let shown = format!("{key:?}");
        assert!(
            shown.contains("Secret(…)") && !shown.contains("sesame") && !shown.contains("111"),
            "{shown}"
        );
    }
}
