//! Checks of `tidegate-agent doctor` for kernel settings, interfaces and running programs.

use dataplane::policy;
use model::wire::doctor::{FindingState, SafeFix};

use super::{FindingDraft, modes::ModeProperties};
use crate::doctor::{
    Subject, checks::Check, fixes::NEAR_FULL_PERCENT, holders::KUBE_PROXY, seen::MachineFacts,
};

pub(super) fn conntrack_size(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::ConntrackSize;
    let (Some(count), Some(max)) = (seen.conntrack_count, seen.conntrack_max) else { return Vec::new() };
    let Some(percent) = count.saturating_mul(100).checked_div(max) else {
        return vec![FindingDraft::fine(check, format!("{count} connections are tracked, without a limit"))];
    };
    let message = format!("{count} of {max} connections are tracked ({percent} %)");
    if percent < NEAR_FULL_PERCENT {
        return vec![FindingDraft::fine(check, message)];
    }
    let fix =
        format!("sysctl -w net.netfilter.nf_conntrack_max={}, and in /etc/sysctl.d", max.saturating_mul(2));
    let state = if count >= max { FindingState::Broken } else { FindingState::Warning };
    vec![FindingDraft {
        state,
        safe_fix: Some(SafeFix::ConntrackMax),
        ..FindingDraft::warning(check, message, fix)
    }]
}

pub(super) fn conntrack_helper(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::ConntrackHelper;
    match seen.conntrack_helper {
        Some(0) => vec![FindingDraft::fine(check, "helpers are assigned only by rules")],
        Some(_) => vec![FindingDraft::warning(
            check,
            "helpers are assigned to every connection at their port",
            "sysctl -w net.netfilter.nf_conntrack_helper=0, and in /etc/sysctl.d",
        )],
        // Not supported by later kernels.
        None => Vec::new(),
    }
}

/// Kinds of interfaces that carry no traffic between machines, so that their MTU does not matter.
const INNER_KINDS: [&str; 1] = ["dummy"];

pub(super) fn mtu(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let has_network = |name: &str| seen.with_network.iter().any(|names| names.contains(name));
    let carrying = || {
        seen.links.iter().filter(|link| {
            link.name != "lo" && has_network(&link.name) && !INNER_KINDS.contains(&link.kind.as_str())
        })
    };
    let check = Check::Mtu;
    let (Some(least), Some(most)) =
        (carrying().min_by_key(|link| link.mtu), carrying().max_by_key(|link| link.mtu))
    else {
        return Vec::new();
    };
    if least.mtu == most.mtu || ModeProperties::of(subject.mode).forwarded.is_none() {
        return vec![FindingDraft::fine(check, format!("networks carry packets of {} bytes", least.mtu))];
    }
    let message = format!(
        "packets of {} bytes that come by {} do not fit {} ({} bytes)",
        most.mtu, most.name, least.name, least.mtu
    );
    if seen.chains.iter().flat_map(|chain| &chain.rules).any(|rule| rule.clamps) {
        return vec![FindingDraft::fine(check, format!("{message}; a rule clamps the TCP MSS"))];
    }
    let fix = format!(
        "give both the same size (`ip link set {} mtu {}`), or make segments smaller: \
         `iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu`",
        most.name, least.mtu
    );
    vec![FindingDraft::warning(check, message, fix)]
}

pub(super) fn bridge_traffic(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::BridgeTraffic;
    let is_bridge = |name: &String| seen.links.iter().any(|link| link.kind == "bridge" && link.name == *name);
    let passed_by = |family: usize| {
        let bridge = seen.with_network.get(family)?.iter().find(|name| is_bridge(name))?;
        let is_called = seen.bridge_calls.get(family).copied().flatten() == Some(1);
        (!is_called).then_some(bridge)
    };
    let found = [("iptables", passed_by(0)), ("ip6tables", passed_by(1))];
    let Some((name, bridge)) = found.into_iter().find_map(|(name, bridge)| Some((name, bridge?))) else {
        return vec![FindingDraft::fine(check, "no bridge forwards replies without passing the rules")];
    };
    let has_policy = seen.chains.iter().any(|chain| chain.place.table == policy::schema::TABLE);
    if ModeProperties::of(subject.mode).forwarded.is_none() && !has_policy {
        return vec![FindingDraft::fine(check, format!("bridge {bridge} does not matter in this mode"))];
    }
    let without_policy = if has_policy { ", so network policy does not apply to them" } else { "" };
    let message = format!("packets between ports of bridge {bridge} do not pass the rules{without_policy}");
    let fix = format!(
        "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-{name}=1, where clients and endpoints are on {bridge}"
    );
    vec![FindingDraft::warning(check, message, fix)]
}

pub(super) fn arp_flux(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::ArpFlux;
    if !ModeProperties::of(subject.mode).assigns_addresses {
        return Vec::new();
    }
    let [Some(ignore), Some(announce)] = seen.arp else { return Vec::new() };
    let message = format!("net.ipv4.conf.all.arp_ignore is {ignore}, arp_announce is {announce}");
    if ignore >= 1 && announce >= 2 {
        return vec![FindingDraft::fine(check, message)];
    }
    vec![FindingDraft::warning(
        check,
        message,
        "leave --strict-arp on; or sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
    )]
}

pub(super) fn other_announcer(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::OtherAnnouncer;
    let others = seen.holders.iter().filter(|holder| holder.program != KUBE_PROXY).map(|holder| {
        let process = holder.process.map(|process| format!(" (process {process})")).unwrap_or_default();
        let fix = match holder.process {
            Some(process) => format!(
                "stop it (`systemctl status {process}` shows its unit), or give it other addresses and \
                 ports"
            ),
            None => "run `ss -lnp` as root to find it; stop it, or give it another port".to_owned(),
        };
        FindingDraft::warning(check, format!("{}{process} {}", holder.program, holder.does), fix)
    });
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        vec![FindingDraft::fine(check, "no other program announces addresses here")]
    } else {
        others
    }
}

pub(super) fn service_route(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let finding = |range: &ipnet::IpNet| {
        let message =
            format!("no route of this machine leads to the Service range {range}; the agent keeps one");
        FindingDraft::fine(Check::ServiceRoute, message)
    };
    seen.service_routes.iter().map(finding).collect()
}

pub(super) fn unseen(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let fix = "run as root (CAP_NET_ADMIN), with the package iptables where iptables has rules";
    let found =
        seen.unseen.iter().map(|what| FindingDraft::warning(Check::Unseen, format!("not read: {what}"), fix));
    let found: Vec<_> = found.collect();
    if found.is_empty() { vec![FindingDraft::fine(Check::Unseen, "everything could be read")] } else { found }
}
