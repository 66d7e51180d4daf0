//! Cleanup of session affinity entries of removed frontends.
//!
//! Only packets fill the affinity maps, and the kernel expires entries after the affinity timeout, which may
//! be a day. Until then entries of removed frontends would take up space in a map, which holds at most
//! [`super::schema::AFFINITY_CLIENTS_MAX`] entries. So after a removal the maps are read once, and entries
//! without a frontend are deleted.
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
use model::program::Frontend;

use super::{
    NftablesBackend,
    element::{Key, frontend_of},
    mirror::NftablesMirror,
    parse,
    render::{self, ELEMENTS_PER_MESSAGE, NftCommand},
    schema::{SetId, SetRole},
};

/// Maximum number of keys deleted per turn (about one second). Deleting them takes about ten transactions; a full
/// map is empty within half a minute.
const FORGOTTEN_PER_TURN_MAX: usize = 4_000;
/// Number of turns, one per second, between two readings of the maps. Reading a full map takes a tenth of a
/// second.
const PAUSE: u32 = 5;
/// Number of turns between two readings of the maps while they contain entries of frontends without targets.
/// The removal of such a frontend removes no target, and therefore does not trigger a cleanup.
const PAUSE_WAITING: u32 = 60;

/// Schedule of the cleanup of session affinity entries: the turns, about one per second, in which the
/// affinity maps are read.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    is_due: bool,
    /// Number of turns until the maps are read again.
    pause: u32,
}

impl Forgetting {
    /// Schedules a cleanup, because a target with affinity was removed or the previous state is unknown.
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

    const fn conclude(&mut self, found: &MapsReading) {
        self.is_due = found.is_more || found.is_waiting;
        self.pause = if found.is_more || !found.is_waiting { PAUSE } else { PAUSE_WAITING };
    }
}

/// Result of reading the affinity maps: keys to delete in this pass, and reasons for another pass.
#[derive(Debug, Default)]
struct MapsReading {
    /// Keys to delete in this pass, at most [`FORGOTTEN_PER_TURN_MAX`].
    keys: Vec<Key>,
    /// True if more keys remain to be deleted in a later pass.
    is_more: bool,
    /// True if a frontend that currently has no target has entries. Such entries are kept for the time being.
    is_waiting: bool,
}

/// Decision about the affinity entries of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// Decision to keep the entries: the frontend has targets with session affinity.
    Keep,
    /// Decision to keep the entries for now: the frontend has no target, but may get one again.
    Wait,
    /// Decision to delete the entries: the frontend was removed, or no longer uses session affinity.
    Forget,
}

fn judge(mirror: &NftablesMirror, frontend: &Frontend) -> Judgement {
    match mirror.frontends.get(frontend) {
        Some(held) if !held.affinity_targets.is_empty() => Judgement::Keep,
        Some(held) if held.pools.is_empty() => Judgement::Wait,
        Some(_) | None => Judgement::Forget,
    }
}

impl MapsReading {
    fn take(&mut self, mirror: &NftablesMirror, set: SetId, place: super::schema::LookupType, key: Key) {
        // A key that is no frontend was added by another program; the kernel will expire it.
        let Some(frontend) = frontend_of(place, set.family, &key.low) else { return };
        match judge(mirror, &frontend) {
            Judgement::Keep => {}
            Judgement::Wait => self.is_waiting = true,
            Judgement::Forget if self.keys.len() < FORGOTTEN_PER_TURN_MAX => self.keys.push(key),
            Judgement::Forget => self.is_more = true,
        }
    }
}

impl NftablesBackend {
    /// Deletes entries of frontends that were removed or no longer use session affinity, if a cleanup is
    /// scheduled for this turn.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        if !self.forgetting.turn() {
            return Ok(());
        }
        let mut concluded = MapsReading::default();
        let maps = mirror.structure.sets.iter().filter_map(|set| match set.role {
            SetRole::Affinity(place) => Some((*set, place)),
            SetRole::Chains(_)
            | SetRole::ChainsFrom(_)
            | SetRole::Dispatch(_)
            | SetRole::DispatchFrom(..)
            | SetRole::Endpoints(_)
            | SetRole::AffinitySlots(_)
            | SetRole::AffinityTargets(..)
            | SetRole::AllowedSources(_)
            | SetRole::Ranges
            | SetRole::VirtualAddresses
            | SetRole::Hairpins
            | SetRole::Networks(_) => None,
        });
        let maps: Vec<_> = maps.collect();
        for (map, place) in maps {
            let Some(mirror) = &self.mirror else { return Ok(()) };
            let dump = render::dump_elements(self.options.table, map);
            let read = self.netlink.dump(&dump, MapsReading::default, |found, answer| {
                parse::for_each_element(map, answer, |element| {
                    if let Err(key) = element {
                        found.take(mirror, map, place, key);
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
            concluded.is_more |= found.is_more;
            concluded.is_waiting |= found.is_waiting;
        }
        self.forgetting.conclude(&concluded);
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
        primitives::quantity::Port,
        program::{Destination, Target},
    };

    use super::*;
    use crate::nftables::{
        element::{SetElement, Slot, TargetId},
        schema::Pool,
    };

    #[test]
    fn what_is_remembered_stays_while_there_is_a_target_or_may_be_one() {
        let port = Port::new(80).unwrap();
        let address = "10.96.0.1".parse().unwrap();
        let frontend = Frontend {
            destination: Destination::Address(address),
            protocol: Protocol::Tcp,
            ports: port.into(),
        };
        let target = Target { address: "10.1.1.2".parse().unwrap(), port: Some(port) };
        let mut mirror = NftablesMirror::default();
        assert_eq!(judge(&mirror, &frontend), Judgement::Forget, "it is gone");
        let sticky = SetElement::AffinityTarget(frontend, Pool::Workloads, TargetId::of(&target), target);
        mirror.insert(&sticky);
        assert_eq!(judge(&mirror, &frontend), Judgement::Keep);
        mirror.frontends.entry(frontend).or_default().affinity_targets.clear();
        assert_eq!(judge(&mirror, &frontend), Judgement::Wait, "it has no endpoints for the moment");
        mirror.insert(&SetElement::Slot(frontend, Slot { pool: Pool::Workloads, index: 0 }, target));
        assert_eq!(judge(&mirror, &frontend), Judgement::Forget, "it remembers nobody any more");
    }

    #[test]
    fn maps_are_read_after_a_removal_and_then_not_before_a_pause() {
        let mut forgetting = Forgetting::default();
        let turns_until_read = |forgetting: &mut Forgetting| (1..=100).find(|_| forgetting.turn());
        assert_eq!(turns_until_read(&mut forgetting), None, "nothing is due");
        forgetting.note();
        assert_eq!(turns_until_read(&mut forgetting), Some(1));
        forgetting.conclude(&MapsReading { is_more: true, ..MapsReading::default() });
        assert_eq!(turns_until_read(&mut forgetting), Some(PAUSE));
        forgetting.conclude(&MapsReading { is_waiting: true, ..MapsReading::default() });
        assert_eq!(turns_until_read(&mut forgetting), Some(PAUSE_WAITING));
        forgetting.conclude(&MapsReading::default());
        assert_eq!(turns_until_read(&mut forgetting), None);
    }
}
