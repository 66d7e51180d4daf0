//! Maglev tables: shares, disruption and independence of history. `UPDATE_GOLDEN=1 cargo test -p model` rewrites the
//! golden file.

use std::{collections::BTreeMap, fmt::Write as _, net::IpAddr, path::Path};

use model::{
    primitives::quantity::{Port, Weight},
    program::{
        Target,
        table::{AFFINITY_SIZE, SIZES, size, table},
    },
};
use proptest::prelude::*;

fn target(address: impl Into<IpAddr>) -> Target {
    Target { address: address.into(), port: Port::new(8080) }
}

fn equal(addresses: impl IntoIterator<Item = u32>) -> BTreeMap<Target, Weight> {
    let address = |number: u32| target(std::net::Ipv4Addr::from(number));
    addresses.into_iter().map(|number| (address(number), Weight(1))).collect()
}

fn shares(table: &[Target]) -> BTreeMap<Target, u32> {
    let mut shares = BTreeMap::new();
    table.iter().for_each(|target| *shares.entry(*target).or_default() += 1);
    shares
}

/// Number of slots that differ, in thousandths of the table.
fn moved(before: &[Target], after: &[Target]) -> usize {
    before.iter().zip(after).filter(|(old, new)| old != new).count() * 1000 / before.len()
}

/// Agents of different versions must compute equal tables, so a changed table is a change of the protocol.
#[test]
fn tables_are_the_same_in_every_version() {
    let mut text = String::new();
    let v6 = (1..=3u16).map(|number| (target([0xfd00, 0, 0, 0, 0, 0, 0, number]), Weight(number))).collect();
    let sets = [("three equal IPv4", equal(0x0a01_0001..=0x0a01_0003)), ("weights 1, 2 and 3, IPv6", v6)];
    for (name, targets) in sets {
        let table = table(&targets, size(targets.len()));
        writeln!(text, "{name}: {} slots", table.len()).unwrap();
        for (target, share) in shares(&table) {
            let slots: Vec<_> = (0..table.len()).filter(|&slot| table[slot] == target).take(12).collect();
            writeln!(text, "  {} has {share} slots: {slots:?} …", target.address).unwrap();
        }
    }
    compare(&text, "maglev.txt");
}

fn compare(text: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn sizes_are_prime_and_grow_with_the_number_of_targets() {
    for slots in SIZES.into_iter().map(|(slots, _)| slots).chain([AFFINITY_SIZE]) {
        assert!(
            (2..slots).take_while(|divisor| divisor * divisor <= slots).all(|divisor| slots % divisor != 0)
        );
    }
    let of = |targets| size(targets);
    assert_eq!(
        [of(0), of(5), of(6), of(25), of(26), of(400), of(401), of(100_000)],
        [251, 251, 1021, 1021, 4093, 4093, 16_381, 16_381]
    );
    assert!(table(&BTreeMap::new(), 251).is_empty());
    assert!(table(&BTreeMap::from([(target([10, 0, 0, 1]), Weight(0))]), 251).is_empty());
}

/// Slots, in thousandths of the table, that move if the target `gone` leaves.
fn moved_by(all: &[u32], gone: u32, slots: u32) -> usize {
    let before = table(&equal(all.iter().copied()), slots);
    let after = table(&equal(all.iter().copied().filter(|one| *one != gone)), slots);
    moved(&before, &after)
}

/// Mean share of the table, in thousandths, that moves between remaining targets when one of `targets` leaves.
fn mean_disturbance(targets: u32, slots: u32) -> usize {
    let all: Vec<u32> = (1..=targets).map(|number| 0x0a01_0000 + number).collect();
    let own = 1000 / all.len();
    let leavers = all.iter().step_by(all.len().div_ceil(12));
    let excess: Vec<_> = leavers.map(|gone| moved_by(&all, *gone, slots).saturating_sub(own)).collect();
    excess.iter().sum::<usize>() / excess.len()
}

/// The disturbance falls with the number of slots for each target.
#[test]
fn the_mean_disturbance_is_small() {
    let mut text = String::new();
    for (targets, slots, limit) in [
        (5, 251, 50),
        (10, 1021, 40),
        (25, 1021, 50),
        (5, 4093, 12),
        (10, 4093, 20),
        (25, 4093, 28),
        (100, 4093, 40),
        (100, 16_381, 20),
    ] {
        let mean = mean_disturbance(targets, slots);
        writeln!(text, "{targets} targets, {slots} slots: {mean} of 1000").unwrap();
        assert!(mean <= limit, "{text}");
    }
    compare(&text, "maglev_disturbance.txt");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A target that leaves moves its own slots and few between the others, also if two permutations happen to be
    /// alike. The same in the other direction for a target that joins.
    #[test]
    fn a_target_that_leaves_moves_little_else(
        targets in prop::collection::btree_set(any::<u32>(), 2..60),
        leaver in any::<prop::sample::Index>(),
    ) {
        let all: Vec<_> = targets.iter().copied().collect();
        let gone = all[leaver.index(all.len())];
        let moved = moved_by(&all, gone, size(all.len()));
        let share = 1000 / targets.len();
        prop_assert!(moved <= share + 150, "{moved} of 1000 slots, share {share}");
    }

    /// Shares of equal targets differ by at most one slot, those of others by about one slot from their weights.
    #[test]
    fn shares_follow_weights(weights in prop::collection::vec(1u16..=20, 1..40)) {
        let targets: BTreeMap<_, _> =
            (0u8..).zip(&weights).map(|(number, weight)| (target([10, 0, 0, number]), Weight(*weight))).collect();
        let table = table(&targets, size(targets.len()));
        let sum: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        let shares = shares(&table);
        prop_assert_eq!(shares.len(), targets.len(), "every target has a slot");
        for (target, weight) in &targets {
            let ideal = f64::from(weight.0) * f64::from(u32::try_from(table.len()).unwrap()) / f64::from(sum);
            let share = f64::from(shares[target]);
            prop_assert!((share - ideal).abs() <= 2.0 + ideal / 10.0, "{share} for {ideal}");
        }
    }

    /// The table depends on the targets alone: neither on the order in which they arrived nor on a common factor of
    /// their weights.
    #[test]
    fn equal_targets_have_equal_tables(
        weights in prop::collection::btree_map(any::<u32>(), 1u16..9, 1..20), factor in 2u16..9,
    ) {
        let build = |entries: Vec<(u32, u16)>| {
            let mut targets = BTreeMap::new();
            for (number, weight) in entries {
                targets.insert(target(std::net::Ipv4Addr::from(number)), Weight(weight));
            }
            table(&targets, 1021)
        };
        let forward: Vec<_> = weights.into_iter().collect();
        let scaled: Vec<_> = forward.iter().rev().map(|(number, weight)| (*number, weight * factor)).collect();
        prop_assert_eq!(build(forward), build(scaled));
    }
}
