//! Evaluates the collected data about the machine: each check of `tidegate-agent doctor` that applies to the
//! proxy mode returns findings, its results. Does no I/O.

mod captures;
mod machine;
mod modes;
mod names;
mod networks;
mod rules;
#[cfg(test)]
mod tests;

use announce::ping;
use dataplane::{nftables, policy, userspace};
use model::{
    kinds::node::Naming,
    wire::doctor::{Finding, FindingState, SafeFix},
};
use network::filter;

use self::modes::ModeProperties;
use super::{
    Subject,
    chains::{Chain, TableTool},
    checks::Check,
    seen::MachineFacts,
};

/// Maximum number of results (findings) of one check; further ones are omitted.
const PER_CHECK_MAX: usize = 8;

/// Runs the checks that apply to `subject` on the machine data `seen`, and returns their results.
pub(super) fn judge(subject: &Subject, seen: &MachineFacts) -> Vec<Finding> {
    let judges = [
        machine::conntrack_size,
        machine::conntrack_helper,
        rules::forward_drop,
        rules::input_drop,
        rules::docker_direct_access,
        rules::firewalld,
        rules::flavours,
        rules::kube_proxy,
        networks::foreign_network,
        rules::mark_clash,
        captures::captured_traffic,
        machine::mtu,
        machine::bridge_traffic,
        machine::arp_flux,
        machine::other_announcer,
        machine::service_route,
        names::resolver,
        names::dns_port,
        machine::unseen,
    ];
    let mut findings = Vec::new();
    for judge in judges {
        let found = judge(subject, seen);
        findings.extend(found.into_iter().take(PER_CHECK_MAX).map(FindingDraft::finding));
    }
    findings
}

/// Result of a check, before its texts are cut to their maximum size.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FindingDraft {
    check: Check,
    state: FindingState,
    message: String,
    fix: Option<String>,
    safe_fix: Option<SafeFix>,
}

impl FindingDraft {
    fn fine(check: Check, message: impl Into<String>) -> Self {
        Self { check, state: FindingState::Fine, message: message.into(), fix: None, safe_fix: None }
    }

    fn warning(check: Check, message: impl Into<String>, fix: impl Into<String>) -> Self {
        let (message, fix) = (message.into(), Some(fix.into()));
        Self { check, state: FindingState::Warning, message, fix, safe_fix: None }
    }

    fn finding(self) -> Finding {
        let Self { check, state, message, fix, safe_fix } = self;
        Finding {
            check: check.as_str().to_owned(),
            state,
            message,
            why: (state != FindingState::Fine).then(|| check.why().to_owned()),
            fix,
            safe_fix,
        }
    }
}

/// Names of the nf_tables tables that only the agent writes.
const OWN_TABLES: [&str; 6] = [
    nftables::schema::TABLE,
    nftables::schema::OWNERS_TABLE,
    userspace::TABLE,
    ping::schema::TABLE,
    policy::schema::TABLE,
    filter::TABLE,
];
/// Prefixes of the agent's chain names in iptables and ipvs mode.
const OWN_PREFIXES: [&str; 2] = ["TG-", "TGV-"];
/// Prefix of the chain names of kube-proxy, which the agent also uses with kube naming.
const KUBE_PREFIX: &str = "KUBE-";

/// Returns true if the agent has created the chain.
fn is_ours(subject: &Subject, chain: &Chain) -> bool {
    match chain.place.keeper {
        TableTool::Nft => OWN_TABLES.contains(&chain.place.table.as_str()),
        TableTool::Iptables(_) => {
            let is_of_proxy = has_kube_names(subject) && is_of_kube_proxy(chain);
            is_of_proxy || OWN_PREFIXES.iter().any(|prefix| chain.name.starts_with(prefix))
        }
    }
}

/// Returns true if a chain of iptables has a name of kube-proxy, or of the agent with kube naming.
fn is_of_kube_proxy(chain: &Chain) -> bool {
    chain.name.starts_with(KUBE_PREFIX) && !networks::is_kube_router_chain(&chain.name)
}

/// Returns true if the agent's chains have the names of kube-proxy.
fn has_kube_names(subject: &Subject) -> bool {
    ModeProperties::of(subject.mode).uses_iptables && subject.options.naming == Naming::Kube
}

/// Returns the bits of the packet mark that the agent sets with this configuration.
fn own_bits(subject: &Subject) -> u32 {
    let options = &subject.options;
    let drop_mark = if ModeProperties::of(subject.mode).uses_iptables { options.drop_mark } else { 0 };
    options.masquerade_mark | drop_mark
}
