//! Forgetting which source stayed on which target, when the frontend where it did is gone.
//!
//! Only packets fill these maps, and the kernel forgets by itself what no packet has used for the time of the affinity, which may be
//! a day. Until then what is left of a frontend that is gone would take places that others need, of which there are
//! [`super::schema::AFFINITY_CLIENTS_MAX`]. So after a removal the maps are read once, and what belongs to nothing goes.
//!
//! Nothing rests on it: a source goes only to a target that its frontend has, whatever is remembered, so that a
//! Service that comes back at the same address sends nobody to a former endpoint. Therefore it is done beside the
//! changes, in turns of [`super::Dataplane::upkeep`], and never more of it in a turn than [`FORGOTTEN_PER_TURN_MAX`].
//!
//! What is remembered of a target that is gone stays: while an endpoint is away for a moment, its clients are still known, and who
//! connects meanwhile is placed anew by the rules.

use std::io;

use model::program::Frontend;

use super::{
    NftablesBackend,
    element::{Key, frontend_of},
    kernel::Refused,
    mirror::Mirror,
    parse,
    render::{self, Command, ELEMENTS_PER_MESSAGE},
    schema::{SetId, SetRole},
};

/// Keys that go in one turn: so many take some ten transactions, and a full map is empty within half a minute.
const FORGOTTEN_PER_TURN_MAX: usize = 4_000;
/// Turns, of about a second, between two readings of the maps: a full one takes the kernel and us a tenth of a second.
const PAUSE: u32 = 5;
/// The same while something is remembered of frontends that have no target for the moment: if they go, nothing else is removed with them
/// that would tell.
const PAUSE_WAITING: u32 = 60;

/// Whether there is anything to forget, and when it is looked for.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    is_due: bool,
    /// Turns until the maps are read again.
    pause: u32,
}

impl Forgetting {
    /// Takes note that a target went at which sources may have stayed, or that nothing is known of what was before.
    pub(super) fn note(&mut self) {
        self.is_due = true;
        self.pause = self.pause.min(PAUSE);
    }

    /// Whether the maps are to be read in this turn.
    const fn turn(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.is_due && self.pause == 0
    }

    const fn conclude(&mut self, found: &Found) {
        self.is_due = found.is_more || found.is_waiting;
        self.pause = if found.is_more || !found.is_waiting { PAUSE } else { PAUSE_WAITING };
    }
}

/// What a reading of the maps has shown.
#[derive(Debug, Default)]
struct Found {
    /// Keys to forget.
    keys: Vec<Key>,
    /// Whether there are more of these.
    is_more: bool,
    /// Whether something is remembered of frontends without targets.
    is_waiting: bool,
}

/// What is to be done with what is remembered of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// There are targets to stay at.
    Keep,
    /// There may be targets again.
    Wait,
    /// The frontend is gone, or spreads its connections without remembering.
    Forget,
}

fn judge(mirror: &Mirror, frontend: &Frontend) -> Judgement {
    match mirror.frontends.get(frontend) {
        Some(held) if !held.affinity_targets.is_empty() => Judgement::Keep,
        Some(held) if held.pools.is_empty() => Judgement::Wait,
        Some(_) | None => Judgement::Forget,
    }
}

impl Found {
    fn take(&mut self, mirror: &Mirror, set: SetId, place: super::schema::Place, key: Key) {
        // Whatever is not a frontend at all was put there by somebody else, and the kernel will forget it.
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
    /// Forgets what belongs to no frontend, if it is time to.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        if !self.forgetting.turn() {
            return Ok(());
        }
        let mut concluded = Found::default();
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
            let read = self.netlink.dump(&dump, Found::default, |found, answer| {
                parse::for_each_element(map, answer, |element| {
                    if let Err(key) = element {
                        found.take(mirror, map, place, key);
                    }
                })
            });
            let found = match read {
                // Somebody has removed the table, which is somebody else's business here.
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

    /// Removes keys. The kernel refuses all of them when one is gone already, because its time was over: then halves are tried.
    fn forget_keys(&mut self, map: SetId, keys: &[Key]) -> io::Result<()> {
        let outcome = self.send(&[Command::DeleteKeys(map, keys.to_vec())])?;
        match outcome.map_err(Refused::to_error) {
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
    use crate::dataplane::nftables::{
        element::{Element, Slot, TargetId},
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
        let mut mirror = Mirror::default();
        assert_eq!(judge(&mirror, &frontend), Judgement::Forget, "it is gone");
        let sticky = Element::AffinityTarget(frontend, Pool::Workloads, TargetId::of(&target), target);
        mirror.insert(&sticky);
        assert_eq!(judge(&mirror, &frontend), Judgement::Keep);
        mirror.frontends.entry(frontend).or_default().affinity_targets.clear();
        assert_eq!(judge(&mirror, &frontend), Judgement::Wait, "it has no endpoints for the moment");
        mirror.insert(&Element::Slot(frontend, Slot { pool: Pool::Workloads, index: 0 }, target));
        assert_eq!(judge(&mirror, &frontend), Judgement::Forget, "it remembers nobody any more");
    }

    #[test]
    fn maps_are_read_after_a_removal_and_then_not_before_a_pause() {
        let mut forgetting = Forgetting::default();
        let turns_until_read = |forgetting: &mut Forgetting| (1..=100).find(|_| forgetting.turn());
        assert_eq!(turns_until_read(&mut forgetting), None, "nothing is due");
        forgetting.note();
        assert_eq!(turns_until_read(&mut forgetting), Some(1));
        forgetting.conclude(&Found { is_more: true, ..Found::default() });
        assert_eq!(turns_until_read(&mut forgetting), Some(PAUSE));
        forgetting.conclude(&Found { is_waiting: true, ..Found::default() });
        assert_eq!(turns_until_read(&mut forgetting), Some(PAUSE_WAITING));
        forgetting.conclude(&Found::default());
        assert_eq!(turns_until_read(&mut forgetting), None);
    }
}
