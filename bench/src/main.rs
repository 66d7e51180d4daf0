//! `cargo run --release -p bench -- change`, as root, after `cargo build --release --workspace`; `make bench` does all.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bench::{
    bgp, change, cold, connections, failover, fanout,
    layout::{self, Layout},
    pages::record::Report,
    soak, targets, writes,
};
use clap::{Args, Parser, Subcommand, builder::PossibleValuesParser};
use lab::load::feed_load::{self as fleet, Position, Role};

/// Measures Tidegate beside others on this machine, in network namespaces of its own.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The directory of what is written: for each benchmark the figures (.json), a page (.md) and a plot (.svg).
    #[arg(long, global = true, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// Write also what was measured while others used much of the machine.
    #[arg(long, global = true)]
    busy_anyway: bool,
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Measures nothing: makes all pages and plots again of the figures that benchmarks wrote, and README.md, every target beside them.
    Pages,
    /// How long the traffic of a load balancer address is interrupted when the node that announces it fails.
    Failover {
        /// Failures of each kind for each contestant.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Only contestants and failures whose names contain one of these, such as `keepalived,link-cut`.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// How long it takes until routers have learned, and lost, a route by BGP, and what many routes cost.
    Bgp {
        /// Prefixes that are announced and withdrawn one by one.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Times that the announcing node is cut off.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
        failures: u16,
        /// Prefixes that are announced at once; 0 leaves that out.
        #[arg(long, default_value_t = bgp::BULK, value_parser = clap::value_parser!(u32).range(0..=60_000))]
        bulk: u32,
    },
    /// How long a change of endpoints takes until traffic follows it, and what it costs, with few and many Services.
    Change {
        /// Changes whose latency is measured, at each size in each mode.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Groups of changes whose cost is measured, at each size in each mode.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        groups: u16,
        /// Changes in each of these groups.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(4..=10_000))]
        changes: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000, 50_000],
            value_parser = clap::value_parser!(u32).range(0..=50_000))]
        sizes: Vec<u32>,
        /// Endpoints of each Service.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: u8,
        /// Proxy modes; ipvs is measured on a second kernel, with fewer endpoints, where this one does not have it.
        #[arg(long, value_delimiter = ',', default_value = "nftables,userspace,ipvs",
            value_parser = PossibleValuesParser::new(change::MODES))]
        modes: Vec<String>,
    },
    /// How long a change takes until the last of many agents, and of many watchers, has it, and what that costs the control server.
    Fanout(FanoutArguments),
    /// Those who are told in `fanout`; takes its orders from stdin.
    #[command(hide = true)]
    Fleet(FleetArguments),
    /// How many endpoint writes per second a control server makes durable, on SQLite and on three members of etcd.
    Writes {
        /// Turns of each store.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        rounds: u16,
        /// How long a turn takes, in milliseconds.
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
        slice_ms: u64,
        /// Clients at once, one number after the other.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64],
            value_parser = clap::value_parser!(u16).range(1..=1_000))]
        clients: Vec<u16>,
    },
    /// How long an agent takes from its start until everything is programmed and verified, and how much memory it has then.
    Cold {
        /// Starts of each kind at each size.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        rounds: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000, 10_000, 50_000],
            value_parser = clap::value_parser!(u32).range(1..=60_000))]
        sizes: Vec<u32>,
        /// Endpoints of each Service, one after the other.
        #[arg(long, value_delimiter = ',', default_values_t = [2, 10],
            value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: Vec<u8>,
        /// Endpoints of all Services together; what is larger is left out.
        #[arg(long, default_value_t = 100_000)]
        most: u32,
        /// Proxy modes; ipvs where the kernel has it, such as in the guest of `lab/guest.sh`.
        #[arg(long, value_delimiter = ',', default_value = "nftables",
            value_parser = PossibleValuesParser::new(cold::MODES))]
        modes: Vec<String>,
    },
    /// What our nftables ruleset costs beside one with a chain for every Service: to load, to change, to connect through.
    Layout {
        /// Loads of the whole at each size, in each layout.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        loads: u16,
        /// Times that a Service is added, changed and removed, at each size in each layout.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        changes: u16,
        /// Turns with connections.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Milliseconds of each of the four parts of such a turn: first, middle and last Service, and many clients.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Clients at once where connections per second are measured.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        clients: u16,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 5_000, 10_000],
            value_parser = clap::value_parser!(u32).range(1..=50_000))]
        sizes: Vec<u32>,
        /// Endpoints of each Service.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        endpoints: u8,
        /// What is compared with ours.
        #[arg(long, value_delimiter = ',', default_value = "service-chains,endpoint-chains",
            value_parser = PossibleValuesParser::new(["service-chains", "endpoint-chains"]))]
        peers: Vec<String>,
    },
    /// What a new connection through a virtual address costs in every proxy mode, with few and many Services, beside relays.
    Connections {
        /// Turns of every contestant.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        rounds: u16,
        /// Milliseconds of each of the three parts of a turn: one client, many clients, one long flow.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        slice_ms: u64,
        /// Numbers of Services, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [10, 10_000],
            value_parser = clap::value_parser!(u32).range(1..=50_000))]
        sizes: Vec<u32>,
        /// Proxy modes; ipvs is measured on a second kernel, beside the same peers, where this one does not have it.
        #[arg(long, value_delimiter = ',', default_value = "nftables,iptables,userspace,ipvs",
            value_parser = PossibleValuesParser::new(connections::MODES))]
        modes: Vec<String>,
        /// Clients at once where connections per second are measured.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
        clients: u16,
    },
    /// A cluster that is changed 50 times a second while things go wrong at random, and what is left of it; fails when anything is wrong.
    Soak {
        /// How long there are changes and faults.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        minutes: u32,
        /// Where control keeps its objects.
        #[arg(long, default_value = "sqlite")]
        store: soak::Store,
    },
}

#[derive(Debug, Args)]
struct FanoutArguments {
    /// Turns of each size.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Numbers of agents.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000],
        value_parser = clap::value_parser!(u16).range(1..=2_000))]
    agents: Vec<u16>,
    /// Numbers of watchers; none with an empty list.
    #[arg(long, value_delimiter = ',', num_args = 0.., default_values_t = [100, 1_000],
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    watchers: Vec<u16>,
    /// Services.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// Endpoints of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=64))]
    endpoints: u8,
    /// Changes a second.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// Changes in a turn.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    changes: u32,
    /// Times in a turn that all are cut off and come back at once.
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

/// Writes the files of a benchmark into a directory.
type Write = Box<dyn FnOnce(&Path) -> Result<()>>;

/// What a benchmark has to say at its end.
struct Outcome {
    page: String,
    too_busy: Option<String>,
    write: Write,
    /// What makes the run a failure; only a soak has it.
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
        bail!("nothing was written: {why}. Run it again on a quiet machine, or with --busy-anyway");
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
            let wrong = record.points.iter().flat_map(lab::chaos::soak::Outcome::faults_found).collect();
            let outcome = match store {
                soak::Store::Sqlite => Outcome::of(record),
                soak::Store::Etcd => Outcome::of(soak::WithEtcd(record)),
            };
            // It measures no time, and says what it says on a busy machine too.
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
        Benchmark::Fleet(_) => bail!("`{}` is no benchmark", fleet::SUBCOMMAND),
        Benchmark::Connections { rounds, slice_ms, sizes, modes, clients } => {
            let (slice, modes) = (Duration::from_millis(slice_ms), chosen(&connections::MODES, &modes));
            let options = connections::Options { rounds, slice, sizes, modes, clients };
            Outcome::of(connections::run(&options, say)?)
        }
    })
}

/// The pages and plots of what was measured before.
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
        let program = std::env::current_exe().context("this binary has no path")?;
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
