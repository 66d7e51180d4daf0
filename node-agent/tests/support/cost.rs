//! What a packet's way through each proxy mode costs: throughput of one long flow, and the rate and latency of short
//! connections, beside the same without any proxy.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use model::node::ProxyMode;
use node_agent::dataplane::{self, BackendOptions, Outcome, Scope};

use super::{
    Namespace,
    net::Topology,
    programs::{desired, simple},
};

const LONG_PORT: u16 = 9100;
const SHORT_PORT: u16 = 9101;
const VIP_LONG: &str = "10.96.0.1";
const VIP_SHORT: &str = "10.96.0.2";

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Bytes of the long flow.
    pub bytes: usize,
    /// Short connections, one after the other.
    pub connections: usize,
    /// How often each is measured; the median counts.
    pub rounds: usize,
}

/// What one mode costs.
#[derive(Debug, Clone)]
pub struct Cost {
    /// The mode; `None` is the way without a proxy.
    pub mode: Option<ProxyMode>,
    /// The figures, or why there are none.
    pub figures: Result<Figures, String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub bytes_per_second: f64,
    pub connections_per_second: f64,
    pub median: Duration,
    pub p99: Duration,
}

/// Measures every mode on one topology, first of all the direct way.
pub fn measure(test: &str, size: Size) -> Vec<Cost> {
    let topology = Topology::new(test);
    let chunk = vec![0; 64 << 10];
    let _long = Served::start(&topology.a, LONG_PORT, move |mut stream| {
        let mut left = size.bytes;
        while left > 0 && stream.write_all(&chunk[..chunk.len().min(left)]).is_ok() {
            left -= chunk.len().min(left);
        }
    });
    let _short = Served::start(&topology.a, SHORT_PORT, |mut stream| {
        let _gone = stream.write_all(b"!");
    });
    let direct = figures(&topology.client, ("10.1.1.2", LONG_PORT), ("10.1.1.2", SHORT_PORT), size);
    let mut costs = vec![Cost { mode: None, figures: Ok(direct) }];
    for mode in ProxyMode::ALL {
        costs.push(Cost { mode: Some(mode), figures: through(&topology, mode, size) });
    }
    costs
}

fn through(topology: &Topology, mode: ProxyMode, size: Size) -> Result<Figures, String> {
    let program = |vip, port| {
        let mut program = simple(vip, &[("10.1.1.2", port, 1)]);
        program.hairpins = BTreeSet::new();
        program
    };
    let wanted =
        desired(vec![("long", program(VIP_LONG, LONG_PORT)), ("short", program(VIP_SHORT, SHORT_PORT))]);
    let opened = topology.node.run(|| dataplane::open(mode, &BackendOptions::default()));
    let mut backend = opened.map_err(|error| error.to_string())?;
    let pass = topology.node.run(|| backend.apply(&wanted, &Scope::Everything));
    if let Some(error) = pass.failed {
        return Err(error.to_string());
    }
    for outcome in pass.outcomes.values() {
        match outcome {
            Outcome::Verified => {}
            Outcome::Failed { message, .. } => return Err(message.clone()),
        }
    }
    let measured = figures(&topology.client, (VIP_LONG, 80), (VIP_SHORT, 80), size);
    topology.node.run(|| backend.cleanup()).map_err(|error| error.to_string())?;
    Ok(measured)
}

fn figures(client: &Namespace, long: (&str, u16), short: (&str, u16), size: Size) -> Figures {
    let at = |(ip, port): (&str, u16)| SocketAddr::new(ip.parse().unwrap(), port);
    let (long, short) = (at(long), at(short));
    client.run(move || {
        let mut throughputs: Vec<f64> = (0..size.rounds).map(|_| throughput(long, size.bytes)).collect();
        throughputs.sort_by(f64::total_cmp);
        let mut latencies: Vec<Duration> =
            (0..size.rounds * size.connections).map(|_| latency(short)).collect();
        let total: Duration = latencies.iter().sum();
        latencies.sort();
        Figures {
            bytes_per_second: throughputs[throughputs.len() / 2],
            connections_per_second: latencies.len() as f64 / total.as_secs_f64(),
            median: latencies[latencies.len() / 2],
            p99: latencies[latencies.len() * 99 / 100],
        }
    })
}

fn throughput(address: SocketAddr, bytes: usize) -> f64 {
    let mut stream = TcpStream::connect(address).unwrap();
    let (mut buffer, mut received, start) = (vec![0; 256 << 10], 0, Instant::now());
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            length => received += length,
        }
    }
    assert_eq!(received, bytes);
    bytes as f64 / start.elapsed().as_secs_f64()
}

/// From the first packet to the first byte of the answer.
fn latency(address: SocketAddr) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    start.elapsed()
}

/// The table as Markdown.
pub fn table(costs: &[Cost]) -> String {
    let mut table = String::from(
        "| mode | one flow, MB/s | short connections/s | median, µs | p99, µs |\n|---|---:|---:|---:|---:|\n",
    );
    for Cost { mode, figures } in costs {
        let name = mode.map_or("direct", ProxyMode::as_str);
        match figures {
            Ok(it) => {
                let mb = it.bytes_per_second / 1e6;
                let (rate, median, p99) =
                    (it.connections_per_second, it.median.as_micros(), it.p99.as_micros());
                writeln!(table, "| {name} | {mb:.0} | {rate:.0} | {median} | {p99} |").unwrap();
            }
            Err(why) => writeln!(table, "| {name} | not here: {why} | | | |").unwrap(),
        }
    }
    table
}

/// A server that waits in `accept`, so that it costs nothing while idle.
struct Served {
    stop: Arc<AtomicBool>,
    wake: (String, u16),
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(namespace: &Namespace, port: u16, serve: impl Fn(TcpStream) + Send + 'static) -> Self {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = namespace.run(|| TcpListener::bind(any).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                serve(stream.unwrap());
            }
        });
        Self { stop, wake: (namespace.name().to_owned(), port), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let (name, port) = self.wake.clone();
        let waker = thread::spawn(move || {
            super::enter(&name);
            TcpStream::connect(("127.0.0.1", port))
        });
        let _woken = waker.join();
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}
