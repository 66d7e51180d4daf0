//! Parses the output of `iptables-save`. Pure and total: unknown input is skipped.

use std::{collections::BTreeMap, net::IpAddr};

use dataplane::iptables::{Flavour, parse::words};
use ipnet::IpNet;

use super::{
    captures::{Capture, TrafficScope},
    chains::{
        Chain, Condition, Effect, Family, Hook, MarkUse, RULE_SHOWN_MAX, RULES_MAX, Rule, TableLocation,
        TableTool,
    },
};

/// Parses the output of `iptables-save` for one variant of iptables (nft or legacy) and one address family.
pub(super) fn chains(flavour: Flavour, family: Family, text: &str) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let (mut table, mut by_name) = (None, BTreeMap::new());
    for line in text.lines().take(RULES_MAX) {
        if let Some(name) = line.strip_prefix('*') {
            table = Some(TableLocation {
                keeper: TableTool::Iptables(flavour),
                family,
                table: name.trim().to_owned(),
            });
            by_name.clear();
        }
        let Some(place) = &table else { continue };
        if let Some(declared) = line.strip_prefix(':') {
            let mut parts = declared.split(' ');
            let (name, policy) = (parts.next().unwrap_or_default(), parts.next());
            by_name.insert(name.to_owned(), chains.len());
            chains.push(Chain {
                place: place.clone(),
                name: name.to_owned(),
                hook: Hook::of_iptables(name),
                priority: priority(&place.table),
                drops: policy == Some("DROP"),
                rules_total: 0,
                rules: Vec::new(),
            });
        } else if let Some((name, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            let chain = by_name.get(name).and_then(|index: &usize| chains.get_mut(*index));
            let Some(chain) = chain else { continue };
            chain.rules_total += 1;
            chain.rules.extend(Some(read(line, rule)).filter(Rule::matters));
        }
    }
    chains
}

/// Returns the priority of the chains of an iptables table at the hooks prerouting and output.
fn priority(table: &str) -> i32 {
    match table {
        "raw" => -300,
        "mangle" => -150,
        "nat" => -100,
        _ => 0,
    }
}

/// Returns the first and last port of a match such as `80` or `8000:8010`.
fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Returns the number of a transport protocol of Services; `None` for others.
fn protocol(name: &str) -> Option<u8> {
    match name {
        "tcp" => Some(6),
        "udp" => Some(17),
        "sctp" => Some(132),
        _ => None,
    }
}

fn read(line: &str, rule: &str) -> Rule {
    let words = words(rule);
    let mut words = words.iter().map(String::as_str);
    let (mut condition, mut effect, mut marks, mut clamps) =
        (Condition::Always, Effect::Other, Vec::new(), false);
    let (mut module, mut is_negated) = ("", false);
    let mut scope = TrafficScope::default();
    while let Some(word) = words.next() {
        match word {
            "-m" => {
                module = words.next().unwrap_or_default();
                continue;
            }
            "--comment" => {
                words.next();
                continue;
            }
            "-j" | "-g" => {
                let target = words.next().unwrap_or_default();
                module = target;
                clamps = target == "TCPMSS";
                effect = match target {
                    "ACCEPT" => Effect::Accept,
                    "DROP" | "REJECT" => Effect::Drop,
                    "RETURN" => Effect::Return,
                    "DNAT" | "REDIRECT" | "NETMAP" => Effect::Captures(Capture::DestinationNat),
                    "NOTRACK" => Effect::Captures(Capture::NoTrack),
                    name => Effect::Jump(name.to_owned()),
                };
                continue;
            }
            "--notrack" if module == "CT" => {
                effect = Effect::Captures(Capture::NoTrack);
                continue;
            }
            "-d" if !is_negated => {
                let network = words.next().unwrap_or_default();
                let address = || network.parse::<IpAddr>().ok().map(IpNet::from);
                scope.destination = network.parse().ok().or_else(address);
                scope.has_other_condition |= scope.destination.is_none();
                condition = Condition::Other;
                continue;
            }
            "-p" if !is_negated => {
                scope.protocol = words.next().and_then(protocol);
                scope.has_other_condition |= scope.protocol.is_none();
                condition = Condition::Other;
                continue;
            }
            "--dport" if !is_negated => {
                scope.ports = words.next().and_then(ports);
                scope.has_other_condition |= scope.ports.is_none();
                condition = Condition::Other;
                continue;
            }
            // Option of a target, not a condition.
            "--reject-with" => {
                words.next();
                continue;
            }
            "--set-xmark" if module == "MARK" => {
                if let Some((value, mask)) = words.next().and_then(masked) {
                    marks.push(MarkUse::Sets { value, touched: value | mask });
                }
                continue;
            }
            "--mark" if module == "mark" => {
                if let Some((value, mask)) = words.next().and_then(masked) {
                    marks.push(MarkUse::Tests { value, mask });
                }
            }
            "--ctstate" | "--state" if matches!(module, "conntrack" | "state") && !is_negated => {
                let states = words.next().unwrap_or_default();
                let has = |state| states.split(',').any(|one| one == state);
                let states = Condition::States { translated: has("DNAT"), established: has("ESTABLISHED") };
                condition = if condition == Condition::Always { states } else { Condition::Other };
                continue;
            }
            "!" => is_negated = true,
            _ => {}
        }
        // The remaining options belong to the target.
        if effect == Effect::Other {
            condition = Condition::Other;
            scope.has_other_condition = true;
        }
    }
    let shown = line.chars().take(RULE_SHOWN_MAX).collect();
    Rule { shown, handle: None, condition, scope, effect, marks, clamps }
}

/// Parses a number with an optional mask, as in `0x4000/0x4000`, and returns both; without a mask, all bits
/// are significant. Returns `None` for any other text.
fn masked(text: &str) -> Option<(u32, u32)> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    Some((number(value)?, mask.map_or(Some(u32::MAX), number)?))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Output of iptables-save 1.8.9 on a machine with Docker and other programs.
    pub(super) const SAVED: &str = r#"# Generated by iptables-nft-save v1.8.9 (nf_tables) on Sat Nov 21 21:37:36 2026
*mangle
:PREROUTING ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
-A PREROUTING -j MARK --set-xmark 0x1/0xffffffff
-A FORWARD -m mark ! --mark 0x8000/0x8000 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
# Completed on Sat Nov 21 21:37:36 2026
*filter
:FORWARD DROP [12:720]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m comment --comment "allow -j DROP \" all" -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
-A FORWARD -j REJECT --reject-with icmp-port-unreachable
-A DOCKER-USER -j RETURN
COMMIT
"#;

    #[test]
    fn what_iptables_save_prints_is_read() {
        let chains = chains(Flavour::Nft, Family::Ip, SAVED);
        let names: Vec<_> =
            chains.iter().map(|chain| (chain.name.as_str(), chain.rules_total, chain.drops)).collect();
        let expected = [
            ("PREROUTING", 1, false),
            ("FORWARD", 2, false),
            ("FORWARD", 4, true),
            ("DOCKER-USER", 1, false),
        ];
        assert_eq!(names, expected);
        assert_eq!(chains[0].rules[0].marks, [MarkUse::Sets { value: 1, touched: u32::MAX }]);
        assert_eq!(chains[1].rules[0].marks, [MarkUse::Tests { value: 0x8000, mask: 0x8000 }]);
        assert!(chains[1].rules[1].clamps);
        let followed: Vec<_> =
            chains[2].rules.iter().map(|rule| (rule.condition, rule.effect.clone())).collect();
        let states = Condition::States { translated: true, established: true };
        assert_eq!(
            followed,
            [
                (Condition::Always, Effect::Jump("DOCKER-USER".to_owned())),
                (states, Effect::Accept),
                (Condition::Always, Effect::Drop),
            ]
        );
        assert_eq!(chains[3].rules[0].effect, Effect::Return);
        assert_eq!(chains[3].place.to_string(), "iptables-nft table filter");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(\\*[a-z]{0,4}\n|:[A-Z]{0,4} DROP\n|-A [A-Z]{0,4} [-!a-z \"/0-9x]{0,40}\n|.{0,40}\n){0,20}") {
            let _ = chains(Flavour::Legacy, Family::Ip6, &text);
        }
    }
}
