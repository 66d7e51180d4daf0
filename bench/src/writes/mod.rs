//! Durable write benchmark: endpoint writes per second and their latency on every store.
//!
//! ```text
//!   1 … 64 clients ─▶ tidegate-api ─▶ SQLite (a file)
//!   1 … 64 clients ─▶ tidegate-api ─▶ etcd, three members
//!   baseline:         write 4 KiB, fdatasync, repeat: the limit of the disk for a single writer
//! ```
//! The response to a write implies that it is on disk (with etcd: on the disks of two members). All stores
//! are on one disk.

mod bound;
mod measured;
mod render;

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result};
use lab::{
    cluster::{
        control::Http,
        etcd,
        machines::{Fabric, Program, ProgramMachine},
    },
    host::{netns::Namespace, scratch::Scratch},
    load::http_load::{self as crowd, HttpRequestSpec},
    processes::binaries,
};
use serde_json::{Value, json};

pub use self::measured::{WritesPoint, WritesStore};
use crate::{host::LoadMeter, pages::record::Record, progress::Say, statistics::figures::Summary};

/// Number of EndpointSets in each request of a client that batches writes.
pub const BULK: u32 = 100;
/// Number of Services whose endpoints are written, in rotation.
const SERVICES: u32 = 500;
/// Last octets of the addresses of the two control servers, one per store; `CLIENT_HOST` is that of the
/// clients.
const CONTROL_HOSTS: [u8; 2] = [10, 11];
const CLIENT_HOST: u8 = 200;
const CONTROL_PORT: u16 = 7440;
/// Number of members of the etcd cluster.
const MEMBERS: u8 = 3;

/// Parameters of the write benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of rounds; each store is measured once per round.
    pub rounds: u16,
    /// Duration of one measurement.
    pub slice: Duration,
    /// Numbers of concurrent clients to measure.
    pub clients: Vec<u16>,
}

/// Control server under test with its store.
struct ControlUnderTest {
    store: WritesStore,
    _server: ProgramMachine,
    api: Http,
    _members: Vec<ProgramMachine>,
}

/// Measures all stores alternately.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a write is rejected.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<WritesPoint>> {
    let etcd_version = lab::host::shell::run("etcd", &["--version"])?;
    let etcd_version = etcd_version.lines().next().unwrap_or_default().to_owned();
    let mut record = Record::begin(vec![format!("tidegate {}", env!("CARGO_PKG_VERSION")), etcd_version])?;
    let directory = Scratch::new("bench")?;
    let fabric = Fabric::new()?;
    let from = fabric.place("clients", CLIENT_HOST)?;
    let mut contestants = vec![on_sqlite(&fabric, directory.path())?, on_etcd(&fabric, directory.path())?];
    let mut meter = LoadMeter::start()?;
    for round in 0..options.rounds {
        meter.pause()?;
        contestants.rotate_left(1);
        let alone = bound::synced_per_second(directory.path(), options.slice)?;
        record.enter(WritesStore::Disk, 1, 1, &alone);
        say(&format!("{:>3} disk alone: {:.0} writes of 4 KiB per second", round + 1, alone.per_second))?;
        for contestant in &contestants {
            for &clients in &options.clients {
                for objects in [1, BULK] {
                    let turn = turn(contestant, &from, clients, objects, options.slice)?;
                    say(&format!(
                        "{:>3} {:<7} {clients:>2} clients, {objects:>3} per request: {:>6.0} writes/s, \
                         {:.2} ms (p99 {:.2})",
                        round + 1,
                        contestant.store.name(),
                        turn.per_second,
                        turn.latency_ms.median,
                        turn.latency_ms.p99
                    ))?;
                    record.enter(contestant.store, clients, objects, &turn);
                }
            }
        }
    }
    record.load = Some(meter.load()?);
    Ok(record)
}

impl Record<WritesPoint> {
    fn enter(&mut self, store: WritesStore, clients: u16, objects: u32, turn: &measured::WritesTurn) {
        let is_same = |point: &&mut WritesPoint| {
            (point.store, point.clients, point.objects) == (store, clients, objects)
        };
        if let Some(point) = self.points.iter_mut().find(is_same) {
            point.enter(turn);
            return;
        }
        let mut point = WritesPoint::new(store, clients, objects);
        point.enter(turn);
        self.points.push(point);
    }
}

fn turn(
    contestant: &ControlUnderTest,
    from: &Namespace,
    clients: u16,
    objects: u32,
    slice: Duration,
) -> Result<measured::WritesTurn> {
    let took = crowd::drive(from, contestant.api.url(), usize::from(clients), slice, |number| {
        request(u32::try_from(number % u64::from(u32::MAX)).unwrap_or(0), objects)
    })
    .with_context(|| format!("{}, {clients} clients", contestant.store.name()))?;
    let latency_ms =
        Summary::of(took.iter().map(|took| took.as_secs_f64() * 1e3)).context("nothing was written")?;
    Ok(measured::WritesTurn {
        per_second: took.len() as f64 * f64::from(objects) / slice.as_secs_f64(),
        latency_ms,
    })
}

/// Returns the request of write `number`: new endpoints for `objects` Services.
fn request(number: u32, objects: u32) -> HttpRequestSpec {
    if objects == 1 {
        let patch = json!({"spec": {"endpoints": endpoints(number)}});
        return HttpRequestSpec {
            method: "PATCH",
            path: format!("/v1/namespaces/default/endpointsets/{}", name(number % SERVICES)),
            content_type: "application/merge-patch+json",
            body: patch.to_string(),
        };
    }
    let first = number.wrapping_mul(objects);
    let sets: Vec<_> =
        (0..objects).map(|at| endpoint_set(first.wrapping_add(at) % SERVICES, number)).collect();
    HttpRequestSpec {
        method: "POST",
        path: "/v1/apply".to_owned(),
        content_type: "application/json",
        body: Value::from(sets).to_string(),
    }
}

fn name(service: u32) -> String {
    format!("svc-{service:04}")
}

/// Returns ten endpoints, different for each number.
fn endpoints(number: u32) -> Vec<Value> {
    let address = |at: u32| {
        format!("10.{}.{}.{}", 128 + number / 65_536 % 64, number / 256 % 256, at * 20 + number % 20)
    };
    (1..=10).map(|at| json!({"address": address(at)})).collect()
}

fn endpoint_set(service: u32, number: u32) -> Value {
    json!({"kind": "EndpointSet", "metadata": {"name": name(service)}, "spec": {
        "service": name(service), "endpoints": endpoints(number),
    }})
}

fn on_sqlite(fabric: &Fabric, directory: &Path) -> Result<ControlUnderTest> {
    let store = format!("sqlite:{}", directory.join("control.sqlite").display());
    control(
        fabric,
        CONTROL_HOSTS[0],
        WritesStore::Sqlite,
        &[format!("--store={store}")],
        Vec::new(),
        directory,
    )
}

fn on_etcd(fabric: &Fabric, directory: &Path) -> Result<ControlUnderTest> {
    let mut members = etcd::start(fabric, MEMBERS, directory)?;
    for member in &mut members {
        etcd::wait_ready(member)?;
    }
    let local = format!("--local-store=sqlite:{}", directory.join("local.sqlite").display());
    let arguments = [format!("--store={}", etcd::url(&members)), local];
    control(fabric, CONTROL_HOSTS[1], WritesStore::Etcd, &arguments, members, directory)
}

fn control(
    fabric: &Fabric,
    host: u8,
    store: WritesStore,
    arguments: &[String],
    members: Vec<ProgramMachine>,
    directory: &Path,
) -> Result<ControlUnderTest> {
    let address = SocketAddr::new(Fabric::address(host), CONTROL_PORT);
    let mut all = vec![
        format!("--listen={address}"),
        "--service-cidr=10.96.0.0/16".to_owned(),
        "--insecure".to_owned(),
        "--guard-vips-percent=100".to_owned(),
        "--guard-endpoints-percent=100".to_owned(),
    ];
    all.extend_from_slice(arguments);
    let label = format!("control-{}", store.name());
    let program = Program {
        label,
        path: binaries::find("tidegate-api")?,
        arguments: all,
        address,
        environment: Vec::new(),
    };
    let mut server = fabric.start(host, program, directory)?;
    let api = Http::new(&server.namespace, address);
    server.process.wait_ready(|| api.get("/readyz")?.success().map(drop))?;
    let services = (0..SERVICES).flat_map(|service| {
        let service_object = json!({"kind": "Service", "metadata": {"name": name(service)}, "spec": {
            "ports": [{"port": 80, "targetPort": 8080}],
        }});
        [service_object, endpoint_set(service, 0)]
    });
    api.send_json("POST", "/v1/apply", &Value::from(services.collect::<Vec<_>>()))?.success()?;
    Ok(ControlUnderTest { store, _server: server, api, _members: members })
}
