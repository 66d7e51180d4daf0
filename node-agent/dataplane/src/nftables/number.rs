//! Dispatch numbers: integers that identify chains. The maps that assign a chain to each frontend contain
//! these numbers instead of verdicts (see [`super::schema`]).
//!
//! A pick chain picks one of `slots` targets; `kind` is the index of its combination of masquerading, pool,
//! pick method and treatment, below `kinds`; `seconds` is the affinity timeout.
//! ```text
//! 0x0000_0000 + kind · 2¹⁵ + slots                       pick chains, 1–16,384 slots
//! 0x0100_0000 + ((seconds − 1) · kinds + kind) · 513 + s  pick chains with affinity: s is slots − 1, or 512 for 16,384 slots
//! 0xffff_0001…                                            refuse, discard, by-source, checked
//! ```
//! A number encodes everything about its chain except the lookup type, which is in the map's name. So a
//! number is as stable as the chain name, and a listing can be read without a translation table.

use model::program::Masquerade;

use super::{
    element::FrontendChain,
    schema::{
        AFFINITY_SECONDS_MAX, AFFINITY_SLOTS_MAX, Choice, LookupType, Pick, Pool, SLOTS_MAX, TARGETS_MAX,
        Treatment,
    },
};

const MASQUERADES: [Masquerade; 3] = [Masquerade::OffCluster, Masquerade::Always, Masquerade::Never];
const CHOICES: [Choice; 3] = [Choice::Random, Choice::SourceAddress, Choice::SourceAddressAndPort];
const ACTIONS: [Treatment; 3] = [Treatment::Translate, Treatment::TranslateAddress, Treatment::Redirect];
/// Number of possible combinations of masquerading, pool, pick method and treatment.
const KINDS: u32 = 81;
/// Number of bits for the slot count, which is at most [`TARGETS_MAX`].
const SLOT_BITS: u32 = 15;
/// First dispatch number of pick chains with session affinity.
const AFFINITY: u32 = 0x0100_0000;
/// Number of possible slot counts of chains with affinity: 1–[`AFFINITY_SLOTS_MAX`], and [`TARGETS_MAX`].
const AFFINITY_SLOTS: u32 = AFFINITY_SLOTS_MAX + 1;
const REFUSE: u32 = 0xffff_0001;
const DISCARD: u32 = 0xffff_0002;
const BY_SOURCE: u32 = 0xffff_0003;
const CHECKED: u32 = 0xffff_0004;

const _: () = {
    assert!(SLOTS_MAX <= TARGETS_MAX && TARGETS_MAX < 1 << SLOT_BITS);
    assert!(KINDS << SLOT_BITS < AFFINITY);
    assert!(
        AFFINITY as u64 + AFFINITY_SECONDS_MAX as u64 * KINDS as u64 * AFFINITY_SLOTS as u64 <= REFUSE as u64
    );
};

/// Returns the dispatch number of a chain: an integer that identifies the chain, unique within a lookup type.
///
/// A chain without a number ([`has_number`] returns false) yields the number of another chain; the table never
/// contains such a chain.
pub(super) fn number(dispatch: FrontendChain) -> u32 {
    match dispatch {
        FrontendChain::Forward(pick) => pick_number(&pick),
        FrontendChain::Refuse => REFUSE,
        FrontendChain::Discard => DISCARD,
        FrontendChain::BySource(_) => BY_SOURCE,
        FrontendChain::Checked(_) => CHECKED,
    }
}

/// Returns the chain that a dispatch number identifies among the chains of the lookup type `place`; `None` if
/// there is none.
pub(super) fn numbered(place: LookupType, number: u32) -> Option<FrontendChain> {
    let dispatch = match number {
        REFUSE => FrontendChain::Refuse,
        DISCARD => FrontendChain::Discard,
        BY_SOURCE => FrontendChain::BySource(place),
        CHECKED => FrontendChain::Checked(place),
        _ => FrontendChain::Forward(numbered_pick(place, number)?),
    };
    Some(dispatch)
}

/// Returns true if the chain has a dispatch number. A chain with session affinity has one only if its slot
/// count is at most [`AFFINITY_SLOTS_MAX`] or equal to [`TARGETS_MAX`].
pub(super) fn has_number(pick: Pick) -> bool {
    let slots = match pick.affinity_seconds {
        Some(seconds) => {
            (1..=AFFINITY_SECONDS_MAX).contains(&seconds)
                && ((1..=AFFINITY_SLOTS_MAX).contains(&pick.slots) || pick.slots == TARGETS_MAX)
        }
        None => (1..=TARGETS_MAX).contains(&pick.slots),
    };
    slots && numbered_pick(pick.place, pick_number(&pick)) == Some(pick)
}

fn pick_number(pick: &Pick) -> u32 {
    let kind = kind(pick);
    pick.affinity_seconds.map_or((kind << SLOT_BITS) | pick.slots, |seconds| {
        let slots = pick.slots.saturating_sub(1).min(AFFINITY_SLOTS_MAX);
        AFFINITY
            + (seconds.clamp(1, AFFINITY_SECONDS_MAX) - 1) * (KINDS * AFFINITY_SLOTS)
            + kind * AFFINITY_SLOTS
            + slots
    })
}

fn numbered_pick(place: LookupType, number: u32) -> Option<Pick> {
    let (kind, slots, affinity_seconds) = if let Some(number) = number.checked_sub(AFFINITY) {
        let (number, slots) = (number / AFFINITY_SLOTS, number % AFFINITY_SLOTS);
        let seconds = number / KINDS + 1;
        let slots = if slots == AFFINITY_SLOTS_MAX { TARGETS_MAX } else { slots + 1 };
        (number % KINDS, slots, Some(seconds).filter(|seconds| *seconds <= AFFINITY_SECONDS_MAX).map(Some)?)
    } else {
        let slots = number & ((1 << SLOT_BITS) - 1);
        (number >> SLOT_BITS, Some(slots).filter(|slots| (1..=TARGETS_MAX).contains(slots))?, None)
    };
    let digit = |weight: u32| usize::try_from(kind / weight % 3).ok();
    Some(Pick {
        place,
        masquerade: *MASQUERADES.get(usize::try_from(kind / 27).ok()?)?,
        pool: *Pool::ALL.get(digit(9)?)?,
        slots,
        choice: *CHOICES.get(digit(3)?)?,
        action: *ACTIONS.get(digit(1)?)?,
        affinity_seconds,
    })
}

/// Returns the index, below [`KINDS`], of the combination of masquerading, pool, pick method and destination
/// translation of a pick chain.
fn kind(pick: &Pick) -> u32 {
    let masquerade = match pick.masquerade {
        Masquerade::OffCluster => 0,
        Masquerade::Always => 1,
        Masquerade::Never => 2,
    };
    let pool = match pick.pool {
        Pool::Workloads => 0,
        Pool::Node => 1,
        Pool::Elsewhere => 2,
    };
    let choice = match pick.choice {
        Choice::Random => 0,
        Choice::SourceAddress => 1,
        Choice::SourceAddressAndPort => 2,
    };
    let action = match pick.action {
        Treatment::Translate => 0,
        Treatment::TranslateAddress => 1,
        Treatment::Redirect => 2,
    };
    ((masquerade * 3 + pool) * 3 + choice) * 3 + action
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_pick() -> impl Strategy<Value = Pick> {
        let slots = prop_oneof![
            (1..=TARGETS_MAX).prop_map(|slots| (slots, None)),
            (prop_oneof![1..=AFFINITY_SLOTS_MAX, Just(TARGETS_MAX)], 1..=AFFINITY_SECONDS_MAX)
                .prop_map(|(slots, seconds)| (slots, Some(seconds)))
        ];
        let kind = (
            prop::sample::select(MASQUERADES.to_vec()),
            prop::sample::select(Pool::ALL.to_vec()),
            prop::sample::select(CHOICES.to_vec()),
            prop::sample::select(ACTIONS.to_vec()),
        );
        (prop::sample::select(LookupType::ALL.to_vec()), kind, slots).prop_map(
            |(place, (masquerade, pool, choice, action), (slots, affinity_seconds))| Pick {
                place,
                masquerade,
                pool,
                slots,
                choice,
                action,
                affinity_seconds,
            },
        )
    }

    proptest! {
        #[test]
        fn every_chain_has_a_number_that_says_it(pick in any_pick()) {
            prop_assert!(has_number(pick));
            let forward = FrontendChain::Forward(pick);
            prop_assert_eq!(numbered(pick.place, number(forward)), Some(forward));
        }

        #[test]
        fn a_number_says_at_most_one_chain(shown in any::<u32>(), place in prop::sample::select(LookupType::ALL.to_vec())) {
            if let Some(dispatch) = numbered(place, shown) {
                prop_assert_eq!(number(dispatch), shown);
            }
        }
    }

    #[test]
    fn the_limits_of_slots_and_seconds_have_numbers() {
        let plain = Pick {
            place: LookupType::Address,
            masquerade: Masquerade::Never,
            pool: Pool::Elsewhere,
            slots: TARGETS_MAX,
            choice: Choice::SourceAddressAndPort,
            action: Treatment::Redirect,
            affinity_seconds: None,
        };
        let sticky = Pick { affinity_seconds: Some(AFFINITY_SECONDS_MAX), ..plain };
        let few = Pick { slots: AFFINITY_SLOTS_MAX, ..sticky };
        let mut numbers: Vec<u32> =
            [plain, sticky, few].map(|pick| number(FrontendChain::Forward(pick))).to_vec();
        assert!([plain, sticky, few].into_iter().all(has_number));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3);
        assert!(!has_number(Pick { slots: AFFINITY_SLOTS_MAX + 1, ..sticky }));
        assert!(!has_number(Pick { slots: TARGETS_MAX + 1, ..plain }));
        assert!(!has_number(Pick { affinity_seconds: Some(AFFINITY_SECONDS_MAX + 1), ..few }));
        assert_eq!(numbered(LookupType::Address, 0), None);
        assert_eq!(numbered(LookupType::Address, u32::MAX), None);
    }
}
