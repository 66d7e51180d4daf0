//! Owners of the slots of one frontend, and their transitions. Does no I/O.
//!
//! A slot that moves from one node to another leaves a trace at both, because established connections stay with the
//! node that translates them: the old owner knows the new one, and the new owner knows the old one.

use std::{collections::BTreeSet, net::IpAddr};

use kernel::owner_routes::{OwnerNumber, OwnerNumbers};
use model::program::Frontend;

use super::{
    super::{element::frontend_key, schema::Choice},
    schema::{OwnerRole, OwnerSet},
};

/// Owner of one slot, as this node needs to know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SlotOwner {
    /// This node, from the beginning.
    #[default]
    Here,
    /// This node, after the contained one.
    HereAfter(OwnerNumber),
    /// The contained node.
    Elsewhere(OwnerNumber),
    /// The contained node, after this one.
    LeftFor(OwnerNumber),
}

impl SlotOwner {
    /// Returns the state after the slot was assigned to `owner`, or to this node if `owner` is `None`.
    pub(super) const fn after(self, owner: Option<OwnerNumber>) -> Self {
        match (self, owner) {
            (Self::Here | Self::HereAfter(_) | Self::LeftFor(_), Some(owner)) => Self::LeftFor(owner),
            (Self::Elsewhere(_), Some(owner)) => Self::Elsewhere(owner),
            (Self::Elsewhere(former) | Self::LeftFor(former) | Self::HereAfter(former), None) => {
                Self::HereAfter(former)
            }
            (Self::Here, None) => Self::Here,
        }
    }

    /// Returns the map that contains the slot, and the owner in it; `None` if no map does.
    const fn entry(self) -> Option<(OwnerRole, OwnerNumber)> {
        match self {
            Self::Here => None,
            Self::HereAfter(former) => Some((OwnerRole::Previous, former)),
            Self::Elsewhere(owner) => Some((OwnerRole::Owners, owner)),
            Self::LeftFor(owner) => Some((OwnerRole::Former, owner)),
        }
    }

    /// Returns the state that an element of a map means; `None` if the set has no slots.
    pub(super) const fn of_entry(role: OwnerRole, owner: OwnerNumber) -> Option<Self> {
        match role {
            OwnerRole::Owners => Some(Self::Elsewhere(owner)),
            OwnerRole::Former => Some(Self::LeftFor(owner)),
            OwnerRole::Previous => Some(Self::HereAfter(owner)),
            OwnerRole::Workloads | OwnerRole::BySource | OwnerRole::ByPort => None,
        }
    }

    /// Returns the other node of the state, if there is one.
    pub(super) fn number(self) -> Option<OwnerNumber> {
        self.entry().map(|(_, number)| number)
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
        let mut slots = Vec::with_capacity(owners.len());
        for (slot, owner) in owners.iter().enumerate() {
            let owner = match owner {
                Some(hop) => Some(*numbers.get(hop)?),
                None => None,
            };
            // Slots have no meaning for connections before the frontend took the two-stage path.
            let before = held.filter(|held| held.choice == Some(choice));
            let before = before.and_then(|held| held.slots.get(slot)).copied();
            slots.push(match (before, owner) {
                (Some(before), owner) => before.after(owner),
                (None, Some(owner)) => SlotOwner::Elsewhere(owner),
                (None, None) => SlotOwner::Here,
            });
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
        let slots = (0u32..).zip(&self.slots).filter_map(|(slot, owner)| {
            let (role, number) = owner.entry()?;
            let key = [&key[..], &slot.to_ne_bytes()].concat();
            Some(OwnerElement { set: OwnerSet { role, family }, key, mark: Some(number.mark()) })
        });
        slots.chain(method).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OwnerNumber = OwnerNumber(1);
    const TWO: OwnerNumber = OwnerNumber(2);

    /// Both the old and the new owner of a slot know each other, also after the slot returned.
    #[test]
    fn owners_of_a_moved_slot_know_each_other() {
        let elsewhere = SlotOwner::Elsewhere(ONE);
        assert_eq!(SlotOwner::Here.after(None), SlotOwner::Here);
        assert_eq!(SlotOwner::Here.after(Some(ONE)), SlotOwner::LeftFor(ONE));
        assert_eq!(SlotOwner::LeftFor(ONE).after(Some(TWO)), SlotOwner::LeftFor(TWO));
        assert_eq!(SlotOwner::LeftFor(ONE).after(None), SlotOwner::HereAfter(ONE));
        assert_eq!(SlotOwner::HereAfter(ONE).after(None), SlotOwner::HereAfter(ONE));
        assert_eq!(SlotOwner::HereAfter(ONE).after(Some(TWO)), SlotOwner::LeftFor(TWO));
        assert_eq!(elsewhere.after(Some(TWO)), SlotOwner::Elsewhere(TWO), "this node never had it");
        assert_eq!(elsewhere.after(None), SlotOwner::HereAfter(ONE));
    }

    #[test]
    fn states_are_read_back_from_the_maps_that_contain_them() {
        for state in [SlotOwner::HereAfter(ONE), SlotOwner::Elsewhere(TWO), SlotOwner::LeftFor(ONE)] {
            let (role, number) = state.entry().unwrap();
            assert_eq!(SlotOwner::of_entry(role, number), Some(state));
        }
        assert_eq!(SlotOwner::Here.entry(), None);
    }
}
