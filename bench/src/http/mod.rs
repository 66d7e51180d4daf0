//! HTTP benchmark: rate, CPU time and latency of requests through `tidegate-gateway` and other reverse proxies, memory of idle
//! connections, and the time until a changed route decides requests.
//!
//! ```text
//!   h2load, own TLS clients ──▶ tidegate-gateway ◀──watch── control server with few and many routes
//!                            ├─▶ HAProxy, nginx, Caddy: the same few routes in their configuration
//!                            └────── each of them ──▶ nginx with a short page
//!   in a round, every proxy in turn:  as fast as possible (rate, CPU time) ─▶ at half of that rate (latency)
//! ```
//! All proxies and clients are in one network namespace and use the loopback interface.

mod change;
mod contestant;
mod data;
mod handshakes;
mod idle;
mod load;
mod measured;
mod render;

use std::time::Duration;

use anyhow::{Context, Result};
use lab::{
    cluster::deployment::{Cluster, Options as ClusterOptions},
    host::scratch::Scratch,
};

use self::contestant::Proxies;
pub use self::{
    contestant::HttpProxy,
    data::{HttpLoad, RouteCounts},
    measured::{HttpResults, HttpRound, HttpSeries, IdleMemory},
};
use crate::{
    host::{Host, LoadMeter},
    progress::Say,
};

/// Parameters of the HTTP benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of rounds. Each proxy is measured once per round and kind of load.
    pub rounds: u16,
    /// Duration of each of the two measurements in a round.
    pub slice: Duration,
    /// Numbers of routes.
    pub routes: RouteCounts,
    /// Number of connections of the load.
    pub clients: u16,
    /// Number of idle connections whose memory is measured.
    pub idle: u32,
    /// Number of changes of a route.
    pub changes: u16,
}

/// Measures every proxy once per round, in an order that differs from round to round.
///
/// # Errors
/// Returns an error if the process is not root, software is missing, or a proxy gives a wrong response.
pub fn run(options: &Options, say: Say<'_>) -> Result<HttpResults> {
    let mut measured = HttpResults::new(Host::ask()?, options, contestant::versions()?);
    let cluster = Cluster::start_control(&ClusterOptions { nodes: 1, ..ClusterOptions::default() })?;
    let scratch = Scratch::new("bench-http")?;
    say(&format!("{} routes: filling", options.routes.many))?;
    let certificate = contestant::create_certificate(scratch.path())?;
    for batch in options.routes.objects(&certificate).chunks(BATCH) {
        cluster.apply_objects(batch).context("filling")?;
    }
    let place = cluster.place(NODE)?.clone();
    let proxies = Proxies::start(&place, &cluster, &options.routes, scratch.path())?;
    measured.changes_ms = change::measure(&cluster, &place, options)?;
    for proxy in HttpProxy::PEERS {
        let memory = idle::measure(&place, &proxies, proxy, options.idle)?;
        say(&format!("{:<10} {memory}", proxy.as_str()))?;
        measured.idle.push(memory);
    }
    let mut contests = contestant::contests(&options.routes);
    for contest in &contests {
        measured.add_series(contest);
        contest.check(&place).with_context(|| format!("{contest}: first request"))?;
    }
    let mut meter = LoadMeter::start()?;
    for round in 0..options.rounds {
        meter.pause()?;
        for contest in &contests {
            let turn = contest.turn(&place, &proxies, options, scratch.path());
            let turn = turn.with_context(|| format!("{contest}, round {}", round + 1))?;
            say(&format!("{:>4} {contest:<34} {turn}", round + 1))?;
            measured.enter(contest, turn);
        }
        // The first proxy differs from round to round.
        contests.rotate_left(1);
    }
    measured.load = Some(meter.load()?);
    Ok(measured)
}

/// Node in whose namespace everything except the control server runs.
const NODE: &str = "node1";
/// Number of objects per request.
const BATCH: usize = 1_000;
