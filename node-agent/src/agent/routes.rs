//! Routes to the Service ranges, checked about once a second.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use kernel::service_routes::{ServiceRoutes, TABLE};
use model::{
    kinds::node::ProxyMode,
    wire::{
        feed::NetworkState,
        trace::{Packet, TraceStep},
    },
};
use tracing::{info, warn};

/// Interval at which the routes are checked: the maximum time for which a missing route goes unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Keeper of the routes to the Service ranges, with the time of its next check.
pub(super) struct RouteKeeper {
    routes: Box<dyn ServiceRoutes>,
    next_at: Instant,
    last_failure: Option<String>,
}

impl RouteKeeper {
    pub(super) const fn new(routes: Box<dyn ServiceRoutes>, now: Instant) -> Self {
        Self { routes, next_at: now, last_failure: None }
    }

    /// Makes the next check due, because the ranges may have changed.
    pub(super) const fn hurry(&mut self, now: Instant) {
        self.next_at = now;
    }

    /// Checks and repairs the routes if a check is due. In ipvs mode, virtual addresses are local to the node and
    /// need no route.
    pub(super) fn turn(&mut self, mode: ProxyMode, network: &NetworkState, now: Instant) {
        if now < self.next_at {
            return;
        }
        self.next_at = now + CHECK_INTERVAL;
        let nothing = BTreeSet::<IpNet>::new();
        let ranges = match mode {
            ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Userspace => &network.service_cidrs,
            ProxyMode::Ipvs => &nothing,
        };
        match self.routes.follow(ranges) {
            Ok(changes) => {
                self.last_failure = None;
                if changes > 0 {
                    info!(changes, "the routes to the Service ranges have changed");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.last_failure.as_ref() != Some(&text) {
                    warn!(error = text, "the routes to the Service ranges could not be kept");
                }
                self.last_failure = Some(text);
            }
        }
    }

    /// Returns the step of a trace at which the agent's route leads to the destination of the packet; `None` if
    /// the agent keeps no such route.
    pub(super) fn step(&mut self, packet: &Packet) -> Option<TraceStep> {
        // Without the routes, the trace shows the other steps.
        let held = self.routes.held().unwrap_or_default();
        let range = held.into_iter().find(|range| range.contains(&packet.destination))?;
        let result = "the agent's route to the Service range: no other route leads there".to_owned();
        Some(TraceStep {
            place: format!("routing table {TABLE}"),
            rule: range.to_string(),
            result,
            odd: false,
        })
    }
}
