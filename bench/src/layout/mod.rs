//! Ruleset layout benchmark: Tidegate's layout, in which a Service consists of elements in shared maps, compared
//! to layouts with a chain per Service.
//!
//! ```text
//!   a cluster of one node with N Services
//!     ├─ its agent programs them ─▶ `nft list` ─▶ Tidegate's layout
//!     └─ rulesets generated for the same Services ─▶ service-chains: a chain and a map per Service
//!                                                 ─▶ endpoint-chains: additionally a chain per endpoint
//!
//!   each layout on a separate node, in turn, with the same tool (`nft -f`):
//!     load the ruleset ─▶ add, change, remove a Service ─▶ connect through the first, the middle and the last one
//! ```

mod listing;
mod measured;
mod peer;
mod render;
mod ruleset;
mod served;
mod tool;
mod way;

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use lab::host::wait;
use serde::{Deserialize, Serialize};

pub use self::{
    measured::{Change, Costs, LayoutPoint},
    peer::whole,
    served::BenchService,
};
use self::{ruleset::Ruleset, tool::Tool, way::ForwardingNode};
use crate::{
    connections::client,
    fixture_cluster::{Estate, Size},
    host::LoadMeter,
    pages::record::Record,
    progress::Say,
    statistics::figures::Summary,
};

/// Load time above which a layout is loaded only once at a size and skipped at larger sizes, because costs
/// that grow quadratically would take hours.
const LOAD_MAX: Duration = Duration::from_secs(60);
/// Maximum number of Services at which the ruleset after the changes is compared with the one before. With
/// more Services that have a chain each, listing a ruleset takes minutes.
const COMPARED_SERVICES_MAX: u32 = 1_000;
/// Time for which connections are made before the measurements.
const WARM_UP: Duration = Duration::from_millis(100);

/// Method by which a ruleset represents Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Tidegate's layout: elements of maps shared by all Services.
    Tidegate,
    /// Layout with a chain per Service and an anonymous map to its endpoints.
    ServiceChains,
    /// Layout with a chain per Service, and an anonymous map to a chain per endpoint.
    EndpointChains,
}

impl Layout {
    /// Every layout, Tidegate's own first.
    pub const ALL: [Self; 3] = [Self::Tidegate, Self::ServiceChains, Self::EndpointChains];

    /// Returns the name of the layout in the results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::ServiceChains => "service-chains",
            Self::EndpointChains => "endpoint-chains",
        }
    }
}

/// Parameters of the layout benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of full loads per size and layout.
    pub loads: u16,
    /// Number of times a Service is added, changed and removed.
    pub changes: u16,
    /// Number of rounds of the connection measurement.
    pub rounds: u16,
    /// Duration of each of the four client runs in a connection round.
    pub slice: Duration,
    /// Number of concurrent clients in the rate measurement.
    pub clients: u16,
    /// Numbers of Services at which each layout is measured, ascending.
    pub sizes: Vec<u32>,
    /// Number of endpoints of each Service.
    pub endpoints: u8,
    /// Layouts measured in addition to Tidegate's own.
    pub peers: Vec<Layout>,
}

/// Ruleset layout with the network in which it is loaded.
struct LayoutNetwork {
    layout: Layout,
    way: ForwardingNode,
    gave_up: Option<String>,
}

/// Measures each ruleset layout in `options` with each number of Services in `options`.
///
/// # Errors
/// Returns an error if the process is not root, a binary is not built, or a ruleset does not work.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<LayoutPoint>> {
    ensure!(
        options.sizes.iter().all(|&size| size > 0),
        "a size is a number of Services and must be at \
                                                         least 1"
    );
    ensure!(options.endpoints > 0, "this benchmark requires at least one endpoint per Service");
    let versions = vec![
        format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        lab::host::shell::run("nft", &["--version"])?.trim().to_owned(),
    ];
    let mut record = Record::begin(versions)?;
    let tool = Tool::new()?;
    let mut contestants = Vec::new();
    for layout in
        Layout::ALL.into_iter().filter(|layout| *layout == Layout::Tidegate || options.peers.contains(layout))
    {
        contestants.push(LayoutNetwork { layout, way: ForwardingNode::new()?, gave_up: None });
    }
    let nothing = Size { mode: "nftables", services: 0, endpoints: options.endpoints, live: 0 };
    let mut estate = Estate::start(nothing)?.filling_on(served::ENDPOINTS_NODE);
    let mut meter = LoadMeter::start()?;
    for &services in &options.sizes {
        estate.fill(services)?;
        say(&format!("{services} Services created"))?;
        let size = At { options, tool: &tool, services };
        let points = size.measure(&estate, &mut contestants, &mut meter, say)?;
        record.points.extend(points);
    }
    record.load = Some(meter.load()?);
    Ok(record)
}

/// Measurement of all layouts at one number of Services.
struct At<'a> {
    options: &'a Options,
    tool: &'a Tool,
    services: u32,
}

impl At<'_> {
    fn measure(
        &self,
        estate: &Estate,
        contestants: &mut [LayoutNetwork],
        meter: &mut LoadMeter,
        say: Say<'_>,
    ) -> Result<Vec<LayoutPoint>> {
        let served = served::all(estate)?;
        ensure!(served.len() == self.services as usize, "{} Services exist", served.len());
        let (ours, changing) = ruleset::ours(estate)?;
        let targets = [0, served.len() / 2, served.len() - 1].map(|at| way::frontend(&served[at]));
        let added = way::frontend(&changing.before);
        let mut ours = Some(ours);
        let mut turns = Vec::new();
        for contestant in contestants.iter_mut().filter(|contestant| contestant.gave_up.is_none()) {
            let ruleset = match contestant.layout {
                Layout::Tidegate => ours.take().context("our layout takes part once")?,
                chains @ (Layout::ServiceChains | Layout::EndpointChains) => {
                    ruleset::peer(chains, &served, &changing)
                }
            };
            let Options { endpoints, .. } = *self.options;
            let point = LayoutPoint::new(contestant.layout, self.services, endpoints, &ruleset.whole);
            turns.push(LayoutTurn { contestant, ruleset, point });
        }
        self.load(&mut turns, meter, say)?;
        for turn in &mut turns {
            self.prove(turn, added)?;
        }
        for _ in 0..self.options.changes {
            for turn in &mut turns {
                self.change(turn)?;
            }
            turns.rotate_left(1);
        }
        for _ in 0..self.options.rounds {
            meter.pause()?;
            for turn in &mut turns {
                self.connect(turn, targets)?;
            }
            turns.rotate_left(1);
        }
        turns.sort_by_key(|turn| turn.point.layout);
        for turn in &turns {
            say(&turn.point.to_string())?;
            turn.contestant.way.clear(self.tool, &turn.ruleset, turn.point.kernel_kib.last().copied())?;
        }
        Ok(turns.into_iter().map(|turn| turn.point).collect())
    }

    /// Loads the full ruleset of each layout repeatedly, records the costs, and leaves the last one loaded.
    /// If a load takes longer than [`LOAD_MAX`], it is not repeated, and its layout is skipped at larger
    /// sizes.
    fn load(&self, turns: &mut Vec<LayoutTurn<'_>>, meter: &mut LoadMeter, say: Say<'_>) -> Result<()> {
        for round in 0..self.options.loads {
            meter.pause()?;
            for turn in turns.iter_mut().filter(|turn| turn.contestant.gave_up.is_none()) {
                let LayoutTurn { contestant, ruleset, point } = turn;
                if round > 0 {
                    contestant.way.clear(self.tool, ruleset, point.kernel_kib.last().copied())?;
                }
                let (took, kib) = self
                    .tool
                    .load_weighed(&contestant.way.node, &ruleset.whole)
                    .with_context(|| format!("{}, {} Services", point.layout.name(), point.services))?;
                point.load.enter(took);
                point.kernel_kib.extend(kib);
                if took.wall_ms > LOAD_MAX.as_secs_f64() * 1e3 {
                    let why =
                        format!("a load took {:.0} s at {} Services", took.wall_ms / 1e3, self.services);
                    say(&format!("{}: {why}", point.layout.name()))?;
                    point.gave_up = Some(why.clone());
                    contestant.gave_up = Some(why);
                }
            }
            turns.rotate_left(1);
        }
        Ok(())
    }

    /// Makes each change once: counts its netlink messages, and checks that the added Service accepts
    /// connections until it is removed. Up to [`COMPARED_SERVICES_MAX`] Services, also checks that the
    /// ruleset is the same at the end as before.
    fn prove(&self, turn: &mut LayoutTurn<'_>, added: SocketAddr) -> Result<()> {
        let LayoutTurn { contestant: LayoutNetwork { layout, way, .. }, ruleset, point } = turn;
        let compared = self.services <= COMPARED_SERVICES_MAX;
        let before = if compared { Some(way.listing(ruleset)?) } else { None };
        for ((step, change), number) in ruleset.steps.iter().zip(point.changes_mut()).zip(1..) {
            change.enter_sent(self.tool.sent(&way.node, &step.text)?);
            self.sweep(way, step)?;
            // After the third step the Service no longer exists.
            if number < 3 {
                way.answers(added).with_context(|| format!("{}, step {number}", layout.name()))?;
            }
        }
        if let Some(before) = before {
            let after = way.listing(ruleset)?;
            let (layout, elements) = (layout.name(), before.elements());
            ensure!(after == before, "{layout}: the changes left a difference ({elements} elements before)");
        }
        Ok(())
    }

    fn change(&self, turn: &mut LayoutTurn<'_>) -> Result<()> {
        let LayoutTurn { contestant: LayoutNetwork { way, .. }, ruleset, point } = turn;
        point.nothing.enter(self.tool.load(&way.node, "")?);
        for (step, change) in ruleset.steps.iter().zip(point.changes_mut()) {
            change.costs.enter(self.tool.load(&way.node, &step.text)?);
            self.sweep(way, step)?;
        }
        Ok(())
    }

    /// Deletes the chains that a change left empty. Retries, because older kernels still reference a chain
    /// briefly after the last map element that led to it was deleted.
    fn sweep(&self, way: &ForwardingNode, step: &ruleset::Step) -> Result<()> {
        if step.sweep.is_empty() {
            return Ok(());
        }
        wait::until("empty chains to be deleted", || self.tool.load(&way.node, &step.sweep).map(drop))
    }

    fn connect(&self, turn: &mut LayoutTurn<'_>, targets: [SocketAddr; 3]) -> Result<()> {
        let LayoutTurn { contestant: LayoutNetwork { layout, way, .. }, point, .. } = turn;
        let Options { slice, clients, .. } = *self.options;
        for (target, figures) in targets.into_iter().zip(&mut point.connect_us) {
            client::connect(&way.client, target, 1, WARM_UP.min(slice))?;
            let alone = client::connect(&way.client, target, 1, slice)?;
            let summary = Summary::of(alone.latencies_us)
                .with_context(|| format!("{}, {target}: {:?}", layout.name(), alone.first_failure))?;
            figures.push(summary);
            point.failed += alone.failed;
        }
        let [_, middle, _] = targets;
        let crowd = client::connect(&way.client, middle, clients, slice)?;
        point.per_second.push(crowd.latencies_us.len() as f64 / crowd.elapsed.as_secs_f64());
        point.failed += crowd.failed;
        Ok(())
    }
}

/// Ruleset layout with a given number of Services, while it is being measured.
struct LayoutTurn<'a> {
    contestant: &'a mut LayoutNetwork,
    ruleset: Ruleset,
    point: LayoutPoint,
}
