//! What else on a machine stands in the way of traffic: the verdicts, pure, over what was read.

use model::ask::{Finding, FindingState};

/// Share of the connection table above which new connections are at risk, in percent.
const CONNTRACK_WARN_PERCENT: u64 = 80;

/// What was read of the machine; `None` where it could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Connections that are tracked.
    pub(super) conntrack_count: Option<u64>,
    /// How many may be.
    pub(super) conntrack_max: Option<u64>,
    /// What `iptables -S FORWARD` and `ip6tables -S FORWARD` say.
    pub(super) forward: [Option<String>; 2],
    /// Tables that the legacy iptables of the kernel hold.
    pub(super) legacy_tables: Option<String>,
    /// What `iptables --version` says.
    pub(super) iptables_version: Option<String>,
}

/// Judges what was read.
pub(super) fn judge(read: &Surroundings) -> Vec<Finding> {
    let [forward_v4, forward_v6] = &read.forward;
    [
        conntrack(read),
        forward("forward-policy-ipv4", "iptables", forward_v4.as_deref()),
        forward("forward-policy-ipv6", "ip6tables", forward_v6.as_deref()),
        flavours(read),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn finding(check: &str, state: FindingState, message: String, fix: Option<String>) -> Finding {
    Finding { check: check.to_owned(), state, message, fix }
}

fn conntrack(read: &Surroundings) -> Option<Finding> {
    let (count, max) = (read.conntrack_count?, read.conntrack_max?);
    let percent = count.saturating_mul(100).checked_div(max)?;
    let message = format!("{count} of {max} connections are tracked ({percent} %)");
    let is_near = percent >= CONNTRACK_WARN_PERCENT;
    let state = match (count >= max, is_near) {
        (true, _) => FindingState::Broken,
        (false, true) => FindingState::Warning,
        (false, false) => FindingState::Fine,
    };
    let fix = format!("sysctl -w net.netfilter.nf_conntrack_max={}, and in /etc/sysctl.d", max.saturating_mul(2));
    Some(finding("conntrack-size", state, message, is_near.then_some(fix)))
}

/// A policy or a last rule that drops what is forwarded; Docker and firewalld set such.
fn forward(check: &str, tool: &str, rules: Option<&str>) -> Option<Finding> {
    let rules = rules?;
    let drops = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        matches!(words[..], ["-P", "FORWARD", "DROP" | "REJECT"] | ["-A", "FORWARD", "-j", "DROP" | "REJECT", ..])
    };
    let Some(found) = rules.lines().find(drops) else {
        return Some(finding(check, FindingState::Fine, format!("{tool} lets forwarded packets pass"), None));
    };
    let message = format!("{tool} drops forwarded packets that no earlier rule accepts: `{}`", found.trim());
    let fix = format!(
        "accept traffic to endpoints before it, such as `{tool} -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT` and \
         `{tool} -I FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT`"
    );
    Some(finding(check, FindingState::Warning, message, Some(fix)))
}

/// Rules in both flavours of iptables at once: each tool shows half of what packets meet.
fn flavours(read: &Surroundings) -> Option<Finding> {
    let version = read.iptables_version.as_deref()?;
    let tables: Vec<_> = read.legacy_tables.as_deref().unwrap_or_default().split_whitespace().collect();
    let is_mixed = version.contains("nf_tables") && !tables.is_empty();
    let (state, message) = if is_mixed {
        let tables = tables.join(", ");
        (FindingState::Warning, format!("`iptables` is nf_tables, and legacy tables are in the kernel as well: {tables}"))
    } else {
        (FindingState::Fine, "one flavour of iptables is in use".to_owned())
    };
    let fix = "list them by iptables-legacy-save and remove what nobody needs, or use one flavour for all";
    Some(finding("iptables-flavours", state, message, is_mixed.then(|| fix.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(read: &Surroundings) -> Vec<(String, FindingState)> {
        judge(read).into_iter().map(|finding| (finding.check, finding.state)).collect()
    }

    #[test]
    fn a_table_that_fills_is_told_before_it_is_full() {
        let read = |count| Surroundings {
            conntrack_count: Some(count),
            conntrack_max: Some(1000),
            ..Surroundings::default()
        };
        let state = |count| states(&read(count)).remove(0).1;
        assert_eq!([10, 799].map(state), [FindingState::Fine; 2]);
        assert_eq!(state(800), FindingState::Warning);
        assert_eq!(state(1000), FindingState::Broken);
        let none = Surroundings { conntrack_max: Some(0), ..read(1) };
        assert_eq!(states(&none), []);
    }

    #[test]
    fn a_chain_that_drops_what_is_left_is_named_with_its_rule() {
        let read = |rules: &str| Surroundings { forward: [Some(rules.to_owned()), None], ..Surroundings::default() };
        let state = |rules| states(&read(rules)).remove(0).1;
        assert_eq!(state("-P FORWARD ACCEPT\n-A FORWARD -i br0 -j DROP\n"), FindingState::Fine);
        assert_eq!(state("-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n"), FindingState::Warning);
        let last = "-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-port-unreachable\n";
        assert_eq!(state(last), FindingState::Warning);
        assert!(judge(&read(last))[0].message.contains("`-A FORWARD -j REJECT"));
        assert_eq!(state(""), FindingState::Fine);
    }

    #[test]
    fn two_flavours_at_once_are_told() {
        let read = |version: &str, tables: &str| Surroundings {
            iptables_version: Some(version.to_owned()),
            legacy_tables: Some(tables.to_owned()),
            ..Surroundings::default()
        };
        assert_eq!(states(&read("iptables v1.8.9 (nf_tables)", "nat\nfilter\n"))[0].1, FindingState::Warning);
        for (version, tables) in [("iptables v1.8.9 (nf_tables)", ""), ("iptables v1.8.9 (legacy)", "nat\n")] {
            assert_eq!(states(&read(version, tables))[0].1, FindingState::Fine);
        }
    }
}
