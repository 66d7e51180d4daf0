//! Upstream servers by the zones for whose names they are asked: those of the longest zone that contains a name.

use std::collections::BTreeMap;

use hickory_proto::rr::Name;
use model::wire::dns_server::DnsUpstream;

use super::upstream::{UpstreamOptions, Upstreams};
use crate::args::{UpstreamServer, UpstreamSetting};

/// Upstream servers of all zones.
#[derive(Debug)]
pub(super) struct UpstreamZones {
    /// Zones with their servers, those with the most labels first. The zone of all names is the root.
    zones: Vec<(Name, Upstreams)>,
}

/// Upstream servers for a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameServers<'a> {
    /// Place of the zone among all zones.
    pub(super) place: usize,
    pub(super) zone: &'a Name,
    pub(super) upstreams: &'a Upstreams,
}

impl UpstreamZones {
    /// Creates the state of the servers.
    pub(super) fn new(settings: Vec<UpstreamSetting>, options: &UpstreamOptions) -> Self {
        let mut servers: BTreeMap<Name, Vec<UpstreamServer>> = BTreeMap::new();
        for UpstreamSetting { zone, server } in settings {
            let labels = zone.iter().flat_map(|zone| zone.as_str().split('.')).map(str::as_bytes);
            let zone = Name::from_labels(labels).expect("a domain name is valid in DNS messages");
            servers.entry(zone).or_default().push(server);
        }
        let upstreams =
            |(zone, servers): (Name, _)| (zone.clone(), Upstreams::new((&zone, servers), options));
        let mut zones: Vec<_> = servers.into_iter().map(upstreams).collect();
        zones.sort_by_key(|(zone, _)| std::cmp::Reverse(zone.iter().count()));
        Self { zones }
    }

    /// Number of zones.
    pub(super) const fn len(&self) -> usize {
        self.zones.len()
    }

    /// Returns the longest zone that contains a name, with its servers. `None` if no server is asked for the name.
    pub(super) fn of(&self, name: &Name) -> Option<NameServers<'_>> {
        let mut zones = self.zones.iter().enumerate();
        let (place, (zone, upstreams)) = zones.find(|(_, (zone, _))| zone.zone_of(name))?;
        Some(NameServers { place, zone, upstreams })
    }

    /// Returns all servers with their states, those of the longest zones first.
    pub(super) fn states(&self) -> Vec<DnsUpstream> {
        self.zones
            .iter()
            .flat_map(|(_, upstreams)| upstreams.statuses())
            .map(|status| status.server)
            .collect()
    }

    /// Returns true if a name is that of a check for loops.
    pub(super) fn is_loop_check(&self, name: &Name) -> bool {
        self.zones.iter().any(|(_, upstreams)| upstreams.is_loop_check(name))
    }

    /// Checks the servers that may have a loop. Returns the number of those that have one.
    pub(super) async fn check_loops(&self) -> usize {
        let mut looping = 0;
        for (_, upstreams) in &self.zones {
            looping += upstreams.check_loops().await;
        }
        looping
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::{args::UpstreamPolicy, message::TtlLimits};

    /// A name has the servers of the longest zone that contains it, by whole labels and in any spelling.
    #[test]
    fn the_longest_zone_decides() {
        let parse = |texts: &[&str]| {
            let settings = texts.iter().map(|text| UpstreamSetting::parse(text).unwrap()).collect();
            let tls = tls_trust::Trust::authorities([]).unwrap().client().unwrap().with_no_client_auth();
            let options = UpstreamOptions {
                policy: UpstreamPolicy::Sequential,
                tls: Arc::new(tls),
                ttl_limits: TtlLimits { positive: 1, negative: 1 },
                original_spellings: Counter::default(),
            };
            UpstreamZones::new(settings, &options)
        };
        let settings =
            ["192.0.2.1", "corp.example=192.0.2.2", "dev.corp.example=192.0.2.3", "corp.example=192.0.2.4"];
        let zones = parse(&settings);
        let servers = |zones: &UpstreamZones, name: &str| {
            let found = zones.of(&Name::from_ascii(name).unwrap());
            found.map(|found| {
                found.upstreams.statuses().into_iter().map(|status| status.server.server).collect::<Vec<_>>()
            })
        };
        let corp = ["corp.example=192.0.2.2:53", "corp.example=192.0.2.4:53"];
        for (name, expected) in [
            ("www.example.", &["192.0.2.1:53"][..]),
            ("example.", &["192.0.2.1:53"]),
            (".", &["192.0.2.1:53"]),
            ("notcorp.example.", &["192.0.2.1:53"]),
            ("corp.example.", &corp),
            ("WWW.Corp.Example.", &corp),
            ("xdev.corp.example.", &corp),
            ("a.b.dev.corp.example.", &["dev.corp.example=192.0.2.3:53"]),
        ] {
            assert_eq!(servers(&zones, name).unwrap(), expected, "{name}");
        }
        assert_eq!(zones.states().len(), 4);
        let corp_only = parse(&settings[1..2]);
        assert_eq!(servers(&corp_only, "www.example."), None);
        assert!(servers(&corp_only, "www.corp.example.").is_some());
    }
}
