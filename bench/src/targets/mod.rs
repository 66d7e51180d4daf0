//! The targets of the design beside what was measured: the first page of `docs/benchmarks`, made of the figures that benchmarks wrote; and
//! the other pages, made of them again.

mod figures;
mod found;
mod render;
mod slope;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    bgp, change, cold, connections, failover, fanout, layout,
    pages::record::{self, Record},
    soak, writes,
};

/// A page of a benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// What its files are called.
    pub name: &'static str,
    /// What is given to `bench` to measure it.
    pub command: &'static str,
    /// What it asks.
    pub question: &'static str,
}

impl Asked {
    const fn by(name: &'static str, question: &'static str) -> Self {
        Self { name, command: name, question }
    }
}

/// The benchmarks that have a page, in the order in which the first page names them.
pub const BENCHMARKS: [Asked; 10] = [
    Asked::by(
        "change",
        "what a change of endpoints takes until traffic follows it, and what it costs, with few and many Services",
    ),
    Asked::by(
        "cold",
        "how long an agent takes from its start until everything is programmed and verified, and how much memory it has then",
    ),
    Asked::by(
        "layout",
        "what the rules of nftables mode cost the kernel beside rules in the layout of kube-proxy",
    ),
    Asked::by(
        "connections",
        "what a new connection through a virtual address costs in each proxy mode, beside relays",
    ),
    Asked::by("fanout", "how long a change takes until the last of many agents has acknowledged it"),
    Asked::by(
        "writes",
        "how many endpoint writes a second are made durable, on SQLite and on three members of etcd",
    ),
    Asked::by("failover", "how long traffic is interrupted when the node that announces an address fails"),
    Asked::by("bgp", "how long it takes until routers have learned, and lost, a route"),
    Asked::by("soak", "what is left after half an hour of changes and faults"),
    Asked {
        name: "soak-etcd",
        command: "soak --store etcd",
        question: "the same with three members of etcd as the store, of which one is killed now and then",
    },
];

/// The figures that benchmarks wrote, by the benchmark's name.
#[derive(Debug, Default)]
pub(crate) struct Written(BTreeMap<&'static str, Value>);

impl Written {
    /// Reads what there is in a directory; a benchmark that never ran there is missing.
    ///
    /// # Errors
    /// A file cannot be read, or is no JSON.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let mut all = BTreeMap::new();
        for Asked { name, .. } in BENCHMARKS {
            let path = directory.join(format!("{name}.json"));
            if path.exists() {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                all.insert(name, serde_json::from_str(&text).with_context(|| path.display().to_string())?);
            }
        }
        Ok(Self(all))
    }

    /// What a benchmark wrote.
    pub(crate) fn of(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// Every page and plot that the figures in a directory make, and the first page, by the names of their files.
///
/// # Errors
/// Figures cannot be read, or are of another version of their benchmark.
pub fn pages(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for again in [
        record::again::<Record<change::Point>>,
        record::again::<Record<cold::Point>>,
        record::again::<Record<layout::Point>>,
        record::again::<connections::Measured>,
        record::again::<Record<fanout::Point>>,
        record::again::<Record<writes::Point>>,
        record::again::<failover::Measured>,
        record::again::<bgp::Measured>,
        record::again::<Record<lab::chaos::soak::Outcome>>,
        record::again::<soak::WithEtcd>,
    ] {
        all.extend(again(directory)?);
    }
    all.push(("README.md".to_owned(), render::page(&Written::read(directory)?)));
    Ok(all)
}
