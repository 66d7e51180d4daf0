//! Measurement of one endpoint change: kernel writes and duration, by proxy mode and number of Services.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use model::kinds::node::ProxyMode;
use node_agent::dataplane::{self, BackendOptions, KernelCounters, Scope};

use super::{
    Namespace,
    many::{many, numbered},
    programs::{only, set, verified},
};

/// Numbers of Services, endpoints and changes of a measurement.
#[derive(Debug, Clone)]
pub struct Size {
    pub services: u32,
    /// Number of endpoints of each Service.
    pub endpoints: u32,
    pub changes: u32,
}

/// Results of a measurement in one mode with one number of Services.
#[derive(Debug, Clone)]
pub struct Change {
    pub mode: ProxyMode,
    pub size: Size,
    /// Number of netlink messages, or of lines passed to kernel tools, for all changes together.
    pub messages: u64,
    /// Number of kernel transactions for all changes together.
    pub transactions: u64,
    /// Median time of `apply` for one change, including the read-back.
    pub median: Duration,
    /// Time of the first `apply`, which programs all Services into an empty kernel.
    pub first: Duration,
    /// Number of netlink messages or lines of the first `apply`, which programs all Services.
    pub first_messages: u64,
}

/// Programs the Services in a proxy mode, then repeatedly replaces an endpoint of the Service in the middle.
/// Returns the kernel writes and durations of these changes.
pub fn measure(test: &str, mode: ProxyMode, size: &Size) -> Change {
    let Size { services, endpoints, changes } = *size;
    let namespace = Namespace::new(&format!("{test}-{}{services}", mode.as_str()));
    namespace.run(|| {
        let mut desired = many(services, endpoints);
        let mut backend = dataplane::open(mode, &BackendOptions::default()).unwrap();
        let begun = Instant::now();
        verified(&backend.apply(&desired, &Scope::Everything));
        let (first, loaded) = (begun.elapsed(), backend.counters());
        eprintln!("{} programmed with {services} Services", mode.as_str());
        let (number, name) = (services / 2, format!("s{}", services / 2));
        let mut times: Vec<_> = (1..=changes)
            .map(|change| {
                // Above every address in use.
                set(&mut desired, &name, numbered(number, endpoints, services * endpoints + change));
                let begun = Instant::now();
                let writes = verified(&backend.apply(&desired, &only(&[&name])));
                let elapsed = begun.elapsed();
                // The relay keeps its targets to itself.
                assert!(writes > 0 || mode == ProxyMode::Userspace, "a change has to be written");
                elapsed
            })
            .collect();
        times.sort();
        let KernelCounters { transactions, messages, bytes: _, conntrack_deletions: _ } = backend.counters();
        backend.cleanup().unwrap();
        Change {
            mode,
            size: size.clone(),
            messages: messages - loaded.messages,
            transactions: transactions - loaded.transactions,
            median: times[times.len() / 2],
            first,
            first_messages: loaded.messages,
        }
    })
}

/// Renders the measurement results as a Markdown table.
pub fn table(changes: &[Change]) -> String {
    let mut text = String::from(
        "| mode | Services × endpoints | written per change | transactions | apply, median | first load | written |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for Change { mode, size, messages, transactions, median, first, first_messages } in changes {
        let Size { services, endpoints, changes } = size;
        let unit = match mode {
            ProxyMode::Iptables => "lines",
            ProxyMode::Nftables | ProxyMode::Ipvs | ProxyMode::Userspace => "messages",
        };
        let each = |total: u64| total as f64 / f64::from(*changes);
        writeln!(
            text,
            "| {} | {services} × {endpoints} | {:.1} {unit} | {:.1} | {:.2} ms | {:.0} ms | {first_messages} {unit} |",
            mode.as_str(),
            each(*messages),
            each(*transactions),
            median.as_secs_f64() * 1000.0,
            first.as_secs_f64() * 1000.0,
        )
        .expect("a String takes everything");
    }
    text
}
