//! Checks of `tidegate-agent doctor` for the resolution of names.

use super::FindingDraft;
use crate::doctor::{Subject, checks::Check, resolver::ResolverSettings, seen::MachineFacts};

/// Maximum number of name servers that resolvers use (`MAXNS` of glibc; musl).
const NAME_SERVERS_MAX: usize = 3;
/// Maximum number of domains in the search path (glibc before 2.26).
const DOMAINS_MAX: usize = 6;
/// Maximum length of the search path in characters (glibc before 2.26; musl).
const SEARCH_LENGTH_MAX: usize = 256;
/// Number of questions for one external name above which the search path is reported: three domains of the cluster, and
/// the name itself, each for IPv4 and IPv6.
const QUESTIONS_MAX: usize = 8;
/// Number of dots in external names such as `www.example.com`.
const EXTERNAL_DOTS: u32 = 2;
/// Names that desktops resolve by multicast (RFC 6762 §3).
const MULTICAST_DOMAIN: &str = "local";

pub(super) fn resolver(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::Resolver;
    let Some(settings) = &seen.resolver else { return Vec::new() };
    let ResolverSettings { name_servers, search, ndots, has_multicast_first } = settings;
    let warning = |message: String, fix: &str| FindingDraft::warning(check, message, fix);
    let mut found = Vec::new();
    if let Some(unused) = name_servers.get(NAME_SERVERS_MAX..).filter(|unused| !unused.is_empty()) {
        found.push(warning(
            format!("name servers after the third are never asked: {}", unused.join(", ")),
            "leave at most three lines `nameserver` in /etc/resolv.conf",
        ));
    }
    let length = search.join(" ").len();
    if search.len() > DOMAINS_MAX || length > SEARCH_LENGTH_MAX {
        found.push(warning(
            format!(
                "the search path has {} domains and {length} characters; glibc before 2.26 reads \
                 {DOMAINS_MAX} domains, and it and musl {SEARCH_LENGTH_MAX} characters",
                search.len()
            ),
            "remove domains from `search` in /etc/resolv.conf",
        ));
    }
    let questions = questions(search.len(), *ndots);
    if questions > QUESTIONS_MAX {
        found.push(warning(
            format!(
                "an external name such as www.example.com costs up to {questions} questions: ndots:{ndots} with {} \
                 domains in the search path",
                search.len()
            ),
            "`options ndots:2` in /etc/resolv.conf, fewer domains in `search`, or a dot at the end of external names",
        ));
    }
    let is_multicast = |domain: &&String| domain.rsplit('.').next() == Some(MULTICAST_DOMAIN);
    if let Some(domain) = search.iter().find(is_multicast).filter(|_| *has_multicast_first) {
        found.push(warning(
            format!("names in {domain} may be resolved by multicast and not by DNS (mdns in /etc/nsswitch.conf)"),
            "another cluster zone (`--domain` of tidegate-dns), or remove `mdns4_minimal [NOTFOUND=return]` from the line \
             `hosts` of /etc/nsswitch.conf",
        ));
    }
    if found.is_empty() {
        let message = format!("an external name costs up to {questions} questions");
        found.push(FindingDraft::fine(check, message));
    }
    found
}

/// Returns the maximum number of questions for an external name, for IPv4 and IPv6 addresses.
const fn questions(domains: usize, ndots: u32) -> usize {
    let searched = if ndots > EXTERNAL_DOTS { domains } else { 0 };
    (searched + 1) * 2
}

pub(super) fn dns_port(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::DnsPort;
    let finding = |holder: &crate::doctor::seen::Holder| {
        let process = holder.process.map(|process| format!(" (process {process})")).unwrap_or_default();
        let fix = "if tidegate-dns runs here: let the other program listen at single addresses, or stop it";
        FindingDraft::warning(check, format!("{}{process} {}", holder.program, holder.does), fix)
    };
    let found: Vec<_> = seen.name_servers.iter().map(finding).collect();
    if found.is_empty() {
        vec![FindingDraft::fine(check, "no other program listens at port 53 of all addresses")]
    } else {
        found
    }
}
