//! BGP announcement of load balancer addresses: decides which prefixes each peer receives and passes them to
//! the speaker.
//!
//! ```text
//!  batch ───────▶ follow ─────┐                    ┌─▶ Routers (the speaker, `crate::peering`)
//!                             ├─▶ Plan ─▶ changes ─┤
//!  end of a pass ▶ programmed ┘                    └─▶ decided ──┐
//!                                       Adj-RIB-Out ─────────────┴─▶ status, report
//! ```
//! A batch contains state changes from the control server; a pass is an update of the kernel. The agent calls
//! [`Routing::follow`] before each pass and [`Routing::programmed`] after it. [`Routing::decided`] publishes
//! the decisions about all prefixes. Everything runs on the agent's thread, between the passes. Invariant: a
//! prefix is never advertised while this node serves none of its addresses. The prefix is withdrawn before
//! the pass that removes the last address and advertised after the pass that adds the first one. After a
//! restart of the agent the End-of-RIB marker (RFC 4724) is sent only once the kernel has been verified, so
//! that neighbors do not drop stale routes too early.

pub mod decision;
pub mod endpoints;
pub mod plan;
pub mod show;
pub mod speaker;
pub mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use model::{
    bgp::settings::BgpState, kinds::resource::ServiceKey, primitives::name::Name, wire::feed::AddressState,
};
use tokio::sync::watch;
use tracing::{info, warn};

use self::{
    endpoints::{Endpoints, Standing},
    plan::{Change, Decisions, Plan},
};

/// Maximum time for which the agent waits until withdrawals have been sent, before it changes the kernel.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(1);

/// Interface to the BGP speaker. A trait, so that tests can replace the speaker.
pub trait Routers: Send {
    /// Sets the BGP configuration of this node and its peers.
    fn configure(&mut self, bgp: Option<&BgpState>);
    /// Passes changed routes for peers to the speaker.
    fn change(&mut self, changes: Vec<Change>);
    /// Delays the End-of-RIB marker to all neighbors while `is_held` is true.
    fn hold_end_of_rib(&mut self, is_held: bool);
    /// Waits until the kernel has accepted the messages that withdraw these routes. Returns false if
    /// `time_max` elapses first.
    fn wait_withdrawn(&mut self, withdrawn: &BTreeMap<Name, BTreeSet<IpNet>>, time_max: Duration) -> bool;
}

/// Routing decisions, and the BGP configuration on which they are based; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RoutingDecisions {
    /// BGP configuration of this node and its peers; `None` without peers.
    pub bgp: Option<Arc<BgpState>>,
    /// Routing decisions by prefix.
    pub decisions: Decisions,
}

/// State change that routing must process before the agent writes the change to the kernel.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// New BGP configuration of this node; `None` if unchanged, `Some(None)` if removed.
    pub bgp: Option<Option<Arc<BgpState>>>,
    /// Added, changed and removed load balancer addresses; `None` marks a removed address.
    pub addresses: Vec<(IpAddr, Option<Arc<AddressState>>)>,
    /// Services that the kernel will no longer serve after its next update.
    pub closing: BTreeSet<ServiceKey>,
    /// Services that the next kernel update changes, with the availability of their endpoints after the
    /// update.
    pub changing: BTreeMap<ServiceKey, Endpoints>,
}

/// Routing of one node: derives the prefixes for each peer and passes changes to the speaker.
pub struct Routing {
    plan: Plan,
    routers: Box<dyn Routers>,
    decided: watch::Sender<RoutingDecisions>,
    is_end_held: bool,
}

impl Routing {
    /// Creates routing without prefixes or peers. Changes are passed to `routers`.
    #[must_use]
    pub fn new(mut routers: Box<dyn Routers>) -> Self {
        routers.hold_end_of_rib(true);
        let (decided, _) = watch::channel(RoutingDecisions::default());
        Self { plan: Plan::default(), routers, decided, is_end_held: true }
    }

    /// Returns a receiver of the routing decisions.
    #[must_use]
    pub fn decided(&self) -> watch::Receiver<RoutingDecisions> {
        self.decided.subscribe()
    }

    /// Applies state changes. Returns when the routes that they remove have been withdrawn, or after one
    /// second.
    pub fn follow(&mut self, following: Following) {
        let Following { bgp, addresses, closing, changing } = following;
        self.plan.set_standings(closing.into_iter().map(|service| (service, None)));
        for (service, endpoints) in &changing {
            self.plan.narrow(service, endpoints);
        }
        for (address, state) in addresses {
            match state {
                Some(state) => self.plan.set_address(state, &changing),
                None => self.plan.remove_address(address),
            }
        }
        let bgp_before = self.decided.borrow().bgp.clone();
        let bgp = bgp.unwrap_or(bgp_before);
        self.set_bgp(bgp);
        let withdrawn = self.carry_out();
        if !withdrawn.is_empty() && !self.routers.wait_withdrawn(&withdrawn, WITHDRAW_TIME_MAX) {
            warn!("routes were not withdrawn in time; the kernel is changed anyway");
        }
    }

    /// Applies the result of a kernel update: `standings` contains the updated Services, each with the
    /// conditions for announcing its addresses. `is_everything` is true if the update covered all Services.
    pub fn programmed(&mut self, standings: Vec<(ServiceKey, Standing)>, is_everything: bool) {
        let standings = standings.into_iter().map(|(service, standing)| (service, Some(standing)));
        self.plan.set_standings(standings);
        self.carry_out();
        if is_everything && std::mem::take(&mut self.is_end_held) {
            self.routers.hold_end_of_rib(false);
        }
    }

    fn set_bgp(&mut self, bgp: Option<Arc<BgpState>>) {
        if self.decided.borrow().bgp == bgp {
            return;
        }
        self.routers.configure(bgp.as_deref());
        self.plan.set_bgp(bgp.clone());
        self.decided.send_modify(|decided| decided.bgp = bgp);
    }

    /// Passes changed decisions to the speaker and returns the withdrawn prefixes.
    fn carry_out(&mut self) -> BTreeMap<Name, BTreeSet<IpNet>> {
        let changes = self.plan.take_changes();
        let mut withdrawn: BTreeMap<Name, BTreeSet<IpNet>> = BTreeMap::new();
        let mut announced = BTreeSet::new();
        for (peer, prefix, route) in &changes {
            if route.is_none() {
                withdrawn.entry(peer.clone()).or_default().insert(*prefix);
            } else {
                announced.insert(*prefix);
            }
        }
        let gone: BTreeSet<_> =
            withdrawn.values().flatten().filter(|prefix| !announced.contains(*prefix)).collect();
        for prefix in announced {
            info!(%prefix, "announcing");
        }
        for prefix in gone {
            let decision = self.plan.decisions().get(prefix);
            let reason = decision.and_then(|decision| decision.withheld.as_deref());
            info!(%prefix, reason = reason.unwrap_or("it is not announced to some peers any longer"), "withdrawn");
        }
        if !changes.is_empty() {
            self.routers.change(changes);
        }
        let decisions = self.plan.decisions();
        self.decided.send_if_modified(|decided| {
            let is_other = !decided.decisions.ptr_eq(decisions);
            if is_other {
                decided.decisions.clone_from(decisions);
            }
            is_other
        });
        withdrawn
    }
}
