//! Keyed SHA1 and Meticulous Keyed SHA1 (RFC 5880 §6.7.4), with the windows of sequence numbers of §6.7.3.

use std::fmt;

use sha1::{Digest as _, Sha1};

use crate::{
    dialogue::Refusal,
    wire::{self, Packet, Received, SHA1_DIGEST_AT, SHA1_DIGEST_BYTES, Section, Sha1Section},
};

/// A shared secret of 1 to 20 bytes. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SHA1_DIGEST_BYTES]);

/// A secret that is empty or longer than 20 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a BFD secret has 1 to 20 bytes")]
pub struct SecretLength;

impl Secret {
    /// Takes the bytes of a secret. Zeros at the end make no difference: the protocol pads with them.
    ///
    /// # Errors
    /// There are none, or more than 20.
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

/// How strict sequence numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// The last sequence number may come again.
    KeyedSha1,
    /// Every packet has a new one. The better choice, unless a peer lacks it.
    MeticulousKeyedSha1,
}

/// What both ends know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The number of the key in packets.
    pub id: u8,
    /// How it is used.
    pub algorithm: Algorithm,
    /// What only the two know.
    pub secret: Secret,
}

impl Key {
    /// The digest of a packet that ends with a SHA1 section, made with the secret where the digest will be.
    fn digest(&self, packet: &[u8]) -> [u8; SHA1_DIGEST_BYTES] {
        let (head, tail) = packet.split_at(SHA1_DIGEST_AT.min(packet.len()));
        let behind = tail.get(SHA1_DIGEST_BYTES..).unwrap_or_default();
        Sha1::new().chain_update(head).chain_update(self.secret.0).chain_update(behind).finalize().into()
    }
}

/// The state of authentication of one session.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator {
    key: Key,
    /// `bfd.XmitAuthSeq`.
    sent: u32,
    /// `bfd.RcvAuthSeq`; `None` while `bfd.AuthSeqKnown` is 0.
    received: Option<u32>,
}

impl Authenticator {
    /// `first` is random: a peer that replays an earlier session must not guess it.
    pub(crate) const fn new(key: Key, first: u32) -> Self {
        Self { key, sent: first, received: None }
    }

    /// Writes a packet with its section. `repeated`: it says what the one before said.
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
        let digest = self.key.digest(&wire::render(packet, Some(&unsigned)));
        wire::render(packet, Some(&Sha1Section { digest, ..unsigned }))
    }

    /// Takes a packet only if its sequence number is in the window and its digest is right. A packet that is refused
    /// moves nothing, so a forged one cannot shift the window.
    pub(crate) fn verify(&mut self, received: &Received<'_>) -> Result<(), Refusal> {
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
        if !equal(&self.key.digest(received.bytes), &section.digest) {
            return Err(Refusal::Digest);
        }
        self.received = Some(section.sequence);
        Ok(())
    }

    /// Any sequence number will do for the next packet.
    pub(crate) const fn forget_sequence(&mut self) {
        self.received = None;
    }

    pub(crate) const fn knows_sequence(&self) -> bool {
        self.received.is_some()
    }
}

/// Compares without telling by its time where the difference is.
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
        let key = Key { id: 1, algorithm: Algorithm::KeyedSha1, secret };
        let shown = format!("{key:?}");
        assert!(
            shown.contains("Secret(…)") && !shown.contains("sesame") && !shown.contains("111"),
            "{shown}"
        );
    }
}
