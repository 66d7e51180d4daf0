//! Asks name servers.

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

/// How long one attempt may take, and how many there are.
const TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 2;
/// Hosts of one SRV name that are asked for.
const HOSTS_MAX: usize = 100;
/// The weight of a host whose SRV record says 0: a little (RFC 2782), where others have some.
const SRV_WEIGHT_MIN: u16 = 1;

/// The name servers to ask: these, or those of the machine.
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
    // How long an answer counts is decided by whoever asks; a second memory would add up to it.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = TIMEOUT;
    options.attempts = ATTEMPTS;
    Ok(builder.build()?)
}

/// Where a name leads.
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
    // Only the first in order; the others are for when it cannot be reached, which health checks would have to say.
    let Some((_, first)) = by_priority.pop_first() else { return Err("there are no SRV records".to_owned()) };
    let mut targets = Vec::new();
    for srv in first.into_iter().take(HOSTS_MAX) {
        let host = srv.target.to_ascii();
        if host == "." {
            return Err("the name says that the service is not offered".to_owned());
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
    // Half an answer is none: what the other half said would be taken away.
    for (data, ttl) in v4?.into_iter().chain(v6?) {
        // Names that stand for others on the way have lifetimes as well.
        lifetime = lifetime.min(ttl);
        if let RData::A(address) = data {
            addresses.push(IpAddr::V4(address.0));
        } else if let RData::AAAA(address) = data {
            addresses.push(IpAddr::V6(address.0));
        }
    }
    if addresses.is_empty() { Err(format!("{name} has no addresses")) } else { Ok((addresses, lifetime)) }
}

/// The records of a type; none is an answer, no such name is not.
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
        Err(error) if error.is_nx_domain() => Err(format!("there is no name {name}")),
        Err(error) if error.is_no_records_found() && !is_failure(&error) => Ok(Vec::new()),
        Err(error) => Err(format!("{name} could not be asked for: {error}")),
    }
}

/// Whether a name server said that it cannot answer, rather than that there is nothing.
fn is_failure(error: &NetError) -> bool {
    let text = error.to_string();
    ["SERVFAIL", "REFUSED", "Server Failure", "Query Refused"].iter().any(|word| text.contains(word))
}
