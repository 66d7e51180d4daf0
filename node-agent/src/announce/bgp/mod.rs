//! Announces load balancer addresses to routers: decides which prefixes which peer is told, and has the speaker tell them.
//!
//! ```text
//!  batch ───────▶ follow ─────┐                    ┌─▶ Routers (the speaker, `crate::bgp`)
//!                             ├─▶ Plan ─▶ changes ─┤
//!  end of a pass ▶ programmed ┘                    └─▶ decided ──┐
//!                                       what was told ───────────┴─▶ shown, reported
//! ```
//! All of it happens on the loop's thread, between the passes over the kernel. What must not happen here: a prefix that is
//! announced while this node serves none of its addresses. It is withdrawn before the pass that takes the last one away, and
//! announced after the pass that brings the first one; and a router that kept routes of an earlier life of this agent hears
//! that the table is complete only when the kernel was verified once, so that it drops none of them too early.

pub mod decision;
pub mod endpoints;
pub mod plan;
pub mod show;
pub mod speaker;
pub(super) mod words;

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

/// Longest wait of the loop for routes to be withdrawn before it changes the kernel.
const WITHDRAW_TIME_MAX: Duration = Duration::from_secs(1);

/// Tells routers; said in our words, so that tests can stand in.
pub trait Routers: Send {
    /// Who this node is, and its peers.
    fn configure(&mut self, bgp: Option<&BgpState>);
    /// What peers are to be told otherwise than before.
    fn change(&mut self, changes: Vec<Change>);
    /// Whether the end of the table is kept from the peers.
    fn hold_end_of_rib(&mut self, is_held: bool);
    /// Returns when the kernel has these withdrawals for the peers, or when the time is over; says which of the two.
    fn wait_withdrawn(&mut self, withdrawn: &BTreeMap<Name, BTreeSet<IpNet>>, time_max: Duration) -> bool;
}

/// What is decided; a clone costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Decided {
    /// Who this node is, and its peers; nothing where it has none.
    pub bgp: Option<Arc<BgpState>>,
    /// What becomes of each prefix.
    pub decisions: Decisions,
}

/// What the agent holds has changed, and the kernel has not followed yet.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// The BGP of this node, if it is another.
    pub bgp: Option<Option<Arc<BgpState>>>,
    /// The addresses that are new, different or gone.
    pub addresses: Vec<(IpAddr, Option<Arc<AddressState>>)>,
    /// The Services that the kernel will not hold after the next pass.
    pub closing: BTreeSet<ServiceKey>,
    /// The Services that the next pass will change, with the endpoints that they will have then.
    pub changing: BTreeMap<ServiceKey, Endpoints>,
}

/// Decides, and has it told.
pub struct Routing {
    plan: Plan,
    routers: Box<dyn Routers>,
    decided: watch::Sender<Decided>,
    is_end_held: bool,
}

impl Routing {
    /// Announces nothing yet.
    #[must_use]
    pub fn new(mut routers: Box<dyn Routers>) -> Self {
        routers.hold_end_of_rib(true);
        let (decided, _) = watch::channel(Decided::default());
        Self { plan: Plan::default(), routers, decided, is_end_held: true }
    }

    /// What is decided.
    #[must_use]
    pub fn decided(&self) -> watch::Receiver<Decided> {
        self.decided.subscribe()
    }

    /// Takes changes of the state; returns when what they take away is withdrawn.
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
            warn!("routes could not be withdrawn in time; the kernel is changed all the same");
        }
    }

    /// Takes how Services came out of a pass. `is_everything`: it was one over all of them.
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

    /// Has told what was decided, and says what is withdrawn.
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
