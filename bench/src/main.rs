//! Benchmark runner: `cargo run --release -p bench -- change`, as root, after `cargo build --release
//! --workspace`; `make bench` runs all.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bench::{
    bgp, change, cold, connections, dns, failover, fanout, http,
    layout::{self, Layout},
    pages::record::Report,
    soak, targets, writes,
};
use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};
use lab::load::feed_load::{self as fleet, Position, Role};

/// Measures Tidegate and comparable software on this machine, in separate network namespaces.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Output directory: for each benchmark the results (.json), a page (.md) and a plot (.svg).
    #[arg(long, global = true, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// Write results even if other processes used much CPU time.
    #[arg(long, global = true)]
    busy_anyway: bool,
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Regenerates all pages and plots from existing results, and README.md with every target, without
    /// measuring.
    Pages,
    /// Traffic interruption of a load balancer address when the node that announces it fails.
    Failover {
        /// Failures of each kind per failover system.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Names of failover systems and failures to run, or parts of the names, such as `keepalived,link-cut`.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Time until routers install and remove a route by BGP, and the cost of many routes.
    Bgp {
        /// Prefixes announced and withdrawn one by one.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Number of times the announcing node is disconnected.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
        failures: u16,
        /// Prefixes announced at once; 0 skips this part.
        #[arg(long, default_value_t = bgp::BULK, value_parser = clap::value_parser!(u32).range(0..=60_000))]
        bulk: u32,
    },
    /// Time from an endpoint change until traffic follows it, and cost of the change, with few and with many
    /// Services.
    Change {
        /// Changes whose latency is measured, per size and mode.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Groups of changes whose cost is measured, per size and mode.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        groups: u16,
        /// Changes per group.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=10_000))]
        changes: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000, 50_000],
            value_parser = clap::value_parser!(u32).range(0..=50_000))]
        sizes: Vec<u32>,
        /// Endpoints per Service.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: u8,
        /// Proxy modes; ipvs is measured in a guest VM, with fewer endpoints, if the host's kernel does not
        /// support it.
        #[arg(long, value_delimiter = ',', default_value = "nftables,userspace,ipvs",
            value_parser = PossibleValuesParser::new(change::MODES))]
        modes: Vec<String>,
    },
    /// Time until the last of many agents and watchers has received a change, and the cost for the control server.
    Fanout(FanoutArguments),
    /// Receiver process of `fanout`; reads its orders from stdin.
    #[command(hide = true)]
    Fleet(FleetArguments),
    /// Durable endpoint writes per second of a control server, on SQLite and on three members of etcd.
    Writes {
        /// Measurements per store.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        rounds: u16,
        /// Duration of a measurement in milliseconds.
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
        slice_ms: u64,
        /// Numbers of concurrent clients, measured one after another.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64],
            value_parser = clap::value_parser!(u16).range(1..=1_000))]
        clients: Vec<u16>,
    },
    /// Time from the start of an agent until everything is programmed and verified, and the memory of the agent
    /// then.
    Cold {
        /// Cold starts, and restarts, per number of Services and endpoints.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        rounds: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000, 10_000, 50_000],
            value_parser = clap::value_parser!(u32).range(1..=60_000))]
        sizes: Vec<u32>,
        /// Numbers of endpoints per Service, measured one after another.
        #[arg(long, value_delimiter = ',', default_values_t = [2, 10],
            value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: Vec<u8>,
        /// Maximum total number of endpoints; larger combinations are skipped.
        #[arg(long, default_value_t = 100_000)]
        most: u32,
        /// Proxy modes; ipvs only if the kernel supports it, such as in the guest of `lab/guest.sh`.
        #[arg(long, value_delimiter = ',', default_value = "nftables",
            value_parser = PossibleValuesParser::new(cold::MODES))]
        modes: Vec<String>,
    },
    /// Cost of loading, changing and using Tidegate's nftables ruleset, compared to one with a chain per Service.
    Layout {
        /// Number of loads of the full ruleset, for each number of Services and each layout.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        loads: u16,
        /// Number of times a Service is added, changed and removed, per size and layout.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        changes: u16,
        /// Rounds of the connection measurement.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Duration of each of the four parts of a connection round in milliseconds: first, middle and last
        /// Service, and many clients.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Concurrent clients in the rate measurement.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        clients: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 5_000, 10_000],
            value_parser = clap::value_parser!(u32).range(1..=50_000))]
        sizes: Vec<u32>,
        /// Endpoints per Service.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: u8,
        /// Layouts to compare with Tidegate's.
        #[arg(long, value_delimiter = ',', default_value = "service-chains,endpoint-chains",
            value_parser = PossibleValuesParser::new(["service-chains", "endpoint-chains"]))]
        peers: Vec<String>,
    },
    /// Cost of a new connection through a virtual address in every proxy mode, with few and many Services,
    /// compared to a direct connection, HAProxy and nginx.
    Connections {
        /// Rounds; each compared path is measured once per round.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Duration of each of the three parts of a round in milliseconds: one client, many clients, one long
        /// stream.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [10, 10_000],
            value_parser = clap::value_parser!(u32).range(1..=50_000))]
        sizes: Vec<u32>,
        /// Proxy modes; ipvs is measured in a guest VM, together with the compared paths, if the host's kernel
        /// does not support it.
        #[arg(long, value_delimiter = ',', default_value = "nftables,iptables,userspace,ipvs",
            value_parser = PossibleValuesParser::new(connections::MODES))]
        modes: Vec<String>,
        /// Concurrent clients in the rate measurement.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        clients: u16,
    },
    /// Rate, CPU time and latency of DNS questions to `tidegate-dns` and other name servers, its memory, and the time
    /// until a change is in an answer.
    Dns {
        /// Rounds; each server is measured once per round and kind of names.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Duration of each of the two parts of a round in milliseconds: as fast as possible, and at a fixed rate.
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Number of Services.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=60_000))]
        services: u32,
        /// Endpoints per Service.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: u8,
        /// Names of another zone, which servers answer from their caches.
        #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        cached: u32,
        /// Questions per second in the latency measurement.
        #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        per_second: u32,
        /// Changes of an endpoint whose latency is measured.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        changes: u16,
    },
    /// Rate, CPU time and latency of requests through `tidegate-gateway` and other reverse proxies, memory of idle
    /// connections, and the time until a changed route decides requests.
    Http {
        /// Rounds; each proxy is measured once per round and kind of load.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Duration of each of the two parts of a round in milliseconds: as fast as possible, and at half of the rate.
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Routes of each proxy.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10))]
        few: u32,
        /// Routes of a second `tidegate-gateway`.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=50_000))]
        many: u32,
        /// Open connections of the clients.
        #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        clients: u16,
        /// Idle connections whose memory is measured.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
        idle: u32,
        /// Changes of a route whose latency is measured.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        changes: u16,
    },
    /// Soak test: a cluster with 50 changes per second and random faults, and a check for leaks at the end;
    /// fails if any problem is found.
    Soak {
        /// Duration of changes and faults in minutes.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        minutes: u32,
        /// Store of the control server.
        #[arg(long, default_value = "sqlite")]
        store: soak::SoakStore,
    },
}

#[derive(Debug, Args)]
struct FanoutArguments {
    /// Rounds per number of receivers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Numbers of agents, measured one after another.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000],
        value_parser = clap::value_parser!(u16).range(1..=2_000))]
    agents: Vec<u16>,
    /// Numbers of watchers, measured one after another; an empty list measures none.
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [100, 1_000],
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    watchers: Vec<u16>,
    /// Number of Services.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// Endpoints per Service.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=64))]
    endpoints: u8,
    /// Changes per second.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// Changes per round.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    changes: u32,
    /// Mass reconnects of all receivers per round.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    herds: u16,
}

#[derive(Debug, Args)]
struct FleetArguments {
    #[arg(long)]
    role: Role,
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    first: u16,
    #[arg(long)]
    count: u16,
    #[arg(long)]
    from: IpAddr,
    #[arg(long)]
    resume: Option<Position>,
}

/// Function that writes the files of a benchmark into a directory.
type Write = Box<dyn FnOnce(&Path) -> Result<()>>;

/// Final result of a benchmark command.
struct Outcome {
    page: String,
    too_busy: Option<String>,
    write: Write,
    /// Problems that make the command fail; only a soak test reports any.
    wrong: Vec<String>,
}

impl Outcome {
    fn of(report: impl Report + 'static) -> Self {
        let (page, too_busy) = (report.page(), report.too_busy());
        Self { page, too_busy, write: Box::new(move |out| report.write(out)), wrong: Vec::new() }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Benchmark::Fleet(FleetArguments { role, server, first, count, from, resume }) = arguments.benchmark
    {
        return fleet::serve(&fleet::Orders { role, server, first, count, from, resume });
    }
    let mut stdout = io::stdout();
    let mut say = |line: &str| {
        io::Write::write_fmt(&mut stdout, format_args!("{line}\n")).context("cannot write to stdout")
    };
    let outcome = run(arguments.benchmark, &arguments.out, &mut say)?;
    if let Some(why) = outcome.too_busy.filter(|_| !arguments.busy_anyway) {
        bail!(
            "no files were written: {why}. Run the benchmark again on an idle machine, or with \
               --busy-anyway"
        );
    }
    (outcome.write)(&arguments.out)?;
    say(&outcome.page)?;
    ensure!(outcome.wrong.is_empty(), "found wrong: {}", outcome.wrong.join("; "));
    Ok(())
}

fn run(benchmark: Benchmark, out: &Path, say: bench::progress::Say<'_>) -> Result<Outcome> {
    Ok(match benchmark {
        Benchmark::Pages => again(out)?,
        Benchmark::Failover { rounds, only } => {
            Outcome::of(failover::run(&failover::Options { rounds, only }, say)?)
        }
        Benchmark::Bgp { rounds, failures, bulk } => {
            Outcome::of(bgp::run(&bgp::Options { rounds, failures, bulk }, say)?)
        }
        Benchmark::Change { rounds, groups, changes, sizes, endpoints, modes } => {
            let modes = chosen(&change::MODES, &modes);
            let measured = change::run(
                &change::Options {
                    rounds,
                    groups,
                    changes,
                    sizes,
                    endpoints,
                    quiet: change::QUIET,
                    quiet_share: change::QUIET_SHARE,
                    modes,
                },
                say,
            )?;
            Outcome::of(measured)
        }
        Benchmark::Cold { rounds, sizes, endpoints, most, modes } => {
            let modes = chosen(&cold::MODES, &modes);
            let measured = cold::run(&cold::Options { rounds, sizes, endpoints, most, modes }, say)?;
            Outcome::of(measured)
        }
        Benchmark::Writes { rounds, slice_ms, clients } => {
            let slice = Duration::from_millis(slice_ms);
            Outcome::of(writes::run(&writes::Options { rounds, slice, clients }, say)?)
        }
        Benchmark::Soak { minutes, store } => {
            let record = soak::run(minutes, store, say)?;
            let wrong = record.points.iter().flat_map(lab::chaos::soak::SoakOutcome::faults_found).collect();
            let outcome = match store {
                soak::SoakStore::Sqlite => Outcome::of(record),
                soak::SoakStore::Etcd => Outcome::of(soak::WithEtcd(record)),
            };
            // The soak test measures no time, so its results are valid on a busy machine.
            Outcome { too_busy: None, wrong, ..outcome }
        }
        Benchmark::Layout { loads, changes, rounds, slice_ms, clients, sizes, endpoints, peers } => {
            let slice = Duration::from_millis(slice_ms);
            let is_chosen = |layout: &Layout| peers.iter().any(|name| name == layout.name());
            let peers = Layout::ALL.into_iter().filter(is_chosen).collect();
            let options = layout::Options { loads, changes, rounds, slice, clients, sizes, endpoints, peers };
            Outcome::of(layout::run(&options, say)?)
        }
        Benchmark::Fanout(arguments) => Outcome::of(fanout::run(&arguments.options()?, say)?),
        Benchmark::Fleet(_) => bail!("`{}` is not a benchmark", fleet::SUBCOMMAND),
        Benchmark::Dns { rounds, slice_ms, services, endpoints, cached, per_second, changes } => {
            let (slice, names) =
                (Duration::from_millis(slice_ms), dns::NameSet { services, endpoints, cached });
            Outcome::of(dns::run(&dns::Options { rounds, slice, names, per_second, changes }, say)?)
        }
        Benchmark::Http { rounds, slice_ms, few, many, clients, idle, changes } => {
            let (slice, routes) = (Duration::from_millis(slice_ms), http::RouteCounts { few, many });
            Outcome::of(http::run(&http::Options { rounds, slice, routes, clients, idle, changes }, say)?)
        }
        Benchmark::Connections { rounds, slice_ms, sizes, modes, clients } => {
            let (slice, modes) = (Duration::from_millis(slice_ms), chosen(&connections::MODES, &modes));
            let options = connections::Options { rounds, slice, sizes, modes, clients };
            Outcome::of(connections::run(&options, say)?)
        }
    })
}

/// Regenerates the pages and plots from the results of earlier runs.
fn again(out: &Path) -> Result<Outcome> {
    let files = targets::pages(out)?;
    let page = files.last().map_or_else(String::new, |(_, first)| first.clone());
    let write = move |out: &Path| {
        files.into_iter().try_for_each(|(name, text)| {
            fs::write(out.join(&name), text).with_context(|| format!("cannot write {name}"))
        })
    };
    Ok(Outcome { page, too_busy: None, write: Box::new(write), wrong: Vec::new() })
}

impl FanoutArguments {
    fn options(self) -> Result<fanout::Options> {
        let Self { rounds, agents, watchers, services, endpoints, per_second, changes, herds } = self;
        let program = std::env::current_exe().context("cannot determine the path of this binary")?;
        Ok(fanout::Options {
            program,
            rounds,
            agents,
            watchers,
            services,
            endpoints,
            per_second,
            changes,
            herds,
        })
    }
}

fn chosen(all: &[&'static str], names: &[String]) -> Vec<&'static str> {
    all.iter().copied().filter(|mode| names.iter().any(|name| name == mode)).collect()
}
