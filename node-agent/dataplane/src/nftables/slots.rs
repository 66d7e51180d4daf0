//! Conversion of weights to slots: number and positions of each target's slots.
//!
//! A new connection picks one slot at random, so a target's share is its number of slots. Slots keep their
//! targets where possible, so that a change writes as few elements as possible.

use std::collections::BTreeMap;

use model::{primitives::quantity::Weight, program::Target};

use super::schema::{AFFINITY_SLOTS_MAX, SLOTS_MAX, TARGETS_MAX};

/// Returns the number of slots of each target; a connection picks one slot at random. The counts are exactly
/// proportional to the weights if that takes at most [`SLOTS_MAX`] slots, otherwise rounded, with at least
/// one slot for each weight above 0. The sum is at most `SLOTS_MAX` or the number of targets, whichever is
/// larger.
#[must_use]
pub fn counts(weights: &BTreeMap<Target, Weight>) -> BTreeMap<Target, u32> {
    up_to(SLOTS_MAX, shares(weights))
}

/// Returns the number of slots of each target of a frontend with session affinity; a connection picks one
/// slot. The sum is at most [`AFFINITY_SLOTS_MAX`] or, for more targets than that, exactly [`TARGETS_MAX`].
#[must_use]
pub fn affinity_counts(weights: &BTreeMap<Target, Weight>) -> BTreeMap<Target, u32> {
    let shares = shares(weights);
    let is_many = u32::try_from(shares.len()).is_ok_and(|targets| targets > AFFINITY_SLOTS_MAX);
    if is_many { quantise(&shares, total(&shares), TARGETS_MAX) } else { up_to(AFFINITY_SLOTS_MAX, shares) }
}

/// Returns the weights above 0, divided by their greatest common divisor.
fn shares(weights: &BTreeMap<Target, Weight>) -> BTreeMap<Target, u32> {
    let weights = || weights.iter().filter(|(_, weight)| weight.0 > 0);
    let divisor = weights().map(|(_, weight)| u32::from(weight.0)).fold(0, greatest_common_divisor).max(1);
    weights().map(|(&target, weight)| (target, u32::from(weight.0) / divisor)).collect()
}

fn total(shares: &BTreeMap<Target, u32>) -> u64 {
    shares.values().map(|&share| u64::from(share)).sum()
}

fn up_to(most: u32, shares: BTreeMap<Target, u32>) -> BTreeMap<Target, u32> {
    let total = total(&shares);
    if total <= most.into() { shares } else { quantise(&shares, total, most) }
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Gives every target one slot and distributes the remaining slots by largest remainder.
fn quantise(shares: &BTreeMap<Target, u32>, total: u64, most: u32) -> BTreeMap<Target, u32> {
    let targets = u64::try_from(shares.len()).unwrap_or(u64::MAX);
    let spare = u64::from(most).saturating_sub(targets);
    let mut counts = BTreeMap::new();
    let mut remainders = Vec::with_capacity(shares.len());
    let mut left = spare;
    for (&target, &share) in shares {
        let scaled = u64::from(share) * spare;
        let whole = scaled / total;
        left -= whole;
        remainders.push((std::cmp::Reverse(scaled % total), target));
        counts.insert(target, 1 + u32::try_from(whole).unwrap_or(most));
    }
    remainders.sort_unstable();
    let rest = usize::try_from(left).unwrap_or(usize::MAX);
    for (_, target) in remainders.iter().take(rest) {
        counts.entry(*target).and_modify(|count| *count += 1);
    }
    counts
}

/// Returns the target in each slot, so that each target has the number of slots in `counts`. As many slots as
/// possible keep the target that they have in `held`.
#[must_use]
pub fn layout(held: &[Option<Target>], counts: &BTreeMap<Target, u32>) -> Vec<Target> {
    let mut left = counts.clone();
    let total = counts.values().map(|&count| usize::try_from(count).unwrap_or(usize::MAX)).sum();
    let mut slots: Vec<Option<Target>> = held.iter().copied().take(total).collect();
    slots.resize(total, None);
    for slot in &mut slots {
        let stays = slot.and_then(|target| left.get_mut(&target)).filter(|count| **count > 0);
        match stays {
            Some(count) => *count -= 1,
            None => *slot = None,
        }
    }
    let mut missing = left.into_iter().flat_map(|(target, count)| (0..count).map(move |_| target));
    slots.into_iter().filter_map(|slot| slot.or_else(|| missing.next())).collect()
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Port;
    use proptest::prelude::*;

    use super::*;

    fn target(number: u32) -> Target {
        Target { address: std::net::IpAddr::V4(number.into()), port: Port::new(80) }
    }

    fn weighted(weights: &[u16]) -> BTreeMap<Target, Weight> {
        (0..).zip(weights).map(|(number, &weight)| (target(number), Weight(weight))).collect()
    }

    fn counted(weights: &[u16]) -> Vec<u32> {
        counts(&weighted(weights)).into_values().collect()
    }

    #[test]
    fn shares_are_divided_by_what_they_have_in_common() {
        assert_eq!(counted(&[300, 100]), [3, 1]);
        assert_eq!(counted(&[5, 5, 5]), [1, 1, 1]);
        assert_eq!(counted(&[0, 7]), [1]);
        assert_eq!(counted(&[]), [0u32; 0]);
        assert_eq!(counted(&[65535, 1]), [1023, 1]);
    }

    #[test]
    fn with_affinity_many_targets_have_as_many_slots_as_there_can_be_by_their_weights() {
        let few: BTreeMap<_, _> = (0..512).map(|number| (target(number), Weight(7))).collect();
        assert_eq!(affinity_counts(&few).values().sum::<u32>(), AFFINITY_SLOTS_MAX);
        assert_eq!(affinity_counts(&weighted(&[65535, 1])).into_values().collect::<Vec<_>>(), [511, 1]);
        let weight = |number: u32| Weight(if number.is_multiple_of(2) { 300 } else { 100 });
        let many: BTreeMap<_, _> = (0..600).map(|number| (target(number), weight(number))).collect();
        let counts = affinity_counts(&many);
        assert_eq!(counts.values().sum::<u32>(), TARGETS_MAX);
        let of = |number| counts[&target(number)];
        assert!((38..=41).contains(&of(0)) && (13..=15).contains(&of(1)), "{} {}", of(0), of(1));
    }

    #[test]
    fn a_removed_target_moves_only_the_last_slot() {
        let held: Vec<_> = (0..4).map(|number| Some(target(number))).collect();
        let counts = counts(&weighted(&[1, 0, 1, 1]));
        assert_eq!(layout(&held, &counts), [target(0), target(3), target(2)]);
    }

    proptest! {
        #[test]
        fn slots_hold_every_target_as_often_as_counted(
            before in prop::collection::vec(0u16..9, 0..12),
            weights in prop::collection::vec(prop_oneof![0u16..9, any::<u16>()], 0..40),
        ) {
            let held = layout(&[], &counts(&weighted(&before)));
            let held: Vec<_> = held.into_iter().map(Some).collect();
            let wanted = counts(&weighted(&weights));
            let slots = layout(&held, &wanted);
            let mut found = BTreeMap::new();
            for slot in &slots {
                *found.entry(*slot).or_insert(0u32) += 1;
            }
            prop_assert_eq!(&found, &wanted);
            prop_assert!(slots.len() <= 1024);
            let same = slots.iter().map(|slot| Some(*slot)).collect::<Vec<_>>();
            prop_assert_eq!(layout(&same, &wanted), slots.clone(), "what is right stays");
            // No layout can keep more: each target keeps as many of its slots below the new end as its count
            // permits.
            let kept = slots.iter().zip(&held).filter(|(new, old)| Some(**new) == **old).count();
            let best: usize = wanted.iter().map(|(target, &count)| {
                let holds = held.iter().take(slots.len()).filter(|slot| **slot == Some(*target)).count();
                holds.min(count as usize)
            }).sum();
            prop_assert_eq!(kept, best);
        }

        #[test]
        fn shares_are_exact_or_within_a_slot_of_their_weight(weights in prop::collection::vec(1u16.., 1..60)) {
            let wanted = counts(&weighted(&weights));
            let slots: u32 = wanted.values().sum();
            let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            prop_assert!(slots <= SLOTS_MAX);
            for (count, &weight) in wanted.values().zip(&weights) {
                let ideal = f64::from(weight) / total * f64::from(slots);
                let spread = 60.0 / 1024.0 * f64::from(*count) + 2.0;
                prop_assert!(*count >= 1 && (f64::from(*count) - ideal).abs() <= spread, "{count} for {ideal}");
            }
        }
    }
}
