//! Cleanup of session affinity entries of removed groups (the frontends of a Service port).
//!
//! Only packets fill the affinity maps, and the kernel expires entries after the affinity timeout, which may
//! be a day. Until then entries of removed groups would take up space in a map, which holds at most
//! [`super::schema::AFFINITY_CLIENTS_MAX`] entries. So after a removal the maps are read once, and entries
//! without a group are deleted.
//!
//! Correctness does not depend on the cleanup: a source is only sent to a current target of its frontend, so a
//! Service that is created again at the same address sends no client to a former endpoint. Therefore the cleanup
//! runs apart from changes, in [`super::Dataplane::upkeep`], and deletes at most [`FORGOTTEN_PER_TURN_MAX`]
//! entries per turn.
//!
//! Entries of removed targets stay: if an endpoint is absent only briefly, its clients return to it
//! afterwards. A client that connects meanwhile is assigned to another target by the rules.

use std::io;

use kernel::nftables::transaction::RejectedTransaction;

use super::{
    NftablesBackend,
    element::{Key, group_of},
    mirror::NftablesMirror,
    parse,
    render::{self, ELEMENTS_PER_MESSAGE, NftCommand},
    schema::SetId,
};

/// Maximum number of keys deleted per turn (about one second). Deleting them takes about ten transactions; a full
/// map is empty within half a minute.
const FORGOTTEN_PER_TURN_MAX: usize = 4_000;
/// Number of turns, one per second, between two readings of the maps. Reading a full map takes a tenth of a
/// second.
const PAUSE: u32 = 5;

/// Schedule of the cleanup of session affinity entries: the turns, about one per second, in which the
/// affinity maps are read.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    is_due: bool,
    /// Number of turns until the maps are read again.
    pause: u32,
}

impl Forgetting {
    /// Schedules a cleanup, because a frontend with affinity was removed or the previous state is unknown.
    pub(super) fn note(&mut self) {
        self.is_due = true;
        self.pause = self.pause.min(PAUSE);
    }

    /// Advances the schedule by one turn (about a second). Returns true if the affinity maps must be read
    /// now.
    const fn turn(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.is_due && self.pause == 0
    }

    const fn conclude(&mut self, is_more: bool) {
        self.is_due = is_more;
        self.pause = PAUSE;
    }
}

/// Result of reading an affinity map: keys to delete in this pass, and whether another pass is needed.
#[derive(Debug, Default)]
struct MapsReading {
    /// Keys to delete in this pass, at most [`FORGOTTEN_PER_TURN_MAX`].
    keys: Vec<Key>,
    /// True if more keys remain to be deleted in a later pass.
    is_more: bool,
}

impl MapsReading {
    /// Notes the key of an entry for deletion if no frontend has the group of the entry.
    fn take(&mut self, mirror: &NftablesMirror, set: SetId, key: Key) {
        let is_current = |group| mirror.affinity_groups.contains_key(&(set.family, group));
        if group_of(&key.low).is_none_or(is_current) {
            return;
        }
        if self.keys.len() < FORGOTTEN_PER_TURN_MAX {
            self.keys.push(key);
        } else {
            self.is_more = true;
        }
    }
}

impl NftablesBackend {
    /// Deletes entries of groups that were removed or no longer use session affinity, if a cleanup is
    /// scheduled for this turn.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        if !self.forgetting.turn() {
            return Ok(());
        }
        let mut is_more = false;
        let is_affinity = |set: &SetId| set.is_dynamic();
        let maps: Vec<_> = mirror.structure.sets.iter().copied().filter(is_affinity).collect();
        for map in maps {
            let Some(mirror) = &self.mirror else { return Ok(()) };
            let dump = render::dump_elements(self.options.table, map);
            let read = self.netlink.dump(&dump, MapsReading::default, |found, answer| {
                parse::for_each_element(map, answer, |element| {
                    if let Err(key) = element {
                        found.take(mirror, map, key);
                    }
                })
            });
            let found = match read {
                // Another program has removed the table; that is handled elsewhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            for keys in found.keys.chunks(ELEMENTS_PER_MESSAGE) {
                self.forget_keys(map, keys)?;
            }
            is_more |= found.is_more;
        }
        self.forgetting.conclude(is_more);
        Ok(())
    }

    /// Deletes keys from an affinity map. If the entry of one key has already expired, the kernel rejects the
    /// whole transaction; then the keys are bisected.
    fn forget_keys(&mut self, map: SetId, keys: &[Key]) -> io::Result<()> {
        let outcome = self.send(&[NftCommand::DeleteKeys(map, keys.to_vec())])?;
        match outcome.map_err(RejectedTransaction::to_error) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Err(_) if keys.len() <= 1 => Ok(()),
            Err(_) => {
                let (first, second) = keys.split_at(keys.len() / 2);
                self.forget_keys(map, first)?;
                self.forget_keys(map, second)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{
        kinds::service::Protocol,
        primitives::{net::IpFamily, quantity::Port},
        program::{Destination, Frontend},
    };

    use super::*;
    use crate::nftables::{
        element::{GroupId, SetElement},
        schema::SetRole,
    };

    #[test]
    fn entries_stay_while_a_frontend_has_their_group() {
        let frontend = Frontend {
            destination: Destination::Address("10.96.0.1".parse().unwrap()),
            protocol: Protocol::Tcp,
            ports: Port::new(80).unwrap().into(),
        };
        let set = SetId::new(SetRole::Affinity, IpFamily::V4);
        let key = Key { low: [&7u32.to_ne_bytes()[..], &[192, 0, 2, 1]].concat(), high: None };
        let forgotten = |mirror: &NftablesMirror| {
            let mut found = MapsReading::default();
            found.take(mirror, set, key.clone());
            found.keys.len()
        };
        let mut mirror = NftablesMirror::default();
        assert_eq!(forgotten(&mirror), 1);
        mirror.insert(&SetElement::AffinityGroup(frontend, GroupId(7)));
        assert_eq!(forgotten(&mirror), 0);
        mirror.remove(&SetElement::AffinityGroup(frontend, GroupId(7)));
        mirror.insert(&SetElement::AffinityGroup(frontend, GroupId(8)));
        assert_eq!(forgotten(&mirror), 1);
    }

    #[test]
    fn maps_are_read_after_a_removal_and_then_not_before_a_pause() {
        let mut forgetting = Forgetting::default();
        let turns_until_read = |forgetting: &mut Forgetting| (1..=100).find(|_| forgetting.turn());
        assert_eq!(turns_until_read(&mut forgetting), None, "nothing is due");
        forgetting.note();
        assert_eq!(turns_until_read(&mut forgetting), Some(1));
        forgetting.conclude(true);
        assert_eq!(turns_until_read(&mut forgetting), Some(PAUSE));
        forgetting.conclude(false);
        assert_eq!(turns_until_read(&mut forgetting), None);
    }
}
