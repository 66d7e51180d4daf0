//! Owners of the slots of one frontend, and their transitions. Does no I/O.
//!
//! A slot that moves from one node to another leaves a trace at all nodes, because established connections stay with the
//! node that translates them: an old owner knows the new one, and the new owner knows the old ones.

use std::{collections::BTreeSet, net::IpAddr};

use kernel::owner_routes::{OwnerNumber, OwnerNumbers};
use model::program::Frontend;

use super::{
    super::{element::frontend_key, schema::Choice},
    schema::{OwnerRole, OwnerSet},
};

/// Number of former owners of a slot that are stored. A packet of an unknown connection is forwarded to them one after
/// another, and the time to live of a packet has room for this number (`Attempt`).
pub(super) const FORMER_OWNERS: usize = 3;

/// Owner of one slot, as this node needs to know it. The default is this node, from the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SlotOwner {
    /// Present owner; `None` for this node.
    owner: Option<OwnerNumber>,
    /// True if another node is the owner, after this one.
    was_here: bool,
    /// Former owners other than this node, in the order in which they are asked.
    formers: [Option<OwnerNumber>; FORMER_OWNERS],
}

impl SlotOwner {
    /// Returns the state of a slot that never had another owner than the contained node, or than this one for `None`.
    pub(super) const fn new(owner: Option<OwnerNumber>) -> Self {
        Self { owner, was_here: false, formers: [None; FORMER_OWNERS] }
    }

    /// Returns the state after the slot was assigned to `owner`, or to this node if `owner` is `None`. The latest owner is
    /// asked first. Nodes outside of `alive` are asked last, because a lost node would never return the packet; but the
    /// latest owner is always stored, because it may be draining.
    pub(super) fn after(self, owner: Option<OwnerNumber>, alive: &BTreeSet<OwnerNumber>) -> Self {
        let latest = self.owner.filter(|_| owner != self.owner);
        let all =
            latest.into_iter().chain(self.formers.into_iter().flatten().filter(|one| Some(*one) != latest));
        let mut all: Vec<_> = all.filter(|one| Some(*one) != owner).take(FORMER_OWNERS).collect();
        all.sort_by_key(|one| !alive.contains(one));
        let mut formers = [None; FORMER_OWNERS];
        formers.iter_mut().zip(all).for_each(|(place, one)| *place = Some(one));
        Self { owner, was_here: owner.is_some() && (self.was_here || self.owner.is_none()), formers }
    }

    /// Returns the maps that contain the slot, each with the node in it.
    fn entries(self) -> impl Iterator<Item = (OwnerRole, OwnerNumber)> {
        let role = if self.was_here { OwnerRole::Former } else { OwnerRole::Owners };
        let formers = OwnerRole::PREVIOUS.into_iter().zip(self.formers);
        let all = formers.chain([(role, self.owner)]);
        all.filter_map(|(role, number)| Some((role, number?)))
    }

    /// Adds the meaning of an element of a map. Returns false if the state contradicts it, or if the set has no slots.
    pub(super) fn add(&mut self, role: OwnerRole, number: OwnerNumber) -> bool {
        let place = match role {
            OwnerRole::Owners | OwnerRole::Former => {
                let was_here = role == OwnerRole::Former;
                // An interrupted dump starts again, so that an element may be seen twice.
                if self.owner.is_some() && self.was_here != was_here {
                    return false;
                }
                self.was_here = was_here;
                &mut self.owner
            }
            OwnerRole::Previous(index) => &mut self.formers[usize::from(index).min(FORMER_OWNERS - 1)],
            OwnerRole::Workloads | OwnerRole::BySource | OwnerRole::ByPort => return false,
        };
        let is_equal = place.is_none_or(|present| present == number);
        *place = Some(number);
        is_equal
    }

    /// Returns the other nodes of the state.
    pub(super) fn numbers(self) -> impl Iterator<Item = OwnerNumber> {
        self.entries().map(|(_, number)| number)
    }
}

/// Owners of all slots of a frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrontendOwners {
    /// Method by which a packet picks a slot; `None` if neither set contains the frontend, so that it has no effect.
    pub(super) choice: Option<Choice>,
    /// Owner of each slot.
    pub(super) slots: Vec<SlotOwner>,
}

/// Element of a set or map of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerElement {
    pub(super) set: OwnerSet,
    pub(super) key: Vec<u8>,
    /// Mark, in a map.
    pub(super) mark: Option<u32>,
}

impl FrontendOwners {
    /// Returns the owners after an assignment of all slots. `held` are the owners before; without them, no slot has
    /// moved. Returns `None` if an owner has no number.
    pub(super) fn assigned(
        held: Option<&Self>,
        choice: Choice,
        owners: &[Option<IpAddr>],
        numbers: &OwnerNumbers,
    ) -> Option<Self> {
        // A node that is lost has no slots any more.
        let alive: BTreeSet<_> =
            owners.iter().flatten().filter_map(|hop| numbers.get(hop)).copied().collect();
        // Slots have no meaning for connections before the frontend took the two-stage path.
        let before = held.filter(|held| held.choice == Some(choice));
        let mut slots = Vec::with_capacity(owners.len());
        for (slot, owner) in owners.iter().enumerate() {
            let owner = match owner {
                Some(hop) => Some(*numbers.get(hop)?),
                None => None,
            };
            let before = before.and_then(|held| held.slots.get(slot));
            slots.push(before.map_or(SlotOwner::new(owner), |before| before.after(owner, &alive)));
        }
        Some(Self { choice: Some(choice), slots })
    }

    /// Returns the elements of the frontend.
    pub(super) fn elements(&self, frontend: &Frontend) -> BTreeSet<OwnerElement> {
        let family = frontend.destination.family();
        let key = frontend_key(frontend);
        let role = self.choice.map(|choice| match choice {
            Choice::SourceAddressAndPort => OwnerRole::ByPort,
            Choice::SourceAddress | Choice::Random => OwnerRole::BySource,
        });
        let method =
            role.map(|role| OwnerElement { set: OwnerSet { role, family }, key: key.clone(), mark: None });
        let slots = (0u32..).zip(&self.slots).flat_map(|(slot, owner)| {
            let key = [&key[..], &slot.to_ne_bytes()].concat();
            owner.entries().map(move |(role, number)| OwnerElement {
                set: OwnerSet { role, family },
                key: key.clone(),
                mark: Some(number.mark()),
            })
        });
        slots.chain(method).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OwnerNumber = OwnerNumber(1);
    const TWO: OwnerNumber = OwnerNumber(2);
    const FOUR: [OwnerNumber; 4] = [ONE, TWO, OwnerNumber(3), OwnerNumber(4)];

    fn shown(state: SlotOwner) -> String {
        let all = state.entries().map(|(role, number)| format!("{role:?} {}", number.0));
        all.collect::<Vec<_>>().join(", ")
    }

    /// Follows a slot from owner to owner; 0 is this node.
    fn history(owners: &[u16], alive: &[OwnerNumber]) -> SlotOwner {
        let alive = alive.iter().copied().collect();
        let mut owners = owners.iter().map(|number| (*number > 0).then_some(OwnerNumber(*number)));
        let first = SlotOwner::new(owners.next().unwrap());
        owners.fold(first, |state, owner| state.after(owner, &alive))
    }

    /// The old and the new owner of a slot know each other, also after the slot returned, and the new owner knows all
    /// former ones, latest first.
    #[test]
    fn owners_of_a_moved_slot_know_each_other() {
        for (owners, state) in [
            (&[0, 0][..], ""),
            (&[0, 1], "Former 1"),
            (&[0, 1, 2], "Previous(0) 1, Former 2"),
            (&[0, 1, 0], "Previous(0) 1"),
            (&[0, 1, 0, 0, 2, 0], "Previous(0) 2, Previous(1) 1"),
            (&[1, 2], "Previous(0) 1, Owners 2"),
            (&[1, 2, 1], "Previous(0) 2, Owners 1"),
            (&[1, 2, 0], "Previous(0) 2, Previous(1) 1"),
            (&[1, 2, 3, 4, 0], "Previous(0) 4, Previous(1) 3, Previous(2) 2"),
        ] {
            assert_eq!(shown(history(owners, &FOUR)), state, "{owners:?}");
        }
    }

    /// A node without slots is asked last, and is forgotten before others, but not at once.
    #[test]
    fn lost_owners_are_asked_last() {
        assert_eq!(shown(history(&[1, 2, 0], &[ONE])), "Previous(0) 1, Previous(1) 2");
        let rest = shown(history(&[1, 2, 3, 4, 0], &[ONE, TWO]));
        assert_eq!(rest, "Previous(0) 2, Previous(1) 1, Previous(2) 4");
    }

    #[test]
    fn states_are_read_back_from_the_maps_that_contain_them() {
        for owners in [&[0][..], &[0, 1], &[1, 2, 0], &[1, 2, 3], &[0, 2, 1]] {
            let state = history(owners, &FOUR);
            let mut read = SlotOwner::default();
            for _ in 0..2 {
                assert!(state.entries().all(|(role, number)| read.add(role, number)));
            }
            assert_eq!(read, state);
        }
        let mut state = history(&[1], &FOUR);
        assert!(!state.add(OwnerRole::Owners, TWO));
        assert!(!state.add(OwnerRole::Former, ONE));
    }
}
