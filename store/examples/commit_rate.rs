//! Measures the rate and latency of durable writes of EndpointSets, with and without history entries.
//!
//! Usage: `cargo run --release -p store --example commit_rate -- sqlite:PATH`, where PATH contains no store
//! yet.
//!
//! Fills the store with 10,000 EndpointSets of ten endpoints each. Then writes groups of commits of
//! increasing size, with one fsync per group; each commit changes one EndpointSet. Groups with and without
//! history entries alternate, to measure the cost of history.

use std::{
    fmt,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    cluster::{
        change::{Change, ChangeKind, Commit},
        history::{Maker, Origin, RevisedObject, RevisionEntry},
    },
    kinds::{
        endpoint_set::{Endpoint, EndpointConditions, EndpointSetSpec},
        metadata::Metadata,
        resource::{Object, Spec},
    },
    primitives::{
        name::{Label, Name, NameError},
        quantity::{Position, Revision, Timestamp, Weight},
    },
};
use store::{GROUP_COMMITS_MAX, Store};

const SETS: u64 = 10_000;
const ENDPOINTS: u8 = 10;
const GROUPS: [usize; 5] = [1, 8, 64, 256, 1000];
/// Duration of the measurement for each group size. Groups with and without history entries are written in turn.
const TIME_PER_SIZE: Duration = Duration::from_secs(6);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("missing store address: use `sqlite:PATH` or `memory:`")?;
    let store = store::open(&url, Timestamp::from_unix_seconds(0)).await?;
    let mut out = std::io::stdout();
    let mut position = store.load().await?.position;
    let started = Instant::now();
    while position.revision.0 < SETS {
        position = write(&*store, position, ChangeKind::Added, GROUP_COMMITS_MAX.min(1000), false).await?;
    }
    writeln!(out, "fill: {SETS} sets in {:?}", started.elapsed())?;
    for size in GROUPS {
        let started = Instant::now();
        let mut latencies = [Vec::new(), Vec::new()];
        while started.elapsed() < TIME_PER_SIZE {
            for (with_history, latencies) in [false, true].into_iter().zip(&mut latencies) {
                let group_started = Instant::now();
                position = write(&*store, position, ChangeKind::Modified, size, with_history).await?;
                latencies.push(group_started.elapsed());
            }
        }
        let [without, with] = latencies.map(|latencies| Figures::of(size, latencies));
        writeln!(out, "groups of {size}: {without}")?;
        writeln!(out, "    with history: {with}, {:.2} of the rate", with.rate / without.rate)?;
    }
    let started = Instant::now();
    let loaded = store.load().await?;
    writeln!(
        out,
        "load: {} objects, {} commits in {:?}",
        loaded.objects.len(),
        loaded.recent.len(),
        started.elapsed()
    )?;
    Ok(())
}

/// Commit rate and latencies measured for commit groups of one size.
struct Figures {
    /// Number of writes per second.
    rate: f64,
    median: Duration,
    p99: Duration,
}

impl Figures {
    fn of(size: usize, mut latencies: Vec<Duration>) -> Self {
        let took: Duration = latencies.iter().sum();
        let rate = (latencies.len() * size) as f64 / took.as_secs_f64();
        latencies.sort();
        Self { rate, median: latencies[latencies.len() / 2], p99: latencies[latencies.len() * 99 / 100] }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, median, p99 } = self;
        write!(formatter, "{rate:.0} writes/s, group median {median:?}, p99 {p99:?}")
    }
}

async fn write(
    store: &dyn Store,
    at: Position,
    kind: ChangeKind,
    commits: usize,
    with_history: bool,
) -> Result<Position, Box<dyn std::error::Error>> {
    let head = Revision(at.revision.0 + commits as u64);
    let revisions = at.revision.0 + 1..=head.0;
    let group = revisions.map(|revision| commit(revision, kind)).collect::<Result<Vec<_>, _>>()?;
    let history: Vec<_> = group.iter().filter(|_| with_history).map(entry).collect();
    store.commit_with_history(at, &group, &history).await?;
    Ok(Position { revision: head, ..at })
}

fn commit(revision: u64, kind: ChangeKind) -> Result<Commit, NameError> {
    // A step coprime to the number of sets visits all of them, far apart.
    let number = revision * 7919 % SETS;
    let endpoint = |host: u8| Endpoint {
        address: [10, (number / 256) as u8, (number % 256) as u8, host].into(),
        node: None,
        zone: None,
        hostname: None,
        weight: Weight((revision % 100) as u16),
        conditions: EndpointConditions::default(),
        drain: false,
        maintenance: None,
    };
    let name = Name::parse(&format!("set-{number}"))?;
    let endpoints = (0..ENDPOINTS).map(endpoint).collect();
    let spec = EndpointSetSpec { service: name.clone(), ports: Vec::new(), endpoints };
    let mut metadata = Metadata::named(name, Some(Label::parse("default")?));
    metadata.resource_version = Some(revision.to_string());
    let object = Arc::new(Object { metadata, spec: Spec::EndpointSet(spec) });
    let at = Timestamp::from_unix_seconds(0);
    Ok(Commit { revision: Revision(revision), at, changes: vec![Change { kind, object }] })
}

/// Returns the history entry that a control server would store for a commit: the object before and after the
/// write, which are equal here.
fn entry(commit: &Commit) -> RevisionEntry {
    let origin = Origin {
        maker: Maker::Client,
        author: "adapter@control".to_owned(),
        message: None,
        request_id: Some("0123456789abcdef".to_owned()),
        source: Some([192, 0, 2, 1].into()),
    };
    let objects = commit.changes.iter().map(|change| RevisedObject {
        key: change.object.key(),
        before: Some(Arc::clone(&change.object)),
        after: Some(Arc::clone(&change.object)),
    });
    RevisionEntry { revision: commit.revision, at: commit.at, origin, objects: objects.collect() }
}
