//! Measurement of the cost of each proxy mode, compared with a direct path without Tidegate: rate and latency
//! of new connections, and throughput of one long connection.
//!
//! Each path (a client, a node in the middle, and servers) has its own namespaces, and all paths exist at the
//! same time. Each round measures all paths, in alternating order, so that other load on the machine affects
//! all paths equally. Ratios are computed within a round.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use model::{
    kinds::{node::ProxyMode, service::Protocol},
    program::Masquerade,
};
use node_agent::dataplane::{self, BackendOptions, Dataplane, DesiredState, Scope};

use super::{
    load::{self, LONG_PORT, SHORT_PORT, Servers},
    many::many,
    net::Topology,
    programs::{at, forward, program, set, verified},
};

/// Virtual addresses of the first and of the last Service by name. Both are measured, because in a linear
/// list of rules, a packet to the last Service passes the rules of all others.
const VIRTUAL: [&str; 2] = ["10.95.0.1", "10.97.0.1"];
const WORKLOADS: [&str; 2] = ["10.1.1.2", "10.1.2.2"];

/// Numbers of Services, endpoints, connections and bytes of a measurement.
#[derive(Debug, Clone)]
pub struct Size {
    pub modes: Vec<ProxyMode>,
    /// Numbers of Services, each including the two that are measured. For each number there is a separate
    /// path.
    pub services: Vec<u32>,
    /// Number of endpoints of each Service that is not measured.
    pub endpoints: u32,
    pub rounds: usize,
    /// Number of short connections per measurement round.
    pub connections: usize,
    /// Number of clients that connect at the same time.
    pub clients: usize,
    /// Number of bytes per round that the long-lived connection transfers, to measure throughput; 0 skips it.
    pub bytes: usize,
}

/// Results of the measurement of one path: medians over all rounds.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Mode and number of Services; `None` for the direct path, whose node has no rules.
    pub way: Option<(ProxyMode, u32)>,
    pub connections_per_second: Compared,
    pub latency_median: Duration,
    pub latency_p99: Duration,
    pub bytes_per_second: Option<Compared>,
}

/// Measured value of a path, and its ratio to the value of the direct path.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    pub figure: f64,
    pub share: f64,
}

/// Measures all paths and returns their results, of which the first belongs to the direct path.
pub fn measure(test: &str, size: &Size) -> Vec<Cost> {
    let mut ways = vec![Way::direct(test)];
    for mode in &size.modes {
        ways.extend(
            size.services.iter().map(|services| Way::through(test, *mode, *services, size.endpoints)),
        );
    }
    for round in 0..size.rounds {
        let measure = |way: &mut Way| {
            let round = Round::of(way, size);
            way.rounds.push(round);
        };
        if round % 2 == 0 {
            ways.iter_mut().for_each(measure)
        } else {
            ways.iter_mut().rev().for_each(measure)
        }
        eprintln!("round {} of {}", round + 1, size.rounds);
    }
    let (direct, _) = ways.split_first().expect("the direct way comes first");
    ways.iter().map(|way| way.cost(direct)).collect()
}

/// Measured path: a client, a node in the middle, and servers.
struct Way {
    way: Option<(ProxyMode, u32)>,
    short: Vec<SocketAddr>,
    long: SocketAddr,
    rounds: Vec<Round>,
    backend: Option<Box<dyn Dataplane>>,
    _servers: Vec<Servers>,
    topology: Topology,
}

impl Way {
    fn direct(test: &str) -> Self {
        let topology = Topology::silent(&format!("{test}-direct"));
        Self {
            way: None,
            short: WORKLOADS.map(|ip| socket(ip, SHORT_PORT)).to_vec(),
            long: socket(WORKLOADS[0], LONG_PORT),
            rounds: Vec::new(),
            backend: None,
            _servers: vec![Servers::start(&topology.a), Servers::start(&topology.b)],
            topology,
        }
    }

    fn through(test: &str, mode: ProxyMode, services: u32, endpoints: u32) -> Self {
        let topology = Topology::silent(&format!("{test}-{}{services}", mode.as_str()));
        let desired = desired(services, endpoints);
        let backend = topology.node.run(|| {
            let mut backend = dataplane::open(mode, &BackendOptions::default()).unwrap();
            verified(&backend.apply(&desired, &Scope::Everything));
            backend
        });
        eprintln!("{} programmed with {services} Services", mode.as_str());
        Self {
            way: Some((mode, services)),
            short: VIRTUAL.map(|ip| socket(ip, 80)).to_vec(),
            long: socket(VIRTUAL[0], 81),
            rounds: Vec::new(),
            backend: Some(backend),
            _servers: vec![Servers::start(&topology.a), Servers::start(&topology.b)],
            topology,
        }
    }

    fn cost(&self, direct: &Self) -> Cost {
        let compared = |figure: fn(&Round) -> f64| {
            let pairs = self.rounds.iter().zip(&direct.rounds);
            Compared {
                figure: median(self.rounds.iter().map(figure)),
                share: median(pairs.map(|(own, direct)| figure(own) / figure(direct))),
            }
        };
        let seconds = |figure: fn(&Round) -> f64| Duration::from_secs_f64(compared(figure).figure);
        let is_flow_measured = self.rounds.iter().all(|round| round.bytes_per_second.is_finite());
        Cost {
            way: self.way,
            connections_per_second: compared(|round| round.connections_per_second),
            latency_median: seconds(|round| round.latency_median),
            latency_p99: seconds(|round| round.latency_p99),
            bytes_per_second: is_flow_measured.then(|| compared(|round| round.bytes_per_second)),
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let Some(mut backend) = self.backend.take() else { return };
        self.topology.node.run(move || {
            // A backend may have state outside its namespace.
            if let Err(error) = backend.cleanup() {
                eprintln!("{error}");
            }
        });
    }
}

/// Results of one path in one round. Latencies are in seconds; the throughput is infinite if it is not
/// measured.
struct Round {
    connections_per_second: f64,
    latency_median: f64,
    latency_p99: f64,
    bytes_per_second: f64,
}

impl Round {
    fn of(way: &Way, size: &Size) -> Self {
        let client = &way.topology.client;
        let short = load::short(client, &way.short, size.connections, size.clients);
        let latency = |percent: usize| short.latencies[short.latencies.len() * percent / 100].as_secs_f64();
        Self {
            connections_per_second: short.connections_per_second,
            latency_median: latency(50),
            latency_p99: latency(99),
            bytes_per_second: match size.bytes {
                0 => f64::INFINITY,
                bytes => load::long(client, way.long, bytes),
            },
        }
    }
}

/// Builds `services` Services with `endpoints` endpoints each. Only the endpoints of the first and the last
/// Service by name respond.
fn desired(services: u32, endpoints: u32) -> DesiredState {
    let mut desired = many(services.saturating_sub(2), endpoints);
    for (name, virtual_address) in ["a-first", "z-last"].into_iter().zip(VIRTUAL) {
        let frontends = [(80, SHORT_PORT), (81, LONG_PORT)].map(|(port, target)| {
            let targets = WORKLOADS.map(|ip| (ip, target, 1));
            (at(virtual_address, Protocol::Tcp, port), forward(Masquerade::OffCluster, &targets))
        });
        set(&mut desired, name, program(&[virtual_address], &[], &frontends));
    }
    desired
}

fn socket(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Returns the median of values. If their number is even, the upper of the two middle values is returned.
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Renders the measurement results as a Markdown table.
pub fn table(costs: &[Cost]) -> String {
    let mut text = String::from(
        "| mode | Services | new connections/s | of direct | latency median | p99 | one flow, Gbit/s | of direct |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for Cost { way, connections_per_second, latency_median, latency_p99, bytes_per_second } in costs {
        let (mode, services) = way
            .map_or(("direct", "–".to_owned()), |(mode, services)| (mode.as_str(), services.to_string()));
        let (flow, flow_share) = bytes_per_second.map_or(("–".to_owned(), "–".to_owned()), |flow| {
            (format!("{:.2}", flow.figure * 8.0 / 1e9), format!("{:.2}", flow.share))
        });
        writeln!(
            text,
            "| {mode} | {services} | {:.0} | {:.2} | {} µs | {} µs | {flow} | {flow_share} |",
            connections_per_second.figure,
            connections_per_second.share,
            latency_median.as_micros(),
            latency_p99.as_micros(),
        )
        .expect("a String takes everything");
    }
    text
}

/// Returns a description of this machine and its kernel, for the header of the results.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let guest = if std::env::var_os("TIDEGATE_GUEST").is_some() { " (User Mode Linux guest)" } else { "" };
    format!(
        "{count} × {}, Linux {}{guest}",
        model.trim_start_matches([' ', '\t', ':']),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// Parses a proxy mode that was given as a command-line argument.
pub fn mode(word: &str) -> Result<ProxyMode, String> {
    let mode = ProxyMode::ALL.iter().copied().find(|mode| mode.as_str() == word);
    mode.ok_or_else(|| {
        format!("one of {}", ProxyMode::ALL.iter().map(|mode| mode.as_str()).collect::<Vec<_>>().join(", "))
    })
}
