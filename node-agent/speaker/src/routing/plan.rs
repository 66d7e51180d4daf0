//! Prefixes that this node advertises to each peer, and the reasons why others are withheld. An obstacle is
//! the reason why this node does not serve an address. After a change, only the affected prefixes are
//! evaluated again. Does no I/O.
//!
//! ```text
//!  Services in the kernel, endpoints ──▶ obstacle of each address ─┐
//!  Advertisements, aggregation length ─▶ prefixes of each address ─┴─▶ members of each prefix ──▶ decision ──▶ changes
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ::bgp::export::Route;
use base::Gate;
use imbl::OrdMap;
use ipnet::IpNet;
use model::{
    bgp::settings::{BgpAdvertisement, BgpState},
    kinds::resource::ServiceKey,
    primitives::{name::Name, net::IpFamily},
    wire::feed::AddressState,
};

use super::{
    decision::{self, Decision, Member, Members},
    endpoints::{Endpoints, Standing},
};

/// Routing decisions by prefix; clones share the data.
pub type Decisions = OrdMap<IpNet, Arc<Decision>>;
/// Route change: a peer, a prefix, and the route to advertise to the peer; `None` withdraws the route.
pub type Change = (Name, IpNet, Option<Route>);

/// Load balancer addresses and prefixes of one node, with the decision about each prefix.
#[derive(Debug, Default)]
pub struct Plan {
    bgp: Option<Arc<BgpState>>,
    addresses: BTreeMap<IpAddr, Entry>,
    by_service: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    standings: BTreeMap<ServiceKey, Standing>,
    prefixes: BTreeMap<IpNet, Members>,
    touched: BTreeSet<IpNet>,
    decisions: Decisions,
    looked_at: u64,
}

/// State of one load balancer address.
#[derive(Debug)]
struct Entry {
    state: Arc<AddressState>,
    /// Services that the kernel serves, but not yet at this address. They count as served after the next
    /// kernel update.
    awaited: BTreeSet<ServiceKey>,
    /// Reason why this node does not serve the address; `None` if it serves the address.
    obstacle: Option<String>,
    /// Prefix in which the address is advertised, by the name of the Advertisement.
    prefixes: BTreeMap<Name, IpNet>,
}

impl Plan {
    /// Returns the routing decisions as of the last [`Self::take_changes`].
    #[must_use]
    pub const fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Returns the number of prefix evaluations. Tests use it to measure the cost of a change.
    #[must_use]
    pub const fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Sets the BGP configuration of this node, which affects all prefixes.
    pub fn set_bgp(&mut self, bgp: Option<Arc<BgpState>>) {
        let before = std::mem::replace(&mut self.bgp, bgp);
        let blocks = before.iter().chain(&self.bgp).flat_map(|bgp| bgp.blocks.keys());
        self.touched.extend(blocks);
        for address in self.addresses.keys().copied().collect::<Vec<_>>() {
            self.place(address);
        }
        // The attributes may change even if the members do not.
        self.touched.extend(self.prefixes.keys());
    }

    /// Adds or updates a load balancer address. Services that are new for the address and in `changing` count
    /// as served only after the next kernel update.
    pub fn set_address(&mut self, state: Arc<AddressState>, changing: &BTreeMap<ServiceKey, Endpoints>) {
        let address = state.address;
        let before = self.addresses.get(&address);
        let had = |service: &&ServiceKey| before.is_some_and(|entry| entry.state.services.contains(*service));
        let added = state.services.iter().filter(|service| !had(service));
        let mut awaited: BTreeSet<_> =
            added.filter(|service| changing.contains_key(*service)).cloned().collect();
        let still = before.into_iter().flat_map(|entry| &entry.awaited);
        awaited.extend(still.filter(|service| state.services.contains(*service)).cloned());
        self.unlink(address);
        for service in &state.services {
            self.by_service.entry(service.clone()).or_default().insert(address);
        }
        match self.addresses.get_mut(&address) {
            Some(entry) => (entry.state, entry.awaited) = (state, awaited),
            None => {
                let entry = Entry { state, awaited, obstacle: None, prefixes: BTreeMap::new() };
                self.addresses.insert(address, entry);
            }
        }
        self.place(address);
    }

    /// Removes a load balancer address from its prefixes.
    pub fn remove_address(&mut self, address: IpAddr) {
        self.unlink(address);
        if let Some(entry) = self.addresses.remove(&address) {
            self.leave(address, &entry.prefixes);
        }
    }

    /// Applies the conditions for announcing Services after a kernel update; `None` if the kernel is about to
    /// lose the Service.
    pub fn set_standings(&mut self, standings: impl IntoIterator<Item = (ServiceKey, Option<Standing>)>) {
        for (service, standing) in standings {
            match standing {
                Some(standing) => self.standings.insert(service.clone(), standing),
                None => self.standings.remove(&service),
            };
            for address in self.by_service.get(&service).cloned().unwrap_or_default() {
                if let Some(entry) = self.addresses.get_mut(&address) {
                    entry.awaited.remove(&service);
                }
                self.place(address);
            }
        }
    }

    /// Closes at once those address families of a Service that have no serving endpoint in `next`. Families
    /// that gain endpoints stay closed until the kernel update.
    pub fn narrow(&mut self, service: &ServiceKey, next: &Endpoints) {
        let Some(standing) = self.standings.get_mut(service) else { return };
        let narrowed = standing.endpoints.narrowed(next);
        if narrowed != standing.endpoints {
            standing.endpoints = narrowed;
            for address in self.by_service.get(service).cloned().unwrap_or_default() {
                self.place(address);
            }
        }
    }

    /// Evaluates the affected prefixes again and returns the resulting route changes for peers.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for prefix in std::mem::take(&mut self.touched) {
            self.looked_at += 1;
            let before = self.decisions.get(&prefix).cloned();
            let next = self.decide(&prefix);
            let route = |decision: Option<&Decision>, peer: &Name| {
                decision.and_then(|decision| decision.route(peer)).cloned()
            };
            // Includes removed peers: they may return before their removal is noticed.
            let decisions = [before.as_deref(), next.as_ref()];
            let peers: BTreeSet<_> = decisions.into_iter().flatten().flat_map(|it| it.peers.keys()).collect();
            for peer in peers {
                let wanted = route(next.as_ref(), peer);
                if route(before.as_deref(), peer) != wanted {
                    changes.push((peer.clone(), prefix, wanted));
                }
            }
            match next {
                Some(next) if before.as_deref() == Some(&next) => {}
                Some(next) => {
                    self.decisions.insert(prefix, Arc::new(next));
                }
                None => {
                    self.decisions.remove(&prefix);
                }
            }
        }
        changes
    }

    fn decide(&self, prefix: &IpNet) -> Option<Decision> {
        let bgp = self.bgp.as_deref()?;
        let none = Members::new();
        let members = match self.prefixes.get(prefix) {
            Some(members) => members,
            None if bgp.blocks.contains_key(prefix) => &none,
            None => return None,
        };
        let obstacle = |address: &IpAddr| self.addresses.get(address)?.obstacle.as_deref();
        Some(decision::decide(prefix, members, bgp, obstacle))
    }

    /// Updates the prefixes of an address, and the reason why it is not served, after a change.
    fn place(&mut self, address: IpAddr) {
        let Some(entry) = self.addresses.get(&address) else { return };
        let obstacle = self.obstacle(entry);
        let prefixes = prefixes(&entry.state, self.bgp.as_deref());
        if obstacle == entry.obstacle && prefixes == entry.prefixes {
            return;
        }
        let before = entry.prefixes.clone();
        self.leave(address, &before);
        let member = if obstacle.is_none() { Member::Open } else { Member::Closed };
        for (advertisement, prefix) in &prefixes {
            let members = self.prefixes.entry(*prefix).or_default();
            members.entry(advertisement.clone()).or_default().insert(address, member);
            self.touched.insert(*prefix);
        }
        if let Some(entry) = self.addresses.get_mut(&address) {
            (entry.obstacle, entry.prefixes) = (obstacle, prefixes);
        }
    }

    fn leave(&mut self, address: IpAddr, prefixes: &BTreeMap<Name, IpNet>) {
        for (advertisement, prefix) in prefixes {
            self.touched.insert(*prefix);
            let Some(members) = self.prefixes.get_mut(prefix) else { continue };
            if let Some(group) = members.get_mut(advertisement) {
                group.remove(address);
                if group.is_empty() {
                    members.remove(advertisement);
                }
            }
            if members.is_empty() {
                self.prefixes.remove(prefix);
            }
        }
    }

    fn unlink(&mut self, address: IpAddr) {
        let Some(entry) = self.addresses.get(&address) else { return };
        for service in &entry.state.services {
            if let Some(addresses) = self.by_service.get_mut(service) {
                addresses.remove(&address);
                if addresses.is_empty() {
                    self.by_service.remove(service);
                }
            }
        }
    }

    /// Returns the reason why this node does not serve an address, or `None`. An address is served if all its
    /// Services are in the kernel and at least one of them has a serving endpoint.
    fn obstacle(&self, entry: &Entry) -> Option<String> {
        let family = IpFamily::of(entry.state.address);
        let mut unanswered = None;
        let mut is_answered = false;
        for service in &entry.state.services {
            let standing = self.standings.get(service).filter(|_| !entry.awaited.contains(service));
            let Some(Standing { programmed, endpoints }) = standing else {
                return Some(format!("Service {service} has not been programmed here yet"));
            };
            if let Gate::Closed(why) = programmed {
                return Some(format!("Service {service} is not programmed here: {why}"));
            }
            match endpoints.get(family) {
                Gate::Open => is_answered = true,
                Gate::Closed(why) => {
                    unanswered.get_or_insert_with(|| format!("Service {service}: {why}"));
                }
            }
        }
        if is_answered { None } else { Some(unanswered.unwrap_or_else(|| "no Service has it".to_owned())) }
    }
}

/// Returns the prefix of an address for each Advertisement that selects the address on this node.
fn prefixes(state: &AddressState, bgp: Option<&BgpState>) -> BTreeMap<Name, IpNet> {
    let Some(bgp) = bgp else { return BTreeMap::new() };
    let named = state.announcement.advertisements.iter();
    let carried_out = named.filter_map(|name| Some((name, bgp.advertisements.get(name)?)));
    carried_out.map(|(name, carried_out)| (name.clone(), aggregate(state.address, carried_out))).collect()
}

fn aggregate(address: IpAddr, advertisement: &BgpAdvertisement) -> IpNet {
    let length = match address {
        IpAddr::V4(_) => advertisement.aggregation_length,
        IpAddr::V6(_) => advertisement.aggregation_length_v6,
    };
    // An invalid length aggregates nothing.
    IpNet::new(address, length).unwrap_or_else(|_| IpNet::from(address)).trunc()
}
