//! Source `dns`: DNS names whose addresses are the endpoints of Services.
//!
//! An answer is valid for its TTL, limited to a configured range. A name that no longer exists, or that no
//! server resolves, keeps its last addresses and is reported. Addresses that cannot be endpoints, such as
//! loopback addresses, are always rejected.

mod ask;
mod machine;
mod parse;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use clap::Args;
use futures::StreamExt as _;
use ipnet::IpNet;
use model::primitives::name::Namespace;

use self::machine::{Bounds, NameState};
pub use self::parse::Binding;
use crate::engine::outlet::Outlet;

/// Maximum number of concurrent queries.
const ASKED_MAX: usize = 16;
/// Maximum number of DNS names per process.
const NAMES_MAX: usize = 1000;
/// Maximum time by which a query starts early, so that queries scheduled for similar times run together.
const TOGETHER: Duration = Duration::from_millis(100);

/// Arguments of `tidegate-sync dns`: DNS names with their Services, and limits on the answers.
#[derive(Debug, Clone, Args)]
pub struct DnsArguments {
    /// DNS names of Services, as [NAMESPACE/]SERVICE[:PORT-NAME]=DNS-NAME[:PORT]. A name that begins with _
    /// is resolved by SRV records, which contain ports and weights
    #[arg(value_name = "SERVICE=NAME", required = true)]
    pub names: Vec<Binding>,
    /// Name servers, as ADDRESS:PORT [default: those of the machine]
    #[arg(
        long,
        env = "TIDEGATE_RESOLVER",
        hide_env_values = true,
        value_name = "ADDRESS:PORT,…",
        value_delimiter = ','
    )]
    pub resolver: Vec<SocketAddr>,
    /// Namespace of Services given without one
    #[arg(long, env = "TIDEGATE_NAMESPACE", hide_env_values = true, value_name = "NAME", value_parser = Namespace::parse, default_value = "default")]
    pub namespace: Namespace,
    /// Minimum time between queries of a name, in seconds
    #[arg(long, env = "TIDEGATE_TTL_MIN", hide_env_values = true, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub ttl_min: u32,
    /// Maximum time between queries of a name, in seconds
    #[arg(long, env = "TIDEGATE_TTL_MAX", hide_env_values = true, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub ttl_max: u32,
    /// Accept only addresses in these ranges, so that a manipulated DNS answer cannot redirect traffic
    #[arg(
        long,
        env = "TIDEGATE_ALLOW",
        hide_env_values = true,
        value_name = "CIDR,…",
        value_delimiter = ','
    )]
    pub allow: Vec<IpNet>,
}

/// Queries the DNS names and publishes their addresses as endpoints until the process ends.
///
/// # Errors
/// Returns an error if a flag is invalid or the machine has no name servers.
pub async fn run(arguments: DnsArguments, outlet: Outlet) -> anyhow::Result<()> {
    let DnsArguments { names, resolver, namespace, ttl_min, ttl_max, allow } = arguments;
    anyhow::ensure!(ttl_min <= ttl_max, "--ttl-min must be at most --ttl-max");
    let names: BTreeSet<_> = names.into_iter().collect();
    anyhow::ensure!(
        names.len() <= NAMES_MAX,
        "at most {NAMES_MAX} names; start another process for the rest"
    );
    let resolver = ask::resolver(&resolver)?;
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let bounds = Bounds { ttl_min: seconds(ttl_min), ttl_max: seconds(ttl_max), allowed: allow };
    let mut known: BTreeMap<Binding, NameState> =
        names.into_iter().map(|name| (name, NameState::default())).collect();
    loop {
        let horizon = Instant::now() + TOGETHER;
        let is_due = |known: &NameState| known.due().is_none_or(|at| at <= horizon);
        let due: Vec<_> =
            known.iter().filter(|(_, known)| is_due(known)).map(|(name, _)| name.clone()).collect();
        let asked = due.into_iter().map(|name| {
            let resolver = &resolver;
            async move {
                let answer = ask::ask(resolver, &name).await;
                (name, answer)
            }
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(ASKED_MAX);
        while let Some((name, answer)) = answers.next().await {
            if let Some(known) = known.get_mut(&name) {
                let before = known.complaints.clone();
                known.take(&bounds, answer, Instant::now());
                for complaint in known.complaints.iter().filter(|complaint| !before.contains(complaint)) {
                    tracing::warn!(name = %name, complaint, "invalid DNS answer");
                }
            }
        }
        publish(&namespace, &known, &outlet);
        let next = known.values().filter_map(NameState::due).min().unwrap_or(horizon);
        tokio::time::sleep_until(next.into()).await;
    }
}

fn publish(namespace: &Namespace, known: &BTreeMap<Binding, NameState>, outlet: &Outlet) {
    let mut new = outlet.wanted.borrow().clone();
    let mut complaints = Vec::new();
    let mut keys = BTreeSet::new();
    for (binding, known) in known {
        complaints.extend(known.complaints.iter().map(|complaint| format!("{binding}: {complaint}")));
        match plan::endpoint_sets(namespace, binding, known.targets.iter().flatten()) {
            Ok(sets) => {
                for set in sets {
                    let key = set.key();
                    keys.insert(key.clone());
                    if new.objects.get(&key) != Some(&set) {
                        new.objects.insert(key, set);
                    }
                }
            }
            Err(wrong) => complaints.push(format!("{binding}: {wrong}")),
        }
    }
    let gone: Vec<_> = new.objects.keys().filter(|key| !keys.contains(*key)).cloned().collect();
    for key in gone {
        new.objects.remove(&key);
    }
    new.is_complete = known.values().all(|known| known.targets.is_some());
    outlet.wanted.send_if_modified(|wanted| {
        let is_news = wanted.is_complete != new.is_complete || !wanted.objects.ptr_eq(&new.objects);
        *wanted = new;
        is_news
    });
    outlet.progress.complain(complaints);
}
