//! Authentication state of a session, with the change of its key while the session is up.
//!
//! The two systems of a session get a new key at different times. Until one of them has it, the session would
//! reject every packet and end, as if the path had failed. A session that is up therefore continues with both keys:
//!
//! ```text
//!   key changed ──▶ transmit each packet twice, with the previous and with the new key; accept both
//!   packet with the new key accepted, session down, or KEY_CHANGE_TIME over ──▶ new key only
//! ```
//! A packet with the new key proves that the peer has the new key and accepts it. Each key has sequence numbers of
//! its own. A session that is not up uses the new key only, so that the previous one cannot bring a session up.

use std::time::{Duration, Instant};

use crate::{
    auth::{Authenticator, Key},
    dialogue::Refusal,
    wire::{Packet, ReceivedPacket},
};

/// Maximum time for which a session that is up also uses its previous key. Longer than an agent needs to reconnect
/// to a control server, from which it receives new keys.
pub const KEY_CHANGE_TIME: Duration = Duration::from_secs(30);

/// Key of a session and, during a change, its previous key.
#[derive(Debug, Clone)]
pub(crate) struct Authentication {
    current: Authenticator,
    previous: Option<PreviousKey>,
}

#[derive(Debug, Clone)]
struct PreviousKey {
    authenticator: Authenticator,
    until: Instant,
}

impl Authentication {
    /// Creates the state of a session with one key. `first` is the random initial sequence number.
    pub(crate) const fn new(key: Key, first: u32) -> Self {
        Self { current: Authenticator::new(key, first), previous: None }
    }

    /// Replaces the key of a session that is up. If the peer has not confirmed the present key yet, the one before
    /// it remains the previous key.
    pub(crate) fn change(&mut self, key: Key, first: u32, now: Instant) {
        let replaced = std::mem::replace(&mut self.current, Authenticator::new(key, first));
        let until = now + KEY_CHANGE_TIME;
        self.previous.get_or_insert(PreviousKey { authenticator: replaced, until });
    }

    /// Ends the use of the previous key.
    pub(crate) fn end_change(&mut self) {
        self.previous = None;
    }

    /// Returns the time at which the use of the previous key ends, or `None` outside of a change.
    pub(crate) fn change_ends_at(&self) -> Option<Instant> {
        self.previous.as_ref().map(|previous| previous.until)
    }

    /// Encodes a packet once for each key in use. `repeated` is true if the content equals that of the previous
    /// packet.
    pub(crate) fn seal(&mut self, packet: &Packet, repeated: bool) -> Vec<Vec<u8>> {
        let previous = self.previous.as_mut().map(|previous| &mut previous.authenticator);
        let all = previous.into_iter().chain([&mut self.current]);
        all.map(|authenticator| authenticator.seal(packet, repeated)).collect()
    }

    /// Accepts a packet that one of the keys in use authenticates. A packet with the current key ends a change.
    /// Otherwise returns the refusal by the current key.
    pub(crate) fn verify(&mut self, received: &ReceivedPacket<'_>) -> Result<(), Refusal> {
        let refused = match self.current.verify(received) {
            Ok(()) => {
                self.end_change();
                return Ok(());
            }
            Err(refused) => refused,
        };
        let previous = self.previous.as_mut().map(|previous| previous.authenticator.verify(received));
        previous.unwrap_or(Err(refused)).map_err(|_| refused)
    }

    /// Forgets the last received sequence number, so that the next packet may have any sequence number.
    pub(crate) const fn forget_sequence(&mut self) {
        self.current.forget_sequence();
    }

    pub(crate) const fn knows_sequence(&self) -> bool {
        self.current.knows_sequence()
    }
}
