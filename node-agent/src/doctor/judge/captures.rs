//! Check of `tidegate-agent doctor` for rules of other programs that capture traffic of Services.

use super::{FindingDraft, is_of_kube_proxy, is_ours};
use crate::doctor::{
    Subject,
    captures::{Capture, CapturingRule, ServedFrontend, find},
    chains::{Chain, TableTool},
    checks::Check,
    holders::KUBE_PROXY,
    seen::MachineFacts,
};

pub(super) fn captured_traffic(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    // kube-proxy has its own check.
    let of_others = |chain: &Chain| !is_of_kube_proxy(chain) && chain.place.table != KUBE_PROXY;
    let found = find(&seen.chains, &seen.served, |chain| is_ours(subject, chain));
    let found: Vec<_> = found.iter().filter(|rule| of_others(rule.chain)).map(draft).collect();
    if found.is_empty() {
        return vec![FindingDraft::fine(
            Check::CapturedTraffic,
            "no rule of another program translates traffic of Services or exempts it from tracking",
        )];
    }
    found
}

fn draft(rule: &CapturingRule<'_>) -> FindingDraft {
    let CapturingRule { capture, chain, shown, handle, frontend } = rule;
    let does = match capture {
        Capture::NoTrack => "exempts from connection tracking",
        Capture::DestinationNat => "translates",
    };
    let message =
        format!("{}, chain {}: `{shown}` {does} connections to {}", chain.place, chain.name, name(frontend));
    let table = &chain.place.table;
    let delete = match (chain.place.keeper, handle) {
        (TableTool::Nft, Some(handle)) => {
            format!(
                "`nft delete rule {} {table} {} handle {handle}`",
                chain.place.family.as_str(),
                chain.name
            )
        }
        (TableTool::Nft, None) => "delete it with nft".to_owned(),
        (TableTool::Iptables(_), _) => match shown.strip_prefix("-A ") {
            Some(rule) => format!("`{} -t {table} -D {rule}`", chain.place.command()),
            None => format!("delete it with {}", chain.place.command()),
        },
    };
    let fix = format!("exclude the addresses and ports of Services from the rule, or delete it: {delete}");
    FindingDraft::warning(Check::CapturedTraffic, message, fix)
}

fn name(frontend: &ServedFrontend) -> String {
    let protocol = match frontend.protocol {
        6 => "TCP",
        17 => "UDP",
        _ => "SCTP",
    };
    match (frontend.address, frontend.ports) {
        (Some(address), (first, last)) if first == last => format!("{address} {protocol} port {first}"),
        (Some(address), (first, last)) => format!("{address} {protocol} ports {first}-{last}"),
        (None, (first, _)) => format!("node port {first}/{protocol}"),
    }
}
