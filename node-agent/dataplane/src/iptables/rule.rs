//! Rules in the format of `iptables-save`, without the chain name. Rules are written, read and compared in
//! this form only.

use std::{fmt::Write, net::IpAddr};

use ipnet::IpNet;
use model::{
    kinds::service::Protocol,
    primitives::{
        net::IpFamily,
        quantity::{Port, PortRange, Weight},
    },
    program::{Destination, Frontend},
};

use super::layout::protocol_word;

/// Match criteria of a rule, in the order in which iptables prints them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match<'a> {
    /// Sources to match; any source by default.
    pub(super) source: SourceMatch,
    /// Destination address; `None` matches every address.
    pub(super) destination: Option<IpAddr>,
    /// Transport protocol and its destination ports; without ports, every port matches.
    pub(super) transport: Option<(Protocol, Option<PortRange>)>,
    /// Comment that names the owning Service port, as in kube-proxy.
    pub(super) comment: &'a str,
}

/// Sources that a rule matches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum SourceMatch {
    /// Every source address.
    #[default]
    Any,
    /// Source addresses in a network.
    In(IpNet),
    /// Source addresses outside of a network.
    NotIn(IpNet),
    /// Addresses of the node itself (`addrtype --src-type LOCAL`).
    Node,
}

impl Match<'_> {
    /// Returns the match criteria of a frontend, for a rule with a comment.
    pub(super) fn frontend(frontend: Frontend, comment: &str) -> Match<'_> {
        let destination = match frontend.destination {
            Destination::Address(address) => Some(address),
            Destination::AnyLocal(_) => None,
        };
        let transport = Some((frontend.protocol, Some(frontend.ports)));
        Match { destination, transport, comment, ..Match::default() }
    }

    /// Formats the rule with an action, which may add further match criteria.
    pub(super) fn rule(&self, action: &str) -> String {
        let Self { source, destination, transport, comment } = *self;
        let mut rule = String::new();
        match source {
            SourceMatch::In(net) if net.prefix_len() > 0 => {
                put(&mut rule, format_args!("-s {} ", net.trunc()))
            }
            SourceMatch::NotIn(net) => put(&mut rule, format_args!("! -s {} ", net.trunc())),
            SourceMatch::Any | SourceMatch::Node | SourceMatch::In(_) => {}
        }
        if let Some(address) = destination {
            put(&mut rule, format_args!("-d {} ", host(address)));
        }
        if let Some((protocol, _)) = transport {
            put(&mut rule, format_args!("-p {} ", protocol_word(protocol)));
        }
        put(&mut rule, format_args!("-m comment --comment \"{comment}\" "));
        if matches!(source, SourceMatch::Node) {
            rule.push_str("-m addrtype --src-type LOCAL ");
        }
        if let Some((protocol, Some(ports))) = transport {
            put(&mut rule, format_args!("-m {} --dport {} ", protocol_word(protocol), span(ports)));
        }
        rule.push_str(action);
        rule
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing into a String does not fail");
}

fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

fn span(ports: PortRange) -> String {
    match ports.single() {
        Some(port) => port.get().to_string(),
        None => format!("{}:{}", ports.first().get(), ports.last().get()),
    }
}

/// Returns the key that all rules for one frontend in a chain have: destination, protocol and port.
pub(super) fn frontend_key(frontend: Frontend) -> String {
    let rest = format!("-p {} --dport {}", protocol_word(frontend.protocol), span(frontend.ports));
    match frontend.destination {
        Destination::Address(address) => format!("{} {rest}", address_key(address)),
        Destination::AnyLocal(_) => rest,
    }
}

/// Returns the key common to all rules for a whole address in a chain.
pub(super) fn address_key(address: IpAddr) -> String {
    format!("-d {}", host(address))
}

/// Returns the key of a rule: the options `-d`, `-p` and `--dport` with their values.
pub(super) fn key_of(rule: &str) -> String {
    let words: Vec<_> = rule.split(' ').collect();
    let pairs = words.windows(2).filter(|pair| matches!(pair[0], "-d" | "-p" | "--dport"));
    pairs.map(|pair| pair.join(" ")).collect::<Vec<_>>().join(" ")
}

/// Returns the target of a rule: the chain or extension after `-j` or `-g`.
pub(super) fn target_of(rule: &str) -> &str {
    let mut words = rule.split(' ');
    words.find(|word| matches!(*word, "-j" | "-g")).and_then(|_| words.next()).unwrap_or_default()
}

/// Returns the match criterion (`-m statistic`) that selects the share `weight / remaining` of the
/// connections that reach the rule, with `decimals` digits; `None` if the share is all connections.
///
/// The kernel compares 31 random bits, and iptables prints the rounded probability.
pub(super) fn share(weight: Weight, remaining: u64, decimals: usize) -> Option<String> {
    let weight = u64::from(weight.0);
    if weight >= remaining {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "sums of weights are far below 2^52")]
    let wanted = weight as f64 / remaining as f64;
    let written: f64 = format!("{wanted:.decimals$}").parse().unwrap_or(wanted);
    Some(format!("-m statistic --mode random --probability {} ", probability(written)))
}

/// Formats a probability as iptables prints it.
pub(super) fn probability(wanted: f64) -> String {
    let steps = f64::from(1_u32 << 31);
    format!("{:.11}", (wanted * steps).round() / steps)
}

/// Returns a match that applies an operation of `xt_recent`, such as `--set`, to the source list of an
/// endpoint.
pub(super) fn recent(family: IpFamily, list: &str, what: &str) -> String {
    let mask = match family {
        IpFamily::V4 => "255.255.255.255",
        IpFamily::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    };
    format!("-m recent {what} --name {list} --mask {mask} --rsource ")
}

/// Formats an address and an optional port as in `--to-destination`, the form in which iptables prints a DNAT
/// target.
pub(super) fn place(address: IpAddr, port: Option<Port>) -> String {
    match (address, port) {
        (IpAddr::V4(_), None) | (IpAddr::V6(_), None) => address.to_string(),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{}", port.get()),
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{}", port.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f095_probabilities_are_printed_in_the_kernels_precision() {
        let share = |weight, remaining| share(Weight(weight), remaining, 5);
        let says = |text: &str| Some(format!("-m statistic --mode random --probability {text} "));
        assert_eq!(share(1, 3), says("0.33332999982"));
        assert_eq!(share(1, 2), says("0.50000000000"));
        assert_eq!(share(1, 1), None);
    }

    #[test]
    fn a_rule_is_found_by_what_it_matches() {
        let rule = "! -s 10.0.0.0/8 -d 10.96.0.1/32 -p tcp -m comment --comment \"a/b:\" -m tcp --dport 80 -j KUBE-MARK-MASQ";
        assert_eq!(key_of(rule), "-d 10.96.0.1/32 -p tcp --dport 80");
        assert_eq!(target_of(rule), "KUBE-MARK-MASQ");
        assert_eq!((key_of("-j RETURN").as_str(), target_of("-m x")), ("", ""));
    }
}
