//! Peers with which each owner (user of BFD) requests a session. Owners that request the same peer share one
//! session. Does no I/O.

use std::collections::{BTreeMap, btree_map::Entry};

use ::bfd::Role;

use super::peers::{PEERS_MAX, PeerKey, SessionConfig, TooManyPeers};

/// Identifier of an owner (user of BFD), one for each [`super::Bfd`] handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) u32);

/// Requested peers with their configuration, by owner (user of BFD).
#[derive(Debug, Default)]
pub(super) struct Wants(BTreeMap<Owner, BTreeMap<PeerKey, SessionConfig>>);

impl Wants {
    /// Replaces the peers that an owner requests. Returns all requested peers, with the configurations of all
    /// owners merged. If these are more than [`PEERS_MAX`] peers, returns an error and changes nothing.
    pub(super) fn set(
        &mut self,
        owner: Owner,
        wanted: BTreeMap<PeerKey, SessionConfig>,
    ) -> Result<BTreeMap<PeerKey, SessionConfig>, TooManyPeers> {
        let before = self.0.insert(owner, wanted);
        let all = self.all();
        if all.len() > PEERS_MAX {
            match before {
                Some(before) => self.0.insert(owner, before),
                None => self.0.remove(&owner),
            };
            return Err(TooManyPeers { wanted: all.len() });
        }
        Ok(all)
    }

    /// Returns true if this owner requests the peer.
    pub(super) fn has(&self, owner: Owner, key: &PeerKey) -> bool {
        self.0.get(&owner).is_some_and(|wanted| wanted.contains_key(key))
    }

    fn all(&self) -> BTreeMap<PeerKey, SessionConfig> {
        let mut all = BTreeMap::new();
        for (key, config) in self.0.values().flatten() {
            match all.entry(*key) {
                Entry::Vacant(vacant) => {
                    vacant.insert(config.clone());
                }
                Entry::Occupied(mut shared) => {
                    let both = share(shared.get(), config);
                    shared.insert(both);
                }
            }
        }
        all
    }
}

/// Merges the configurations that two owners (users of BFD) request for the same peer. Uses the intervals and
/// the multiplier with the shorter detection time, and the active role if either owner requests it. The reach
/// (single-hop or multihop) and the key are those of `first`, the older owner.
fn share(first: &SessionConfig, second: &SessionConfig) -> SessionConfig {
    let silence = |config: &SessionConfig| config.transmit.duration() * u32::from(config.multiplier.get());
    let sooner = if silence(second) < silence(first) { second } else { first };
    let is_active = first.role == Role::Active || second.role == Role::Active;
    SessionConfig {
        transmit: sooner.transmit,
        receive: sooner.receive,
        multiplier: sooner.multiplier,
        role: if is_active { Role::Active } else { Role::Passive },
        reach: first.reach,
        auth: first.auth.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, num::NonZeroU8, time::Duration};

    use ::bfd::Interval;

    use super::*;

    const FIRST: Owner = Owner(0);
    const SECOND: Owner = Owner(1);

    fn key(last: u16) -> PeerKey {
        let [high, low] = last.to_be_bytes();
        PeerKey { local: IpAddr::from([192, 0, 2, 1]), peer: IpAddr::from([198, 51, high, low]) }
    }

    fn every(millis: u64, multiplier: u8) -> SessionConfig {
        let interval = Interval::new(Duration::from_millis(millis)).unwrap();
        SessionConfig::new(interval, NonZeroU8::new(multiplier).unwrap(), None)
    }

    #[test]
    fn a_peer_of_two_owners_is_one_session_that_suits_both() {
        let mut wants = Wants::default();
        wants.set(FIRST, [(key(1), every(300, 3)), (key(2), every(300, 3))].into()).unwrap();
        let passive = SessionConfig { role: Role::Passive, ..every(100, 5) };
        let all = wants.set(SECOND, [(key(2), passive.clone()), (key(3), passive.clone())].into()).unwrap();
        let both = SessionConfig { role: Role::Active, ..every(100, 5) };
        assert_eq!(all, [(key(1), every(300, 3)), (key(2), both), (key(3), passive)].into());
        assert!(wants.has(SECOND, &key(2)) && !wants.has(SECOND, &key(1)));
        // The longer interval of one owner does not slow down the other.
        let all = wants.set(SECOND, [(key(2), every(1000, 3))].into()).unwrap();
        assert_eq!(all[&key(2)], every(300, 3));
        // Peers that no owner wants are removed; peers of other owners stay.
        let all = wants.set(FIRST, BTreeMap::new()).unwrap();
        assert_eq!(all, [(key(2), every(1000, 3))].into());
    }

    #[test]
    fn too_many_peers_of_all_owners_together_change_nothing() {
        let mut wants = Wants::default();
        let most = u16::try_from(PEERS_MAX).unwrap();
        wants.set(FIRST, (1..most).map(|last| (key(last), every(300, 3))).collect()).unwrap();
        wants.set(SECOND, [(key(0), every(300, 3))].into()).unwrap();
        let more = [(key(most), every(300, 3)), (key(most + 1), every(300, 3))].into();
        assert_eq!(wants.set(SECOND, more), Err(TooManyPeers { wanted: PEERS_MAX + 1 }));
        assert!(wants.has(SECOND, &key(0)) && !wants.has(SECOND, &key(most)));
    }
}
