//! Trace of a packet through the backend's table as read back. Does no I/O.
//!
//! The rules of the chains are fixed and were compared with the wanted ones when they were read. So the path
//! through a correct chain is known, and the elements that its rules look up are in the mirror (copy in
//! memory).

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    primitives::net::IpFamily,
    program::{Destination, Frontend, Masquerade, Target},
    wire::trace::{End, VisibleSource},
};

use super::{
    element::{FrontendChain, Numbers, SetElement, Slot, place},
    listing,
    mirror::{FrontendElements, NftablesMirror},
    schema::{Chain, LookupType, NetworkSet, Pick, SetId, SetRole, Treatment, VerdictClass},
};
use crate::trace::{Recorder, Subject};

/// Traces a packet through the table. Records the matching rules and elements, and the possible outcomes, such as
/// an endpoint or a drop.
pub(super) fn trace(mirror: &NftablesMirror, table: &str, subject: &Subject<'_>) -> Recorder {
    let mut walk = TableWalk { mirror, table, subject, recorder: Recorder::default() };
    walk.begin();
    walk.recorder
}

struct TableWalk<'a> {
    mirror: &'a NftablesMirror,
    table: &'a str,
    subject: &'a Subject<'a>,
    recorder: Recorder,
}

impl<'a> TableWalk<'a> {
    fn begin(&mut self) {
        let structure = &self.mirror.structure;
        if !structure.table {
            self.recorder.odd(format!("table inet {}", self.table), "", "there is no such table");
            return self.recorder.end(End::Untouched);
        }
        if structure.foreign {
            let what = "it holds chains or sets that are not ours, or in another shape";
            self.recorder.odd(format!("table inet {}", self.table), "", what);
        }
        let base = if self.subject.is_from_node() { Chain::Output } else { Chain::Prerouting };
        if self.enter(base, "jump services") && self.enter(Chain::Services, "") {
            self.services();
        }
    }

    /// Returns true if a chain exists with the wanted rules. Otherwise records an unexpected step of the
    /// trace, which ends there.
    fn enter(&mut self, chain: Chain, rule: &str) -> bool {
        let at = self.chain(chain);
        match self.mirror.structure.chains.get(&chain) {
            Some(true) => {
                if !rule.is_empty() {
                    self.recorder.step(at, rule, "goes on");
                }
                true
            }
            Some(false) => {
                self.recorder.odd(at.clone(), "", "its rules are not those that were made");
                self.recorder.end(End::Unknown(format!("{at} has other rules")));
                false
            }
            None => {
                self.recorder.odd(at, "", "there is no such chain");
                self.recorder.end(End::Untouched);
                false
            }
        }
    }

    fn services(&mut self) {
        let at = self.chain(Chain::Services);
        if let Some((frontend, held)) = self.frontend() {
            match held.dispatch {
                Some(dispatch) => {
                    self.element(&SetElement::Dispatch(frontend, dispatch), "this frontend");
                    if self.numbered(&frontend, false, dispatch) {
                        return self.dispatch(frontend, held, dispatch);
                    }
                }
                None => {
                    let set = self.set(SetRole::Dispatch(place(&frontend)));
                    self.recorder.odd(set, listing::key(&frontend), "there is no element for this frontend");
                }
            }
        }
        let address = self.subject.packet.destination;
        if self.mirror.virtual_addresses.contains(address) {
            self.element(&SetElement::VirtualAddress(address), "a virtual address, and no port of it");
            if self.enter(Chain::Refuse, "reject") {
                self.recorder.end(End::Refused);
            }
            return;
        }
        if self.is_in(NetworkSet::ServiceRanges, address) {
            let set = self.set(SetRole::Networks(NetworkSet::ServiceRanges));
            self.recorder.step(
                set,
                address.to_string(),
                "an address of the Service range that no Service has",
            );
            if self.enter(Chain::Discard, "drop") {
                self.recorder.end(End::Dropped);
            }
            return;
        }
        self.recorder.step(at, "", "no element is for it");
        self.recorder.end(End::Untouched);
    }

    /// Returns the frontend that matches the packet, with its elements, even if some of them are missing.
    fn frontend(&self) -> Option<(Frontend, &'a FrontendElements)> {
        let (packet, mirror) = (self.subject.packet, self.mirror);
        let at = |destination| Frontend { destination, protocol: packet.protocol, ports: packet.port.into() };
        let held = |frontend: Frontend| mirror.frontends.get(&frontend).map(|held| (frontend, held.as_ref()));
        let exact = held(at(Destination::Address(packet.destination)));
        let has_way = |(_, held): &(Frontend, &FrontendElements)| held.dispatch.is_some();
        let ranges = || {
            let mut all = mirror.frontends.iter().filter(|(frontend, held)| {
                held.is_range
                    && frontend.destination == Destination::Address(packet.destination)
                    && frontend.protocol == packet.protocol
                    && frontend.ports.contains(packet.port)
            });
            all.next().map(|(frontend, held)| (*frontend, held.as_ref()))
        };
        let node_port = || {
            let answers =
                self.subject.is_at_node() && self.is_in(NetworkSet::NodePortAddresses, packet.destination);
            let family = IpFamily::of(packet.destination);
            if answers { held(at(Destination::AnyLocal(family))) } else { None }
        };
        let found = exact.filter(has_way).or_else(|| ranges().filter(has_way));
        found.or_else(|| node_port().filter(has_way)).or(exact).or_else(ranges).or_else(node_port)
    }

    /// Returns true if the dispatch number in an element of the frontend identifies an existing chain.
    /// Otherwise the packet continues as if the frontend did not exist.
    fn numbered(&mut self, frontend: &Frontend, is_by_source: bool, dispatch: FrontendChain) -> bool {
        let numbers = Numbers::of(frontend, is_by_source);
        let chain = SetElement::Chain(numbers, dispatch);
        if self.mirror.chains.contains(&(numbers, dispatch)) {
            self.element(&chain, "the chain of this number");
            return true;
        }
        let at = listing::place_of(numbers.set(), self.table);
        self.recorder.odd(at, listing::line(&chain), "no chain has this number");
        false
    }

    fn dispatch(&mut self, frontend: Frontend, held: &FrontendElements, dispatch: FrontendChain) {
        if !self.enter(dispatch.chain(), "") {
            return;
        }
        match dispatch {
            FrontendChain::Refuse => {
                self.recorder.step(self.chain(Chain::Refuse), "reject", "it is refused");
                self.recorder.end(End::Refused);
            }
            FrontendChain::Discard => {
                self.recorder.step(self.chain(Chain::Discard), "drop", "it is dropped");
                self.recorder.end(End::Dropped);
            }
            FrontendChain::Checked(place) => self.checked(frontend, held, place),
            FrontendChain::BySource(place) => self.by_source(frontend, held, place),
            FrontendChain::Forward(pick) => self.pick(frontend, held, pick),
        }
    }

    fn checked(&mut self, frontend: Frontend, held: &FrontendElements, place: LookupType) {
        let source = self.subject.packet.source;
        let within = held.allowed.iter().find(|span| span.first <= source && source <= span.last);
        if let Some(span) = within.filter(|span| span.first.is_ipv4() == source.is_ipv4()) {
            self.element(&SetElement::Allowed(frontend, *span), "the source may connect");
        } else if self.subject.is_from_node() {
            self.recorder.step(
                self.chain(Chain::Checked(place)),
                "fib saddr type local",
                "the node itself may connect",
            );
        } else {
            self.recorder.step(self.chain(Chain::Checked(place)), "drop", "the source may not connect");
            return self.recorder.end(End::Dropped);
        }
        if self.enter(Chain::BySource(place), "") {
            self.by_source(frontend, held, place);
        }
    }

    fn by_source(&mut self, frontend: Frontend, held: &FrontendElements, place: LookupType) {
        let class = if self.is_in(NetworkSet::Workloads, self.subject.packet.source) {
            VerdictClass::Workloads
        } else if self.subject.is_from_node() {
            VerdictClass::Node
        } else {
            VerdictClass::Elsewhere
        };
        match held.by_source.get(&class) {
            Some(dispatch) => {
                let is = match class {
                    VerdictClass::Workloads => "the source is a workload",
                    VerdictClass::Node => "the source is the node",
                    VerdictClass::Elsewhere => "the source is elsewhere",
                };
                self.element(&SetElement::DispatchFrom(frontend, class, *dispatch), is);
                if self.numbered(&frontend, true, *dispatch) {
                    self.dispatch(frontend, held, *dispatch);
                } else {
                    self.recorder.end(End::Dropped);
                }
            }
            None => {
                let set = self.set(SetRole::DispatchFrom(place, class));
                self.recorder.odd(set, listing::key(&frontend), "there is no element for this source");
                self.recorder.end(End::Dropped);
            }
        }
    }

    fn pick(&mut self, frontend: Frontend, held: &FrontendElements, pick: Pick) {
        let source = self.subject.packet.source;
        let is_marked = match pick.masquerade {
            Masquerade::Never => false,
            Masquerade::Always => true,
            Masquerade::OffCluster => self.is_in(NetworkSet::MasqueradeSources, source),
        };
        if is_marked {
            self.recorder.step(
                self.chain(Chain::Pick(pick)),
                "meta mark set",
                "the source is to be masqueraded",
            );
        }
        if pick.affinity_seconds.is_some() {
            let what = "a client that is remembered stays on its endpoint; this one is taken as new";
            self.recorder.step(self.set(SetRole::Affinity), "", what);
        }
        let held_slots = held.slots(pick.pool);
        let mut counts: BTreeMap<Option<Target>, (u32, u32)> = BTreeMap::new();
        for index in 0..pick.slots {
            let cell = usize::try_from(index).ok().and_then(|at| held_slots.get(at)).copied().flatten();
            counts.entry(cell).or_insert((index, 0)).1 += 1;
        }
        for (target, (index, count)) in counts {
            let share = format!("{count} of {} slots", pick.slots);
            match target {
                Some(target) => {
                    let held_id = held.affinity_targets.iter().find(|((pool, _), to)| {
                        *pool == pick.pool && **to == target && pick.affinity_seconds.is_some()
                    });
                    let slot = Slot { pool: pick.pool, index };
                    let element = held_id
                        .map_or(SetElement::Slot(frontend, slot, target), |((pool, id), _)| {
                            SetElement::AffinityTarget(frontend, *pool, *id, target)
                        });
                    self.element(&element, &share);
                    self.recorder.end(self.reached(pick.action, target));
                }
                None => {
                    let role = if pick.affinity_seconds.is_some() {
                        SetRole::AffinitySlots(pick.place)
                    } else {
                        SetRole::Endpoints(pick.place)
                    };
                    let key = format!("{} . {index}", listing::key(&frontend));
                    let set = self.set(role);
                    self.recorder.odd(set, key, format!("there is no endpoint for {share}: dropped"));
                    self.recorder.end(End::Dropped);
                }
            }
        }
        self.postrouting(is_marked);
    }

    fn reached(&self, action: Treatment, target: Target) -> End {
        let named = self.subject.packet.port;
        let reaches = |port| End::Reaches { address: target.address, port, sees: VisibleSource::Client };
        match action {
            Treatment::Redirect => End::Relayed(target.port.unwrap_or(named)),
            Treatment::Translate => reaches(target.port.unwrap_or(named)),
            Treatment::TranslateAddress => reaches(named),
        }
    }

    /// Records the endpoints reached so far again, each with the source address that the endpoint sees after
    /// masquerading.
    fn postrouting(&mut self, is_marked: bool) {
        let at = self.chain(Chain::Postrouting);
        let source = self.subject.packet.source;
        let is_right = self.mirror.structure.chains.get(&Chain::Postrouting) == Some(&true);
        for end in self.recorder.take_ends() {
            let end = match end {
                End::Reaches { address, port, .. } => {
                    if !is_right {
                        self.recorder.odd(at.clone(), "", "the chain is not there as it was made");
                        self.recorder.end(End::Unknown(format!("{at} is not as it was made")));
                        continue;
                    }
                    let is_itself = address == source && self.mirror.hairpins.contains(address);
                    if is_itself {
                        self.element(
                            &SetElement::Hairpin(address),
                            "an endpoint that reaches itself is masqueraded",
                        );
                    }
                    End::Reaches { address, port, sees: self.subject.seen(is_marked || is_itself, address) }
                }
                other
                @ (End::Relayed(_) | End::Refused | End::Dropped | End::Untouched | End::Unknown(_)) => other,
            };
            self.recorder.end(end);
        }
        if is_marked && is_right {
            self.recorder.step(at, "masquerade", "the endpoint sees the node");
        }
    }

    /// Returns true if an address lies within the networks of a set.
    fn is_in(&self, set: NetworkSet, address: IpAddr) -> bool {
        let edges = self.mirror.networks.iter().filter(|(of, edge)| {
            *of == set && edge.address.is_ipv4() == address.is_ipv4() && edge.address <= address
        });
        // Where one interval ends and another begins, the beginning counts.
        let last = edges.max_by_key(|(_, edge)| (edge.address, !edge.is_end));
        last.is_some_and(|(_, edge)| !edge.is_end)
    }

    fn element(&mut self, element: &SetElement, result: &str) {
        let set = element.set();
        let at = listing::place_of(set, self.table);
        self.recorder.step(at, listing::line(element), result);
    }

    fn chain(&self, chain: Chain) -> String {
        format!("chain inet {} {chain}", self.table)
    }

    fn set(&self, role: SetRole) -> String {
        let set = SetId::new(role, IpFamily::of(self.subject.packet.destination));
        listing::place_of(set, self.table)
    }
}
