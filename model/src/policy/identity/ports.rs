//! Partition of protocols and ports into classes that all rules of a set treat alike.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::set::{PolicyRule, PortMatch};

/// First and last protocol number, and first and last port.
type Range = ((u8, u8), (u16, u16));

/// Returns the classes of ports, each with the port matches of rules that contain it. The ranges of all classes together
/// cover each protocol and port once. Ports that no match contains are a class too.
pub(super) fn classes<'a>(
    rules: impl IntoIterator<Item = &'a PolicyRule>,
) -> BTreeMap<BTreeSet<PortMatch>, Vec<Range>> {
    let matches: BTreeSet<PortMatch> = rules.into_iter().filter_map(|rule| rule.ports).collect();
    let mut by_protocol: BTreeMap<u8, BTreeSet<PortMatch>> = BTreeMap::new();
    for one in matches {
        by_protocol.entry(one.protocol.number()).or_default().insert(one);
    }
    let mut classes: BTreeMap<BTreeSet<PortMatch>, Vec<Range>> = BTreeMap::new();
    let mut next = Some(0);
    for (protocol, matches) in by_protocol {
        // Protocols between the previous one with ports and this one.
        if let Some((first, before)) =
            next.zip(protocol.checked_sub(1)).filter(|(first, before)| first <= before)
        {
            classes.entry(BTreeSet::new()).or_default().push(((first, before), (0, u16::MAX)));
        }
        next = protocol.checked_add(1);
        for (inside, ports) in divide(&matches) {
            classes.entry(inside).or_default().push(((protocol, protocol), ports));
        }
    }
    if let Some(first) = next {
        classes.entry(BTreeSet::new()).or_default().push(((first, u8::MAX), (0, u16::MAX)));
    }
    classes
}

/// Divides all ports of one protocol.
fn divide(matches: &BTreeSet<PortMatch>) -> Vec<(BTreeSet<PortMatch>, (u16, u16))> {
    let edges = matches.iter().flat_map(|one| [Some(one.first), one.last.checked_add(1)]).flatten();
    let starts: BTreeSet<u16> = edges.chain([0]).collect();
    let mut divided: Vec<(BTreeSet<PortMatch>, (u16, u16))> = Vec::new();
    let mut ends = starts.iter().skip(1).map(|next| next - 1).chain([u16::MAX]);
    for first in &starts {
        let last = ends.next().unwrap_or(u16::MAX);
        let inside: BTreeSet<_> =
            matches.iter().filter(|one| (one.first..=one.last).contains(first)).copied().collect();
        match divided.last_mut().filter(|(before, _)| *before == inside) {
            Some((_, range)) => range.1 = last,
            None => divided.push((inside, (*first, last))),
        }
    }
    divided
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kinds::service::Protocol,
        policy::set::{Peer, RuleAction, RuleSource, Tier},
    };

    fn rule(protocol: Protocol, first: u16, last: u16) -> PolicyRule {
        PolicyRule {
            tier: Tier::Namespace,
            action: RuleAction::Accept,
            peer: Peer::Any,
            ports: Some(PortMatch { protocol, first, last }),
            source: RuleSource { policy: "x/p".to_owned().try_into().unwrap(), rule: 0 },
        }
    }

    #[test]
    fn classes_cover_each_port_once() {
        assert_eq!(classes(&[]), BTreeMap::from([(BTreeSet::new(), vec![((0, 255), (0, 65535))])]));
        let rules =
            [rule(Protocol::Tcp, 80, 80), rule(Protocol::Tcp, 1, 100), rule(Protocol::Sctp, 0, 65535)];
        let classes = classes(&rules);
        let lines: BTreeSet<_> = classes
            .iter()
            .flat_map(|(inside, ranges)| {
                ranges.iter().map(|(protocols, ports)| (*protocols, *ports, inside.len()))
            })
            .collect();
        let expected = [
            ((0, 5), (0, 65535), 0),
            ((6, 6), (0, 0), 0),
            ((6, 6), (1, 79), 1),
            ((6, 6), (80, 80), 2),
            ((6, 6), (81, 100), 1),
            ((6, 6), (101, 65535), 0),
            ((7, 131), (0, 65535), 0),
            ((132, 132), (0, 65535), 1),
            ((133, 255), (0, 65535), 0),
        ];
        assert_eq!(lines, expected.into());
    }
}
