//! Settings with which programs resolve names: `resolv.conf` and the sources in `nsswitch.conf`. Does no I/O.

/// Number of dots from which a name is asked as it is first, without the option `ndots` (resolv.conf(5)).
const NDOTS_DEFAULT: u32 = 1;
/// Maximum value of the option `ndots` (resolv.conf(5)).
const NDOTS_MAX: u32 = 15;

/// Settings with which programs resolve names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResolverSettings {
    /// Addresses of the name servers, in the order in which they are asked.
    pub(super) name_servers: Vec<String>,
    /// Domains that are appended to names, in lower case, without the final dot.
    pub(super) search: Vec<String>,
    /// Number of dots from which a name is asked as it is first.
    pub(super) ndots: u32,
    /// True if a source for multicast names is asked before DNS, and its denial of a name is final.
    pub(super) has_multicast_first: bool,
}

/// Parses `resolv.conf` and `nsswitch.conf`. Unknown lines are skipped.
pub(super) fn parse(resolv_conf: &str, nsswitch_conf: &str) -> ResolverSettings {
    let mut settings = ResolverSettings { ndots: NDOTS_DEFAULT, ..ResolverSettings::default() };
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => settings.name_servers.extend(words.next().map(str::to_owned)),
            // The last line counts.
            Some("search" | "domain") => {
                settings.search = words.map(|word| word.trim_end_matches('.').to_ascii_lowercase()).collect();
            }
            Some("options") => {
                let mut values = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                settings.ndots = values.next_back().unwrap_or(settings.ndots).min(NDOTS_MAX);
            }
            Some(_) | None => {}
        }
    }
    settings.has_multicast_first = has_multicast_first(nsswitch_conf);
    settings
}

/// Returns true if the line `hosts` has a source such as `mdns4_minimal [NOTFOUND=return]` before `dns`.
fn has_multicast_first(nsswitch_conf: &str) -> bool {
    let sources = nsswitch_conf.lines().find_map(|line| line.trim_start().strip_prefix("hosts:"));
    let before = sources.unwrap_or_default().split_whitespace().take_while(|word| *word != "dns");
    let words: Vec<_> = before.collect();
    words
        .windows(2)
        .any(|pair| pair[0].starts_with("mdns") && pair[1].to_ascii_uppercase().contains("NOTFOUND=RETURN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_the_last_search_path_counts() {
        let text = "# made by hand\nnameserver 10.96.0.53\nnameserver ::1\nsearch a.example\n\
                    search shop.svc.Cluster.Local. svc.cluster.local\noptions edns0 ndots:5 timeout:1\n";
        let sources = "passwd: files\nhosts: files mdns4_minimal [NOTFOUND=return] dns\n";
        let settings = ResolverSettings {
            name_servers: vec!["10.96.0.53".to_owned(), "::1".to_owned()],
            search: vec!["shop.svc.cluster.local".to_owned(), "svc.cluster.local".to_owned()],
            ndots: 5,
            has_multicast_first: true,
        };
        assert_eq!(parse(text, sources), settings);
        let plain = ResolverSettings { ndots: 1, ..ResolverSettings::default() };
        assert_eq!(parse("", "hosts: files dns mdns4 [NOTFOUND=return]"), plain);
        assert_eq!(parse("nonsense\n", "hosts: mdns4 dns"), plain);
    }
}
