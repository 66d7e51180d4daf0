//! Rules as `iptables-save` prints them, without the chain in front: the one form in which rules are written, read and
//! compared.

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

/// What a rule looks at, in the order in which iptables prints it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match<'a> {
    /// The source, or everything but it.
    pub(super) source: Source,
    /// The destination address.
    pub(super) destination: Option<IpAddr>,
    /// The transport protocol and its destination ports.
    pub(super) transport: Option<(Protocol, Option<PortRange>)>,
    /// Whose rule it is.
    pub(super) comment: &'a str,
}

/// The sources that a rule is for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Source {
    /// All of them.
    #[default]
    Any,
    /// Those in the network.
    In(IpNet),
    /// Those outside of it.
    NotIn(IpNet),
    /// The node's own addresses.
    Node,
}

impl Match<'_> {
    /// The match of a frontend, for a rule with a comment.
    pub(super) fn frontend(frontend: Frontend, comment: &str) -> Match<'_> {
        let destination = match frontend.destination {
            Destination::Address(address) => Some(address),
            Destination::AnyLocal(_) => None,
        };
        let transport = Some((frontend.protocol, Some(frontend.ports)));
        Match { destination, transport, comment, ..Match::default() }
    }

    /// The rule with this action, which may bring matches of its own.
    pub(super) fn rule(&self, action: &str) -> String {
        let Self { source, destination, transport, comment } = *self;
        let mut rule = String::new();
        match source {
            Source::In(net) if net.prefix_len() > 0 => put(&mut rule, format_args!("-s {} ", net.trunc())),
            Source::NotIn(net) => put(&mut rule, format_args!("! -s {} ", net.trunc())),
            Source::Any | Source::Node | Source::In(_) => {}
        }
        if let Some(address) = destination {
            put(&mut rule, format_args!("-d {} ", host(address)));
        }
        if let Some((protocol, _)) = transport {
            put(&mut rule, format_args!("-p {} ", protocol_word(protocol)));
        }
        put(&mut rule, format_args!("-m comment --comment \"{comment}\" "));
        if matches!(source, Source::Node) {
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

/// What all lines for one frontend in one chain have in common.
pub(super) fn frontend_key(frontend: Frontend) -> String {
    let rest = format!("-p {} --dport {}", protocol_word(frontend.protocol), span(frontend.ports));
    match frontend.destination {
        Destination::Address(address) => format!("{} {rest}", address_key(address)),
        Destination::AnyLocal(_) => rest,
    }
}

/// What all lines for one whole address in one chain have in common.
pub(super) fn address_key(address: IpAddr) -> String {
    format!("-d {}", host(address))
}

/// What a rule has in common with the others for its destination: address, protocol and port.
pub(super) fn key_of(rule: &str) -> String {
    let words: Vec<_> = rule.split(' ').collect();
    let pairs = words.windows(2).filter(|pair| matches!(pair[0], "-d" | "-p" | "--dport"));
    pairs.map(|pair| pair.join(" ")).collect::<Vec<_>>().join(" ")
}

/// The chain or extension that a rule leads to.
pub(super) fn target_of(rule: &str) -> &str {
    let mut words = rule.split(' ');
    words.find(|word| matches!(*word, "-j" | "-g")).and_then(|_| words.next()).unwrap_or_default()
}

/// The match that takes a share of the connections that reach it: the weight among all that remain. `None` takes all.
///
/// The kernel compares 31 random bits, and iptables prints what it makes of them.
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

/// A probability as iptables prints it.
pub(super) fn probability(wanted: f64) -> String {
    let steps = f64::from(1_u32 << 31);
    format!("{:.11}", (wanted * steps).round() / steps)
}

/// The list of recent sources of an endpoint, which the match is to do something with.
pub(super) fn recent(family: IpFamily, list: &str, what: &str) -> String {
    let mask = match family {
        IpFamily::V4 => "255.255.255.255",
        IpFamily::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    };
    format!("-m recent {what} --name {list} --mask {mask} --rsource ")
}

/// Where a translated connection goes, as iptables prints it.
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
