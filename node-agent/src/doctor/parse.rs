//! Parses kernel messages about nf_tables chains, policy routing rules and interfaces. Pure and total: a
//! malformed message is an error, and a message about another subject is skipped.

use kernel::{
    netlink::wire::{MalformedMessage, ReceivedMessage},
    nftables::{parse::parse_hook, uapi},
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkInfo},
    rule::RuleAttribute,
};

use super::{
    chains::{Chain, Family, Hook, Rule, TableLocation, TableTool},
    expressions,
};

/// Network interface of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    /// MTU of the interface in bytes.
    pub(super) mtu: u32,
    /// Kind of a virtual interface, such as `bridge` or `vxlan`; empty for hardware.
    pub(super) kind: String,
}

/// Policy routing rule that matches the packet mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoutingRule {
    pub(super) family: Family,
    pub(super) priority: u32,
    pub(super) mark: u32,
    pub(super) mask: u32,
}

/// Parses a message about a chain. Returns `None` if the chain's table is of a family without IP packets.
pub(super) fn chain(message: &ReceivedMessage<'_>) -> Result<Option<Chain>, MalformedMessage> {
    let Some(family) = family(message) else { return Ok(None) };
    let (mut table, mut name, mut hook, mut priority, mut drops) = ("", "", None, 0, false);
    for attribute in message.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_CHAIN_TABLE => table = attribute.text()?,
            uapi::NFTA_CHAIN_NAME => name = attribute.text()?,
            uapi::NFTA_CHAIN_HOOK => {
                let parsed = parse_hook(attribute.nested())?;
                (hook, priority) = (Hook::of_number(parsed.number), parsed.priority);
            }
            uapi::NFTA_CHAIN_POLICY => drops = attribute.be32()? == uapi::NF_DROP.cast_unsigned(),
            _ => {}
        }
    }
    let place = TableLocation { keeper: TableTool::Nft, family, table: table.to_owned() };
    Ok(Some(Chain { place, name: name.to_owned(), hook, priority, drops, rules_total: 0, rules: Vec::new() }))
}

/// Parses a rule and returns it with the location of its table and the name of its chain. `number` returns
/// the index of the rule in the chain. Returns `None` if the table is of a family without IP packets.
pub(super) fn rule(
    message: &ReceivedMessage<'_>,
    number: impl FnOnce(&TableLocation, &str) -> usize,
) -> Result<Option<(TableLocation, String, Rule)>, MalformedMessage> {
    let Some(family) = family(message) else { return Ok(None) };
    let (mut table, mut chain, mut handle, mut expressions) = ("", "", None, None);
    for attribute in message.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NFTA_RULE_TABLE => table = attribute.text()?,
            uapi::NFTA_RULE_CHAIN => chain = attribute.text()?,
            uapi::NFTA_RULE_HANDLE => handle = attribute.be64().ok(),
            uapi::NFTA_RULE_EXPRESSIONS => expressions = Some(attribute.nested()),
            _ => {}
        }
    }
    let place = TableLocation { keeper: TableTool::Nft, family, table: table.to_owned() };
    let shown = format!("rule {}", number(&place, chain));
    let rule = Rule { handle, ..expressions::rule(shown, expressions)? };
    Ok(Some((place, chain.to_owned(), rule)))
}

fn family(message: &ReceivedMessage<'_>) -> Option<Family> {
    match message.payload.first().copied() {
        Some(uapi::NFPROTO_IPV4) => Some(Family::Ip),
        Some(uapi::NFPROTO_IPV6) => Some(Family::Ip6),
        Some(uapi::NFPROTO_INET) => Some(Family::Inet),
        Some(_) | None => None,
    }
}

/// Converts a message about a policy routing rule. Returns `None` if the rule matches no packet mark.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
pub(super) fn routing_rule(family: Family, message: &RouteNetlinkMessage) -> Option<RoutingRule> {
    let RouteNetlinkMessage::NewRule(message) = message else { return None };
    let (mut priority, mut mark, mut mask) = (0, None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::FwMark(bits) => mark = Some(*bits),
            RuleAttribute::FwMask(bits) => mask = *bits,
            _ => {}
        }
    }
    mark.filter(|mark| *mark != 0).map(|mark| RoutingRule { family, priority, mark, mask })
}

/// Converts a message about an interface. Returns `None` if the message is about another subject.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
pub(super) fn link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let (mut name, mut mtu, mut kind) = (String::new(), None, String::new());
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = text,
            LinkAttribute::Mtu(bytes) => mtu = Some(bytes),
            LinkAttribute::LinkInfo(parts) => {
                for part in parts {
                    if let LinkInfo::Kind(found) = part {
                        kind = found.to_string();
                    }
                }
            }
            _ => {}
        }
    }
    mtu.map(|mtu| Link { name, mtu, kind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::doctor::chains::{Condition, Effect, MarkUse};
    use kernel::netlink::wire::{Attributes, netfilter_header};

    const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
        ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
    }

    /// Builds a rule with these expressions.
    fn read(expressions: &[(&str, Attributes)]) -> Rule {
        let element = |(name, data): &(&str, Attributes)| {
            Attributes::default().text(uapi::NFTA_EXPR_NAME, name).nested(uapi::NFTA_EXPR_DATA, data)
        };
        let list = expressions.iter().fold(Attributes::default(), |list, expression| {
            list.nested(uapi::NFTA_LIST_ELEM, &element(expression))
        });
        let rule = Attributes::default()
            .text(uapi::NFTA_RULE_TABLE, "mangle")
            .text(uapi::NFTA_RULE_CHAIN, "FORWARD");
        let rule = rule.nested(uapi::NFTA_RULE_EXPRESSIONS, &list);
        let payload = [netfilter_header(uapi::NFPROTO_IPV4, 0), rule.as_bytes().to_vec()].concat();
        let (place, chain, rule) = super::rule(&received(&payload), |_, _| 3).unwrap().unwrap();
        assert_eq!((place.to_string().as_str(), chain.as_str()), ("table ip mangle", "FORWARD"));
        assert_eq!(rule.shown, "rule 3");
        rule
    }

    /// Extensions in the `target` and `match` expressions of iptables-nft rules are interpreted without the
    /// iptables tools.
    #[test]
    fn extensions_of_iptables_are_known_where_its_tools_are_missing() {
        let target = |name: &str, info: &[u8]| {
            ("target", Attributes::default().text(1, name).be32(2, 2).bytes(3, info))
        };
        let mark = [0x4000_u32.to_ne_bytes(), 0x4000_u32.to_ne_bytes()].concat();
        let rule = read(&[("counter", Attributes::default()), target("MARK", &mark)]);
        assert_eq!(rule.marks, [MarkUse::Sets { value: 0x4000, touched: 0x4000 }]);
        assert!(read(&[target("MARK", &mark[..7])]).marks.is_empty(), "cut off");
        let rule = read(&[target("REJECT", &[0; 4])]);
        assert_eq!((rule.condition, rule.effect), (Condition::Always, Effect::Drop));
        let rule = read(&[("match", Attributes::default().text(1, "conntrack")), target("REJECT", &[0; 4])]);
        assert_eq!(rule.condition, Condition::Other);
        assert!(read(&[target("TCPMSS", &[0; 2])]).clamps);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(family in 0_u8..12, bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u16..12) {
            // The bytes as a whole message, and as the value of each nested attribute.
            let wrapped = Attributes::default().bytes(kind, &bytes);
            let twice = Attributes::default().nested(uapi::NFTA_RULE_EXPRESSIONS, &wrapped);
            let names = ["meta", "ct", "immediate", "bitwise", "cmp", "exthdr", "target"];
            for name in names {
                let one = Attributes::default().text(uapi::NFTA_EXPR_NAME, name).bytes(uapi::NFTA_EXPR_DATA, &bytes);
                let _ = expressions::rule(String::new(), Some(kernel::netlink::wire::AttributeIter::new(
                    Attributes::default().nested(uapi::NFTA_LIST_ELEM, &one).as_bytes(),
                )));
            }
            for attributes in [&bytes[..], wrapped.as_bytes(), twice.as_bytes()] {
                let payload = [&netfilter_header(family, 0)[..], attributes].concat();
                let message = received(&payload);
                let _ = (chain(&message), super::rule(&message, |_, _| 1));
            }
        }
    }
}
