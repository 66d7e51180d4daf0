//! Validation rules of AddressPools and Advertisements.

use super::{check_length, check_unique};
use crate::{
    kinds::{
        address_pool::{
            AddressPoolSpec, AddressRange, POOL_RANGES_MAX, POOL_SELECTORS_MAX, QUARANTINE_SECONDS_MAX,
        },
        advertisement::{ADVERTISEMENT_ENTRIES_MAX, AdvertisementSpec, PREFERENCE_WEIGHT_MAX},
        metadata::{check_key, check_labels, check_value},
        selector::{Operator, Selector},
    },
    primitives::{
        net,
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn validate(spec: &AddressPoolSpec, found: &mut Vec<Violation>) {
    if spec.addresses.is_empty() {
        found.push(Violation::new(
            "/spec/addresses",
            ViolationCode::Required,
            "must have at least one range",
        ));
    }
    check_ranges("/spec/addresses", &spec.addresses, found);
    check_ranges("/spec/reserved", &spec.reserved, found);
    for (index, reserved) in spec.reserved.iter().enumerate() {
        if !spec.addresses.iter().any(|range| range.overlaps(reserved)) {
            let message = format!("must lie in the pool; {reserved} does not");
            found.push(Violation::new(format!("/spec/reserved/{index}"), ViolationCode::Invalid, message));
        }
    }
    if spec.priority == Some(0) {
        let message = "must be at least 1; leave it out to have the pool tried last";
        found.push(Violation::new("/spec/priority", ViolationCode::Invalid, message));
    }
    if spec.quarantine() > QUARANTINE_SECONDS_MAX {
        let message = format!("must be at most {QUARANTINE_SECONDS_MAX}, not {}", spec.quarantine());
        found.push(Violation::new("/spec/quarantineSeconds", ViolationCode::Invalid, message));
    }
    check_length("/spec/namespaces", spec.namespaces.len(), POOL_SELECTORS_MAX, found);
    check_selectors("/spec/serviceSelectors", &spec.service_selectors, POOL_SELECTORS_MAX, found);
}

pub(super) fn validate_advertisement(spec: &AdvertisementSpec, found: &mut Vec<Violation>) {
    const MAX: usize = ADVERTISEMENT_ENTRIES_MAX;
    check_length("/spec/addressPools", spec.address_pools.len(), MAX, found);
    check_length("/spec/interfaces", spec.interfaces.len(), MAX, found);
    check_selectors("/spec/serviceSelectors", &spec.service_selectors, MAX, found);
    check_selectors("/spec/nodeSelectors", &spec.node_selectors, MAX, found);
    let at = "/spec/preferredNodeSelectors";
    if !check_length(at, spec.preferred_node_selectors.len(), MAX, found) {
        return;
    }
    for (index, preferred) in spec.preferred_node_selectors.iter().enumerate() {
        if !(1..=PREFERENCE_WEIGHT_MAX).contains(&preferred.weight) {
            let message = format!("must be between 1 and {PREFERENCE_WEIGHT_MAX}, not {}", preferred.weight);
            found.push(Violation::new(format!("{at}/{index}/weight"), ViolationCode::Invalid, message));
        }
        check_selector(&format!("{at}/{index}/preference"), &preferred.preference, found);
    }
}

fn check_ranges(at: &str, ranges: &[AddressRange], found: &mut Vec<Violation>) {
    if !check_length(at, ranges.len(), POOL_RANGES_MAX, found) {
        return;
    }
    check_unique(ranges.iter(), |index| format!("{at}/{index}"), found);
    for (index, range) in ranges.iter().enumerate() {
        if let Some(why) = net::forbidden_within(range.first(), range.last()) {
            let message = format!(
                "must hold ordinary unicast addresses only; {range} contains addresses that are {why}"
            );
            found.push(Violation::new(format!("{at}/{index}"), ViolationCode::AddressNotAllowed, message));
        }
        if let Some(other) = ranges[..index].iter().find(|other| other.overlaps(range) && *other != range) {
            let message = format!("must not overlap {other} of the same list");
            found.push(Violation::new(format!("{at}/{index}"), ViolationCode::Overlap, message));
        }
    }
}

pub(super) fn check_selectors(at: &str, selectors: &[Selector], max: usize, found: &mut Vec<Violation>) {
    if check_length(at, selectors.len(), max, found) {
        for (index, selector) in selectors.iter().enumerate() {
            check_selector(&format!("{at}/{index}"), selector, found);
        }
    }
}

pub(super) fn check_selector(at: &str, selector: &Selector, found: &mut Vec<Violation>) {
    /// Maximum number of expressions of one selector.
    const EXPRESSIONS_MAX: usize = 32;
    const VALUES_MAX: usize = 64;
    check_labels(&format!("{at}/matchLabels"), &selector.match_labels, found);
    let at = format!("{at}/matchExpressions");
    if !check_length(&at, selector.match_expressions.len(), EXPRESSIONS_MAX, found) {
        return;
    }
    for (index, expression) in selector.match_expressions.iter().enumerate() {
        let at = format!("{at}/{index}");
        if let Err(message) = check_key(&expression.key) {
            found.push(Violation::new(format!("{at}/key"), ViolationCode::Invalid, message));
        }
        for (index, value) in expression.values.iter().enumerate().take(VALUES_MAX) {
            if let Err(message) = check_value(value) {
                found.push(Violation::new(format!("{at}/values/{index}"), ViolationCode::Invalid, message));
            }
        }
        check_length(&format!("{at}/values"), expression.values.len(), VALUES_MAX, found);
        let takes_values = matches!(expression.operator, Operator::In | Operator::NotIn);
        if takes_values == expression.values.is_empty() {
            let message = if takes_values {
                "must have at least one value with In and NotIn"
            } else {
                "must be left out with Exists and DoesNotExist"
            };
            found.push(Violation::new(format!("{at}/values"), ViolationCode::Invalid, message));
        }
    }
}
