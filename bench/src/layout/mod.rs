//! What the layout of a ruleset costs: ours, in which a Service is elements of shared maps, beside one in which it is a chain.
//!
//! ```text
//!   an estate, whose agent programs N Services ─▶ `nft list` ─▶ ours: the whole, and a Service that comes, changes and goes
//!                     │
//!                     └─ the same Services ─▶ service-chains: a chain and a map for each Service
//!                                          ─▶ endpoint-chains: a chain for each endpoint besides
//!
//!   every layout on a node of its own, by turns, by the same tool (`nft -f`):
//!     load the whole ─▶ add, change, remove a Service ─▶ connect through the first, the middle and the last one
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
    measured::{Change, Costs, Point},
    peer::whole,
    served::Served,
};
use self::{ruleset::Ruleset, tool::Tool, way::Way};
use crate::{
    connections::client,
    fixture_cluster::{Estate, Size},
    host::LoadMeter,
    pages::record::Record,
    progress::Say,
    statistics::figures::Summary,
};

/// A layout whose load took longer at a size is loaded once there, and left out at larger ones: what grows with the square of the
/// Services would take hours.
const LOAD_MAX: Duration = Duration::from_secs(60);
/// Listings of larger rulesets are not compared after the changes: with chains for Services that takes minutes.
const COMPARED_SERVICES_MAX: u32 = 1_000;
/// How long a way is used before anything is measured.
const WARM_UP: Duration = Duration::from_millis(100);

/// How Services become rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Ours: elements of maps that all Services share.
    Tidegate,
    /// A chain for each Service, with an anonymous map to its endpoints.
    ServiceChains,
    /// A chain for each Service, with an anonymous map to a chain for each endpoint.
    EndpointChains,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tidegate, Self::ServiceChains, Self::EndpointChains];

    /// What results call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::ServiceChains => "service-chains",
            Self::EndpointChains => "endpoint-chains",
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Loads of the whole at each size, in each layout.
    pub loads: u16,
    /// Times that a Service comes, changes and goes.
    pub changes: u16,
    /// Turns with connections.
    pub rounds: u16,
    /// How long each of the four parts of such a turn takes.
    pub slice: Duration,
    /// Clients at once where connections per second are measured.
    pub clients: u16,
    /// Numbers of Services, ascending.
    pub sizes: Vec<u32>,
    /// Endpoints of each Service.
    pub endpoints: u8,
    /// What is compared with ours.
    pub peers: Vec<Layout>,
}

/// A layout with the network in which it is used.
struct Contestant {
    layout: Layout,
    way: Way,
    gave_up: Option<String>,
}

/// Measures all layouts at all sizes.
///
/// # Errors
/// Not root, something is not built, or a ruleset does not do what it is for.
pub fn run(options: &Options, say: Say<'_>) -> Result<Record<Point>> {
    ensure!(options.sizes.iter().all(|&size| size > 0), "a size is a number of Services from 1 on");
    ensure!(options.endpoints > 0, "a Service has at least one endpoint here");
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
        contestants.push(Contestant { layout, way: Way::new()?, gave_up: None });
    }
    let nothing = Size { mode: "nftables", services: 0, endpoints: options.endpoints, live: 0 };
    let mut estate = Estate::start(nothing)?.filling_on(served::ENDPOINTS_NODE);
    let mut meter = LoadMeter::start()?;
    for &services in &options.sizes {
        estate.fill(services)?;
        say(&format!("{services} Services are there"))?;
        let size = At { options, tool: &tool, services };
        let points = size.measure(&estate, &mut contestants, &mut meter, say)?;
        record.points.extend(points);
    }
    record.load = Some(meter.load()?);
    Ok(record)
}

/// A size, with what is the same for all layouts.
struct At<'a> {
    options: &'a Options,
    tool: &'a Tool,
    services: u32,
}

impl At<'_> {
    fn measure(
        &self,
        estate: &Estate,
        contestants: &mut [Contestant],
        meter: &mut LoadMeter,
        say: Say<'_>,
    ) -> Result<Vec<Point>> {
        let served = served::all(estate)?;
        ensure!(served.len() == self.services as usize, "{} Services are there", served.len());
        let (ours, changing) = ruleset::ours(estate)?;
        let targets = [0, served.len() / 2, served.len() - 1].map(|at| way::frontend(&served[at]));
        let added = way::frontend(&changing.before);
        let mut ours = Some(ours);
        let mut turns = Vec::new();
        for contestant in contestants.iter_mut().filter(|contestant| contestant.gave_up.is_none()) {
            let ruleset = match contestant.layout {
                Layout::Tidegate => ours.take().context("we take part once")?,
                chains @ (Layout::ServiceChains | Layout::EndpointChains) => {
                    ruleset::peer(chains, &served, &changing)
                }
            };
            let Options { endpoints, .. } = *self.options;
            let point = Point::new(contestant.layout, self.services, endpoints, &ruleset.whole);
            turns.push(Turn { contestant, ruleset, point });
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

    /// Loads the whole again and again, and leaves it there.
    fn load(&self, turns: &mut Vec<Turn<'_>>, meter: &mut LoadMeter, say: Say<'_>) -> Result<()> {
        for round in 0..self.options.loads {
            meter.pause()?;
            for turn in turns.iter_mut().filter(|turn| turn.contestant.gave_up.is_none()) {
                let Turn { contestant, ruleset, point } = turn;
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

    /// Counts what the changes send, and makes sure that they do what they are for.
    fn prove(&self, turn: &mut Turn<'_>, added: SocketAddr) -> Result<()> {
        let Turn { contestant: Contestant { layout, way, .. }, ruleset, point } = turn;
        let compared = self.services <= COMPARED_SERVICES_MAX;
        let before = if compared { Some(way.listing(ruleset)?) } else { None };
        for ((step, change), number) in ruleset.steps.iter().zip(point.changes_mut()).zip(1..) {
            change.enter_sent(self.tool.sent(&way.node, &step.text)?);
            self.sweep(way, step)?;
            // After the third step the Service is gone.
            if number < 3 {
                way.answers(added).with_context(|| format!("{}, step {number}", layout.name()))?;
            }
        }
        if let Some(before) = before {
            let after = way.listing(ruleset)?;
            let (layout, elements) = (layout.name(), before.elements());
            ensure!(after == before, "{layout}: changes left something behind ({elements} elements before)");
        }
        Ok(())
    }

    fn change(&self, turn: &mut Turn<'_>) -> Result<()> {
        let Turn { contestant: Contestant { way, .. }, ruleset, point } = turn;
        point.nothing.enter(self.tool.load(&way.node, "")?);
        for (step, change) in ruleset.steps.iter().zip(point.changes_mut()) {
            change.costs.enter(self.tool.load(&way.node, &step.text)?);
            self.sweep(way, step)?;
        }
        Ok(())
    }

    /// Removes empty chains; older kernels hold on to them for a moment after the last element that led there is gone.
    fn sweep(&self, way: &Way, step: &ruleset::Step) -> Result<()> {
        if step.sweep.is_empty() {
            return Ok(());
        }
        wait::until("empty chains to go", || self.tool.load(&way.node, &step.sweep).map(drop))
    }

    fn connect(&self, turn: &mut Turn<'_>, targets: [SocketAddr; 3]) -> Result<()> {
        let Turn { contestant: Contestant { layout, way, .. }, point, .. } = turn;
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

/// A contestant at a size.
struct Turn<'a> {
    contestant: &'a mut Contestant,
    ruleset: Ruleset,
    point: Point,
}
