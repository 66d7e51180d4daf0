//! Production implementation of [`Routers`], which passes routes to the BGP speaker.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use model::{bgp::settings::BgpState, primitives::name::Name};
use tokio::{runtime::Handle, sync::watch, time::timeout};

use super::{Routers, plan::Change};
use crate::peering::{NeighborsStatus, NeighbourKey, Speaker};

/// Time for which the agent does not wait for a neighbor after a withdrawal to it was not sent in time.
/// Otherwise, a stuck neighbor would delay every change until its session ends.
const LATE_TIME: Duration = Duration::from_secs(10);

/// Implementation of [`Routers`] by the BGP speaker of this node.
pub struct Speakers {
    speaker: Arc<Speaker>,
    shown: watch::Receiver<NeighborsStatus>,
    runtime: Handle,
    /// Neighbors that missed the deadline of a withdrawal, with the time until which the agent does not wait
    /// for them.
    late: BTreeMap<NeighbourKey, Instant>,
}

impl Speakers {
    /// Wraps a speaker. Must be called inside a tokio runtime; the methods of the result must be called
    /// outside of one, because they block.
    #[must_use]
    pub fn new(speaker: Arc<Speaker>) -> Self {
        let shown = speaker.shown();
        Self { speaker, shown, runtime: Handle::current(), late: BTreeMap::new() }
    }
}

impl Routers for Speakers {
    fn configure(&mut self, bgp: Option<&BgpState>) {
        self.speaker.configure(bgp);
    }

    fn change(&mut self, changes: Vec<Change>) {
        self.speaker.change(changes);
    }

    fn hold_end_of_rib(&mut self, is_held: bool) {
        self.speaker.hold_end_of_rib(is_held);
    }

    fn wait_withdrawn(&mut self, withdrawn: &BTreeMap<Name, BTreeSet<IpNet>>, time_max: Duration) -> bool {
        let Self { speaker: _, shown, runtime, late } = self;
        let now = Instant::now();
        late.retain(|_, until| *until > now);
        let is_done = |shown: &NeighborsStatus| ignorant(shown, withdrawn).all(|key| late.contains_key(key));
        let waited = runtime.block_on(async { timeout(time_max, shown.wait_for(is_done)).await.map(drop) });
        if waited.is_err() {
            let until = Instant::now() + LATE_TIME;
            late.extend(ignorant(&shown.borrow(), withdrawn).map(|key| (key.clone(), until)));
        }
        waited.is_ok()
    }
}

/// Returns the neighbors to which the withdrawal of at least one route in `withdrawn` has not been sent yet.
fn ignorant<'a>(
    shown: &'a NeighborsStatus,
    withdrawn: &'a BTreeMap<Name, BTreeSet<IpNet>>,
) -> impl Iterator<Item = &'a NeighbourKey> {
    let knows = move |(key, neighbour): &(&NeighbourKey, &crate::peering::NeighborStatus)| {
        let gone = withdrawn.get(&key.peer).into_iter().flatten();
        // The neighbor may have a route of another node instead, which this node reflects.
        let is_own = |prefix: &&IpNet| neighbour.told.get(*prefix).is_some_and(|told| !told.is_reflected());
        let mut known = gone.filter(is_own);
        known.next().is_some()
    };
    shown.neighbours.iter().filter(knows).map(|(key, _)| key)
}
