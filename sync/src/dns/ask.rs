//! DNS queries with hickory-resolver.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{RData, RecordType},
};

use super::{
    machine::{Answer, Target},
    parse::Binding,
};

/// Timeout of each attempt of a DNS query, and maximum number of attempts.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;
/// Maximum number of target hosts queried per SRV name.
const HOSTS_MAX: usize = 100;
/// Weight of a host whose SRV record has weight 0: a small share of the traffic (RFC 2782).
const SRV_WEIGHT_MIN: u16 = 1;

/// Creates a resolver for the given name servers, or for those of the machine.
pub(super) fn resolver(servers: &[SocketAddr]) -> anyhow::Result<TokioResolver> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if servers.is_empty() {
        TokioResolver::builder(provider)?
    } else {
        let server = |address: &SocketAddr| {
            let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for connection in &mut connections {
                connection.port = address.port();
            }
            NameServerConfig::new(address.ip(), true, connections)
        };
        let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
        TokioResolver::builder_with_config(config, provider)
    };
    let options: &mut ResolverOpts = builder.options_mut();
    // The caller controls the lifetime of answers; a cache would prolong it.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = TIMEOUT;
    options.attempts = ATTEMPTS;
    Ok(builder.build()?)
}

/// Queries the records of one configured DNS name and converts the result to endpoints.
pub(super) async fn ask(resolver: &TokioResolver, binding: &Binding) -> Answer {
    let asked = if binding.is_srv() {
        services(resolver, &binding.name).await
    } else {
        hosts(resolver, &binding.name).await
    };
    match asked {
        Ok((targets, lifetime)) => Answer::Targets(targets, lifetime),
        Err(why) => Answer::Nothing(why),
    }
}

async fn hosts(resolver: &TokioResolver, name: &str) -> Result<(Vec<Target>, Duration), String> {
    let (addresses, lifetime) = addresses(resolver, name).await?;
    Ok((addresses.into_iter().map(|address| Target { address, port: None, weight: 1 }).collect(), lifetime))
}

async fn services(resolver: &TokioResolver, name: &str) -> Result<(Vec<Target>, Duration), String> {
    let found = lookup(resolver, name, RecordType::SRV).await?;
    let mut by_priority = BTreeMap::<u16, Vec<_>>::new();
    let mut lifetime = Duration::from_secs(u64::from(u32::MAX));
    for (data, ttl) in found {
        if let RData::SRV(srv) = data {
            lifetime = lifetime.min(ttl);
            by_priority.entry(srv.priority).or_default().push(srv);
        }
    }
    // Only the hosts of the first priority are used; the others are a fallback, which would require health
    // checks.
    let Some((_, first)) = by_priority.pop_first() else { return Err("there are no SRV records".to_owned()) };
    let mut targets = Vec::new();
    for srv in first.into_iter().take(HOSTS_MAX) {
        let host = srv.target.to_ascii();
        if host == "." {
            return Err("the SRV record states that the service is not available".to_owned());
        }
        let (addresses, of_host) = addresses(resolver, host.trim_end_matches('.')).await?;
        lifetime = lifetime.min(of_host);
        let weight = srv.weight.max(SRV_WEIGHT_MIN);
        targets.extend(addresses.into_iter().map(|address| Target { address, port: Some(srv.port), weight }));
    }
    Ok((targets, lifetime))
}

async fn addresses(resolver: &TokioResolver, name: &str) -> Result<(Vec<IpAddr>, Duration), String> {
    let (v4, v6) =
        tokio::join!(lookup(resolver, name, RecordType::A), lookup(resolver, name, RecordType::AAAA));
    let mut lifetime = Duration::from_secs(u64::from(u32::MAX));
    let mut addresses = Vec::new();
    // Both address families must succeed: a partial answer would remove the endpoints of the other family.
    for (data, ttl) in v4?.into_iter().chain(v6?) {
        // CNAME records limit the lifetime as well.
        lifetime = lifetime.min(ttl);
        if let RData::A(address) = data {
            addresses.push(IpAddr::V4(address.0));
        } else if let RData::AAAA(address) = data {
            addresses.push(IpAddr::V6(address.0));
        }
    }
    if addresses.is_empty() { Err(format!("{name} has no addresses")) } else { Ok((addresses, lifetime)) }
}

/// Returns the DNS records of one type for a name. An empty result is a valid answer; a nonexistent name is
/// an error.
async fn lookup(
    resolver: &TokioResolver,
    name: &str,
    kind: RecordType,
) -> Result<Vec<(RData, Duration)>, String> {
    match resolver.lookup(format!("{name}."), kind).await {
        Ok(found) => {
            let records = found.answers().iter();
            Ok(records
                .map(|record| (record.data.clone(), Duration::from_secs(u64::from(record.ttl))))
                .collect())
        }
        Err(error) if error.is_nx_domain() => Err(format!("the name {name} does not exist")),
        Err(error) if error.is_no_records_found() && !is_failure(&error) => Ok(Vec::new()),
        Err(error) => Err(format!("cannot resolve {name}: {error}")),
    }
}

/// Returns true if the name server failed or refused to answer, as opposed to a negative answer.
fn is_failure(error: &NetError) -> bool {
    let text = error.to_string();
    ["SERVFAIL", "REFUSED", "Server Failure", "Query Refused"].iter().any(|word| text.contains(word))
}
