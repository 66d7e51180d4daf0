//! Parser for single rules that were read back: match criteria and action. Supports only the elements of the
//! agent's rules; other rules are foreign. Pure and total.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use model::{
    kinds::service::Protocol,
    primitives::quantity::{Port, PortRange},
};

/// Rule of a listing, decoded into match criteria and action.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParsedRule {
    /// Match criteria; the action applies only if all of them hold.
    pub(super) tests: Vec<Test>,
    /// Action for packets that match all criteria.
    pub(super) action: RuleAction,
}

/// Match criterion of a rule. If it is negated (`!`), it holds for all other packets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Test {
    pub(super) what: What,
    pub(super) is_negated: bool,
}

/// Property of a packet or connection that a criterion compares.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    Source(IpNet),
    Destination(IpNet),
    Transport(Protocol),
    Ports(PortRange),
    SourceIsLocal,
    DestinationIsLocal,
    Mark {
        value: u32,
        mask: u32,
    },
    /// Connection tracking states as iptables names them, such as `RELATED`; one of them must apply.
    States(Vec<String>),
    /// Random match (`statistic --mode random`) with this probability, 0–1.
    Chance(f64),
    /// Presence of the source in the list of recent sources (`recent --rcheck`), which does not contain a new
    /// client.
    Remembered,
    /// Update of the list of recent sources (`recent --set`), which always matches.
    Remember,
}

/// Action of a rule for matching packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RuleAction {
    /// Continuation in another chain. Packets return to the calling chain unless `is_goto` is set.
    Chain {
        name: String,
        is_goto: bool,
    },
    Accept,
    Return,
    Drop,
    Reject,
    Mark {
        value: u32,
        mask: u32,
    },
    Translate {
        address: IpAddr,
        port: Option<Port>,
    },
    Masquerade,
}

/// Error for an option or action that the agent's rules never contain; holds the text of the option or action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Foreign(String);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not of ours", self.0)
    }
}

/// Options that have no effect on a trace, such as comments, with the number of their arguments.
const IGNORED: [(&str, usize); 12] = [
    ("--comment", 1),
    ("--mode", 1),
    ("--seconds", 1),
    ("--reap", 0),
    ("--name", 1),
    ("--mask", 1),
    ("--rsource", 0),
    ("--random-fully", 0),
    ("--random", 0),
    ("--reject-with", 1),
    ("--persistent", 0),
    ("--hitcount", 1),
];
const MATCHES: [&str; 9] =
    ["tcp", "udp", "sctp", "comment", "addrtype", "statistic", "recent", "mark", "conntrack"];

/// Parses a rule, given its words without quotes and without the chain.
pub(super) fn spell(words: &[String]) -> Result<ParsedRule, Foreign> {
    let mut words = words.iter().map(String::as_str);
    let (mut tests, mut target, mut option) = (Vec::new(), None, None);
    let mut is_negated = false;
    while let Some(word) = words.next() {
        let foreign = || Foreign(word.to_owned());
        if word == "!" {
            is_negated = true;
            continue;
        }
        if let Some((_, more)) = IGNORED.iter().find(|(ignored, _)| *ignored == word) {
            for _ in 0..*more {
                words.next().ok_or_else(foreign)?;
            }
            continue;
        }
        if word == "--rcheck" || word == "--set" {
            let what = if word == "--set" { What::Remember } else { What::Remembered };
            tests.push(Test { what, is_negated: std::mem::take(&mut is_negated) });
            continue;
        }
        let value = words.next().ok_or_else(foreign)?;
        match word {
            "-m" if MATCHES.contains(&value) => {}
            "-j" | "-g" => target = Some((value, word == "-g")),
            "--set-xmark" | "--to-destination" => option = Some(value),
            _ => {
                let what = what(word, value).ok_or_else(|| Foreign(format!("{word} {value}")))?;
                tests.push(Test { what, is_negated: std::mem::take(&mut is_negated) });
            }
        }
    }
    let (target, is_goto) = target.ok_or_else(|| Foreign("no target".to_owned()))?;
    Ok(ParsedRule { tests, action: action(target, is_goto, option)? })
}

fn what(word: &str, value: &str) -> Option<What> {
    match (word, value) {
        ("-s", net) => net.parse().ok().map(What::Source),
        ("-d", net) => net.parse().ok().map(What::Destination),
        ("-p", "tcp" | "6") => Some(What::Transport(Protocol::Tcp)),
        ("-p", "udp" | "17") => Some(What::Transport(Protocol::Udp)),
        ("-p", "sctp" | "132") => Some(What::Transport(Protocol::Sctp)),
        ("--dport", ports) => {
            let (first, last) = ports.split_once(':').unwrap_or((ports, ports));
            let port = |text: &str| text.parse().ok().and_then(Port::new);
            Some(What::Ports(PortRange::new(port(first)?, port(last)?)))
        }
        ("--src-type", "LOCAL") => Some(What::SourceIsLocal),
        ("--dst-type", "LOCAL") => Some(What::DestinationIsLocal),
        ("--mark", mark) => pair(mark).map(|(value, mask)| What::Mark { value, mask }),
        ("--ctstate", states) => Some(What::States(states.split(',').map(str::to_owned).collect())),
        ("--probability", chance) => chance.parse().ok().map(What::Chance),
        _ => None,
    }
}

fn action(target: &str, is_goto: bool, option: Option<&str>) -> Result<RuleAction, Foreign> {
    let foreign = || Foreign(format!("-j {target} {}", option.unwrap_or_default()));
    Ok(match target {
        "ACCEPT" => RuleAction::Accept,
        "RETURN" => RuleAction::Return,
        "DROP" => RuleAction::Drop,
        "REJECT" => RuleAction::Reject,
        "MASQUERADE" => RuleAction::Masquerade,
        "MARK" => {
            let (value, mask) = option.and_then(pair).ok_or_else(foreign)?;
            RuleAction::Mark { value, mask }
        }
        "DNAT" => {
            let place = option.ok_or_else(foreign)?;
            let socket = place.parse::<std::net::SocketAddr>().ok();
            match (socket, place.parse()) {
                (Some(at), _) => RuleAction::Translate { address: at.ip(), port: Port::new(at.port()) },
                (None, Ok(address)) => RuleAction::Translate { address, port: None },
                (None, Err(_)) => return Err(foreign()),
            }
        }
        chain => RuleAction::Chain { name: chain.to_owned(), is_goto },
    })
}

/// Parses `value/mask` or `value`, in hexadecimal or decimal.
fn pair(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(rule: &str) -> Result<ParsedRule, Foreign> {
        spell(&rule.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn our_rules_are_understood_and_others_are_named() {
        let rule = "! -s 10.1.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment web -m tcp --dport 80 -j TG-MARK-MASQ";
        let rule = spelled(rule).unwrap();
        assert_eq!(rule.tests.len(), 4);
        assert!(rule.tests[0].is_negated && !rule.tests[1].is_negated);
        let translate = spelled("-p udp -m udp -j DNAT --to-destination [fd00::1]:53").unwrap();
        let address = "fd00::1".parse().unwrap();
        assert_eq!(translate.action, RuleAction::Translate { address, port: Port::new(53) });
        let mark = spelled("-j MARK --set-xmark 0x4000/0x4000").unwrap().action;
        assert_eq!(mark, RuleAction::Mark { value: 0x4000, mask: 0x4000 });
        for foreign in
            ["-i eth0 -j ACCEPT", "-m physdev --physdev-is-bridged -j ACCEPT", "-p tcp", "--dport", ""]
        {
            assert!(spelled(foreign).is_err(), "{foreign}");
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_can_be_taken_apart(words in proptest::collection::vec("(-[a-z]|--[a-z]{1,9}|!|[0-9.:/]{0,12}|[A-Z]{1,8})", 0..12)) {
            let _ = spell(&words);
        }
    }
}
