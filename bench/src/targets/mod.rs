//! Design targets and their results: the index page of `docs/benchmarks`, generated from the stored results,
//! and regeneration of the other pages.

mod discovery;
mod figures;
mod found;
mod render;
mod requests;
mod slope;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    bgp, change, cold, connections, dns, failover, fanout, http, layout,
    pages::record::{self, Record},
    soak, writes,
};

/// Benchmark with a page in the documentation.
#[derive(Debug, Clone, Copy)]
pub struct BenchmarkPage {
    /// Base name of the page, plot and result file.
    pub name: &'static str,
    /// Arguments with which `bench` runs the benchmark.
    pub command: &'static str,
    /// Question answered by the benchmark.
    pub question: &'static str,
}

impl BenchmarkPage {
    const fn by(name: &'static str, question: &'static str) -> Self {
        Self { name, command: name, question }
    }
}

/// Benchmarks with a page, in the order of the index page.
pub const BENCHMARKS: [BenchmarkPage; 12] = [
    BenchmarkPage::by(
        "change",
        "latency of an endpoint change until traffic follows it, and its cost, with few and many Services",
    ),
    BenchmarkPage::by(
        "cold",
        "time from the start of an agent until everything is programmed and verified, and its memory then",
    ),
    BenchmarkPage::by("layout", "kernel cost of the nftables ruleset compared to the layout of kube-proxy"),
    BenchmarkPage::by(
        "connections",
        "cost of a new connection through a virtual address in each proxy mode, compared to proxies",
    ),
    BenchmarkPage::by(
        "dns",
        "cost of a DNS answer compared to other name servers, and the time until a change is in an answer",
    ),
    BenchmarkPage::by(
        "http",
        "cost of a request compared to other reverse proxies, and the time until a changed route decides requests",
    ),
    BenchmarkPage::by("fanout", "time until the last of many agents has acknowledged a change"),
    BenchmarkPage::by("writes", "durable endpoint writes per second, on SQLite and on three members of etcd"),
    BenchmarkPage::by("failover", "traffic interruption when the node that announces an address fails"),
    BenchmarkPage::by("bgp", "time until routers have learned, and lost, a route"),
    BenchmarkPage::by("soak", "leftovers after half an hour of changes and faults"),
    BenchmarkPage {
        name: "soak-etcd",
        command: "soak --store etcd",
        question: "the same with three members of etcd as the store, one of which is killed now and then",
    },
];

/// Stored benchmark results, by the name of the benchmark.
#[derive(Debug, Default)]
pub(crate) struct StoredResults(BTreeMap<&'static str, Value>);

impl StoredResults {
    /// Reads the results in a directory; benchmarks without a result file are missing.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is not JSON.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let mut all = BTreeMap::new();
        for BenchmarkPage { name, .. } in BENCHMARKS {
            let path = directory.join(format!("{name}.json"));
            if path.exists() {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                all.insert(name, serde_json::from_str(&text).with_context(|| path.display().to_string())?);
            }
        }
        Ok(Self(all))
    }

    /// Returns the results of a benchmark, or `None` if its result file is missing.
    pub(crate) fn of(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// Regenerates every page and plot, and the index page, from the results in a directory. Returns the file names
/// and contents.
///
/// # Errors
/// Returns an error if results cannot be read or belong to a different version of their benchmark.
pub fn pages(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for again in [
        record::again::<Record<change::ChangePoint>>,
        record::again::<Record<cold::ColdPoint>>,
        record::again::<Record<layout::LayoutPoint>>,
        record::again::<connections::ConnectionResults>,
        record::again::<dns::DnsResults>,
        record::again::<http::HttpResults>,
        record::again::<Record<fanout::FanoutPoint>>,
        record::again::<Record<writes::WritesPoint>>,
        record::again::<failover::FailoverResults>,
        record::again::<bgp::BgpResults>,
        record::again::<Record<lab::chaos::soak::SoakOutcome>>,
        record::again::<soak::WithEtcd>,
    ] {
        all.extend(again(directory)?);
    }
    all.push(("README.md".to_owned(), render::page(&StoredResults::read(directory)?)));
    Ok(all)
}
