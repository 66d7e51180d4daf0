//! Measures durable endpoint writes: `cargo run --release -p store --example commit_rate -- sqlite:PATH`.
//!
//! A store of 10,000 EndpointSets of ten endpoints each is filled, then single sets are written in groups of growing
//! size, one fsync per group. The path must not hold a store yet.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    change::{Change, ChangeKind, Commit},
    endpoint_set::{Endpoint, EndpointConditions, EndpointSetSpec},
    metadata::Metadata,
    name::{Label, Name, NameError},
    quantity::{Position, Revision, Timestamp, Weight},
    resource::{Object, Spec},
};
use store::{GROUP_COMMITS_MAX, Store};

const SETS: u64 = 10_000;
const ENDPOINTS: u8 = 10;
const GROUPS: [usize; 5] = [1, 8, 64, 256, 1000];
const TIME_PER_SIZE: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("which store? write `sqlite:PATH` or `memory:`")?;
    let store = store::open(&url, Timestamp::from_unix_seconds(0)).await?;
    let mut out = std::io::stdout();
    let mut position = store.load().await?.position;
    let started = Instant::now();
    while position.revision.0 < SETS {
        position = write(&*store, position, ChangeKind::Added, GROUP_COMMITS_MAX.min(1000)).await?;
    }
    writeln!(out, "fill: {SETS} sets in {:?}", started.elapsed())?;
    for size in GROUPS {
        let started = Instant::now();
        let mut latencies = Vec::new();
        while started.elapsed() < TIME_PER_SIZE {
            let group_started = Instant::now();
            position = write(&*store, position, ChangeKind::Modified, size).await?;
            latencies.push(group_started.elapsed());
        }
        let rate = (latencies.len() * size) as f64 / started.elapsed().as_secs_f64();
        latencies.sort();
        let (median, p99) = (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
        writeln!(out, "groups of {size}: {rate:.0} writes/s, group median {median:?}, p99 {p99:?}")?;
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

async fn write(
    store: &dyn Store,
    at: Position,
    kind: ChangeKind,
    commits: usize,
) -> Result<Position, Box<dyn std::error::Error>> {
    let head = Revision(at.revision.0 + commits as u64);
    let revisions = at.revision.0 + 1..=head.0;
    let group = revisions.map(|revision| commit(revision, kind)).collect::<Result<Vec<_>, _>>()?;
    store.commit(at, &group).await?;
    Ok(Position { revision: head, ..at })
}

fn commit(revision: u64, kind: ChangeKind) -> Result<Commit, NameError> {
    // A step that shares no factor with the number of sets visits all of them, far apart.
    let number = revision * 7919 % SETS;
    let endpoint = |host: u8| Endpoint {
        address: [10, (number / 256) as u8, (number % 256) as u8, host].into(),
        node: None,
        zone: None,
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
