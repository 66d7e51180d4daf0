//! Checks of `tidegate-agent doctor` for netfilter rules that other programs have written.

use std::collections::BTreeSet;

use dataplane::iptables::Flavour;
use model::wire::doctor::FindingState;

use super::{
    FindingDraft, PER_CHECK_MAX, has_kube_names, is_of_kube_proxy, is_ours,
    modes::ModeProperties,
    networks::{NetworkPlugin, plugins},
    own_bits,
};
use crate::doctor::{
    Subject,
    chains::{
        Chain, Condition, Effect, Family, Hook, MarkUse, Passing, TableLocation, TableTool, dropped_by,
    },
    checks::Check,
    holders::KUBE_PROXY,
    seen::MachineFacts,
};

pub(super) fn forward_drop(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let Some(passing) = ModeProperties::of(subject.mode).forwarded else {
        return vec![FindingDraft::fine(Check::ForwardDrop, "nothing is forwarded in this mode")];
    };
    let found = dropping(subject, seen, Hook::Forward, passing).map(|(chain, by)| {
        let message = format!("{} drops what it forwards: chain {}, {by}", chain.place, chain.name);
        FindingDraft::warning(Check::ForwardDrop, message, accepting(seen, chain, passing))
    });
    or_fine(found.collect(), Check::ForwardDrop, "no rule drops all forwarded traffic")
}

pub(super) fn input_drop(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let Some(passing) = ModeProperties::of(subject.mode).received else { return Vec::new() };
    let found = dropping(subject, seen, Hook::Input, passing).map(|(chain, by)| {
        let message = format!("{} drops incoming traffic: chain {}, {by}", chain.place, chain.name);
        let fix = match passing {
            Passing::Translated | Passing::Established => accepting(seen, chain, passing),
            Passing::Any => "accept the virtual addresses first, for example `iptables -I INPUT -d \
                             10.96.0.0/12 -j ACCEPT` with the network of cluster IPs"
                .to_owned(),
        };
        FindingDraft::warning(Check::InputDrop, message, fix)
    });
    or_fine(found.collect(), Check::InputDrop, "no rule drops all incoming traffic")
}

/// Returns the chains of other programs at a hook that drop the given kind of traffic, each with the rule or
/// policy that drops it.
fn dropping<'a>(
    subject: &'a Subject,
    seen: &'a MachineFacts,
    hook: Hook,
    passing: Passing,
) -> impl Iterator<Item = (&'a Chain, String)> {
    let at_hook =
        seen.chains.iter().filter(move |chain| chain.hook == Some(hook) && !is_ours(subject, chain));
    at_hook.filter_map(move |chain| Some((chain, dropped_by(&seen.chains, chain, passing)?)))
}

/// Returns a shell command that inserts a rule into `chain`, or into Docker's chain for user rules if there
/// is one. The rule accepts the given kind of traffic.
fn accepting(seen: &MachineFacts, chain: &Chain, passing: Passing) -> String {
    let is_established = passing == Passing::Established;
    let TableLocation { keeper, family, table } = &chain.place;
    match keeper {
        TableTool::Nft => {
            let condition = if is_established { "ct state established" } else { "ct status dnat" };
            format!("nft insert rule {} {table} {} {condition} accept", family.as_str(), chain.name)
        }
        TableTool::Iptables(_) => {
            let states = if is_established { "ESTABLISHED" } else { "DNAT" };
            // Docker reserves this chain for users; its own rules come before user rules in other chains.
            let has_user_chain =
                |name| seen.chains.iter().any(|other| other.place == chain.place && other.name == name);
            let is_docker = chain.hook == Some(Hook::Forward) && has_user_chain("DOCKER-USER");
            let name = if is_docker { "DOCKER-USER" } else { &chain.name };
            format!("{} -I {name} -m conntrack --ctstate {states} -j ACCEPT", chain.place.command())
        }
    }
}

fn or_fine(found: Vec<FindingDraft>, check: Check, message: &str) -> Vec<FindingDraft> {
    if found.is_empty() { vec![FindingDraft::fine(check, message)] } else { found }
}

pub(super) fn docker_direct_access(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let is_docker = |chain: &Chain| match chain.place.keeper {
        TableTool::Nft => chain.place.table.starts_with("docker"),
        TableTool::Iptables(_) => {
            // Docker's chains are in another table of the same tool.
            let is_beside = |other: &&Chain| {
                other.place.keeper == chain.place.keeper && other.place.family == chain.place.family
            };
            chain.place.table == "raw"
                && seen.chains.iter().filter(is_beside).any(|other| other.name == "DOCKER")
        }
    };
    let early = seen.chains.iter().filter(|chain| chain.hook == Some(Hook::Prerouting) && is_docker(chain));
    let found = early.filter_map(|chain| {
        let rule = chain.rules.iter().find(|rule| rule.effect == Effect::Drop && rule.condition == Condition::Other)?;
        let message = format!("{} drops traffic from other machines to containers: `{}`", chain.place, rule.shown);
        let fix = "only where endpoints are containers of Docker: set \"allow-direct-routing\": true in /etc/docker/daemon.json \
            and restart Docker, or give their network the option com.docker.network.bridge.gateway_mode_ipv4=nat-unprotected";
        Some(FindingDraft::warning(Check::DockerDirectAccess, message, fix))
    });
    or_fine(
        found.collect(),
        Check::DockerDirectAccess,
        "no Docker rule drops traffic from other nodes to containers",
    )
}

pub(super) fn firewalld(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let is_there = seen.chains.iter().any(|chain| match chain.place.keeper {
        TableTool::Nft => chain.place.table == "firewalld",
        TableTool::Iptables(_) => chain.name == "FORWARD_direct",
    });
    if !is_there {
        return vec![FindingDraft::fine(Check::Firewalld, "it has no rules here")];
    }
    let open = "firewall-cmd --permanent --zone=trusted --add-source=NETWORK for the networks of nodes and workloads, and \
        `firewall-cmd --reload`";
    let (message, fix) = if ModeProperties::of(subject.mode).uses_iptables {
        (
            "it is at work, and a reload of it flushes iptables",
            format!("{open}; set FlushAllOnReload=no in /etc/firewalld/firewalld.conf, or use mode nftables"),
        )
    } else {
        ("it is at work", open.to_owned())
    };
    vec![FindingDraft::warning(Check::Firewalld, message, fix)]
}

pub(super) fn flavours(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let rules = |flavour| -> usize {
        let of = |chain: &&Chain| chain.place.keeper == TableTool::Iptables(flavour);
        seen.chains.iter().filter(of).map(|chain| chain.rules_total).sum()
    };
    let (nft, legacy) = (rules(Flavour::Nft), rules(Flavour::Legacy));
    if nft == 0 || legacy == 0 {
        return vec![FindingDraft::fine(
            Check::IptablesFlavours,
            "at most one flavour of iptables has rules",
        )];
    }
    let message = format!("{nft} rules are in nf_tables, and {legacy} in the legacy tables");
    let fix = "list the legacy rules with iptables-legacy-save and ip6tables-legacy-save; move or remove \
               unused ones (`iptables-legacy -F`), and use one flavour for all (`update-alternatives \
               --config iptables`)";
    vec![FindingDraft::warning(Check::IptablesFlavours, message, fix)]
}

/// Names of chains that kubelet creates. They do not indicate kube-proxy.
const OF_KUBELET: [&str; 6] = [
    "KUBE-FIREWALL",
    "KUBE-KUBELET-CANARY",
    "KUBE-IPTABLES-HINT",
    "KUBE-MARK-DROP",
    "KUBE-MARK-MASQ",
    "KUBE-POSTROUTING",
];

pub(super) fn kube_proxy(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::KubeProxy;
    let running = seen.holders.iter().filter(|holder| holder.program == KUBE_PROXY).map(|holder| {
        let process = holder.process.map(|process| format!(" as process {process}")).unwrap_or_default();
        let message = format!("kube-proxy runs{process}");
        let fix =
            "kubectl -n kube-system delete daemonset kube-proxy, or stop its service; then clean up after it";
        FindingDraft { state: FindingState::Broken, ..FindingDraft::warning(check, message, fix) }
    });
    let places: BTreeSet<_> = seen
        .chains
        .iter()
        .filter(|chain| {
            !has_kube_names(subject) && is_of_kube_proxy(chain) && !OF_KUBELET.contains(&chain.name.as_str())
        })
        .filter(|chain| matches!(chain.place.keeper, TableTool::Iptables(_)))
        .map(|chain| (chain.place.keeper, chain.place.family))
        .collect();
    // The command would remove the chains of kube-router as well.
    let has_kube_router = plugins(seen).contains_key(&NetworkPlugin::KubeRouter);
    let chains = places.into_iter().map(|(keeper, family)| {
        let tool = TableLocation { keeper, family, table: String::new() }.command();
        let message = format!("chains of kube-proxy are in {tool}");
        let by_hand = format!(", or `{tool}-save | grep -v KUBE- | {tool}-restore`");
        let fix = format!("kube-proxy --cleanup{}", if has_kube_router { "" } else { &by_hand });
        FindingDraft::warning(check, message, fix)
    });
    let tables: BTreeSet<_> = seen
        .chains
        .iter()
        .filter(|chain| chain.place.keeper == TableTool::Nft && chain.place.table == KUBE_PROXY)
        .map(|chain| chain.place.family.as_str())
        .collect();
    let tables = tables.into_iter().map(|family| {
        let message = format!("table {family} {KUBE_PROXY} is in nf_tables");
        FindingDraft::warning(check, message, format!("nft delete table {family} {KUBE_PROXY}"))
    });
    let is_link_left = !has_kube_names(subject) && seen.links.iter().any(|link| link.name == KUBE_LINK);
    let link = is_link_left.then(|| {
        let fix = format!(
            "kube-proxy --cleanup, or `ip link delete {KUBE_LINK}` and, if IPVS has no \
                           other user, `ipvsadm -C`"
        );
        FindingDraft::warning(check, format!("interface {KUBE_LINK} holds addresses"), fix)
    });
    or_fine(
        running.chain(chains).chain(tables).chain(link).collect(),
        check,
        "no traces of kube-proxy \
                                                                               found",
    )
}

/// Name of the dummy interface that kube-proxy creates in IPVS mode.
const KUBE_LINK: &str = "kube-ipvs0";

pub(super) fn mark_clash(subject: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let bits = own_bits(subject);
    let fix = "make one of them use other bits; for the agent: --masquerade-bit, or spec.proxy of the \
               Node (masqueradeBit, dropBit)";
    let said = |message| FindingDraft::warning(Check::MarkClash, message, fix);
    let is_foreign = |chain: &&Chain| {
        // kube-proxy uses the same bits for the same purpose, and has its own check.
        !is_ours(subject, chain) && !is_of_kube_proxy(chain) && chain.place.table != KUBE_PROXY
    };
    let rules = seen.chains.iter().filter(is_foreign).flat_map(|chain| {
        let marks = chain.rules.iter().flat_map(|rule| rule.marks.iter().map(move |mark| (rule, mark)));
        marks.filter_map(move |(rule, mark)| {
            let does = clash(*mark, bits, chain.hook)?;
            Some(format!("{}, chain {}: `{}` {does}", chain.place, chain.name, rule.shown))
        })
    });
    let routing = seen.routing_rules.iter().filter(|rule| rule.mark & rule.mask & bits != 0).map(|rule| {
        let family = match rule.family {
            Family::Ip | Family::Inet => "-4",
            Family::Ip6 => "-6",
        };
        let (priority, mark, mask) = (rule.priority, rule.mark, rule.mask);
        format!(
            "`ip {family} rule` {priority} matches mark {mark:#x}/{mask:#x}, which includes one of \
                 our bits"
        )
    });
    let found = rules.chain(routing).take(PER_CHECK_MAX).map(said).collect();
    or_fine(found, Check::MarkClash, &format!("no other program uses the mark bits {bits:#x}"))
}

/// Describes the conflict between a rule's use of the packet mark and the agent's `bits` of it. `hook` is the
/// hook of the rule's chain. Returns `None` if there is no conflict.
fn clash(mark: MarkUse, bits: u32, hook: Option<Hook>) -> Option<&'static str> {
    // Hooks between setting and testing our bits.
    let is_between = match hook {
        Some(Hook::Forward | Hook::Postrouting) => true,
        Some(Hook::Prerouting | Hook::Input | Hook::Output) | None => false,
    };
    match mark {
        MarkUse::Sets { value, .. } if value & bits != 0 => Some("sets one of our bits"),
        MarkUse::Sets { touched, .. } => {
            (touched & bits != 0 && is_between).then_some("clears one of our bits")
        }
        MarkUse::Tests { value, mask } => {
            let is_asked = if mask == u32::MAX { value & bits != 0 } else { mask & bits != 0 };
            is_asked.then_some("tests one of our bits")
        }
    }
}
