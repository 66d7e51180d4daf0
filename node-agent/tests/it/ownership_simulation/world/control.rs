//! Simulated control server of the ownership simulation: sends candidate orders, receives reports, and
//! records takeovers.

use std::net::IpAddr;

use model::wire::report::AnnouncementRole;
use node_agent::announce::words;

use super::{Arrival, LEASE_MS, LINK_MS, Session, World, addresses};

impl World {
    pub(super) fn control_hears(&self, node: usize) -> bool {
        let is_running = self.nodes[node].owners.is_some() && self.nodes[node].paused.is_none();
        self.control.runs && (self.has_management_network || !self.sides[node]) && is_running
    }

    /// Records since when each node is silent, and schedules the end of its lease.
    pub(super) fn follow_leases(&mut self) {
        for node in 0..self.nodes.len() {
            if self.control_hears(node) {
                self.control.silent_since.remove(&node);
            } else if !self.control.silent_since.contains_key(&node) {
                self.control.silent_since.insert(node, self.now);
                self.push(LEASE_MS, Arrival::LeaseEnd);
            }
        }
    }

    /// Notifies each agent if its reports currently reach the control server or not.
    pub(super) fn tell_control(&mut self) {
        for node in 0..self.nodes.len() {
            let is_heard = self.control_hears(node);
            let (now, random) = (self.instant(), self.next_random());
            if let Some(owners) = &mut self.nodes[node].owners {
                owners.set_control(is_heard, now, random);
            }
            self.carry_out(node);
        }
    }

    pub(super) fn feed(&mut self, node: usize) {
        self.tell_control();
        self.follow_leases();
        if !self.control_hears(node) {
            return;
        }
        let life = self.nodes[node].life;
        for (address, (epoch, candidates)) in self.control.orders.clone() {
            self.push(LINK_MS, Arrival::Order { node, life, address, epoch, candidates });
        }
        self.rerank_without(node);
        self.report(node);
    }

    pub(super) fn report(&mut self, node: usize) {
        if self.control_hears(node) {
            for address in addresses() {
                self.push(5, Arrival::Report { from: node, address });
            }
        }
    }

    pub(super) fn report_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.report(node);
        }
    }

    /// Processes a report in which the agent of node `from` states that it has taken over an address: makes
    /// this node the first candidate if the takeover is confirmed. Ignores the report if the node cannot reach
    /// the control server.
    pub(super) fn take_report(&mut self, from: usize, address: IpAddr) {
        if !self.control_hears(from) || !self.claims(from, address) {
            return;
        }
        let (epoch, mut candidates) = self.control.orders[&address].clone();
        let owner = candidates[0];
        let is_other = |node: &usize| *node != owner && *node != from && !self.claims(*node, address);
        let voters: Vec<_> =
            candidates.iter().copied().filter(|node| is_other(node) && self.control_hears(*node)).collect();
        let sees = |voter: usize, node: usize| matches!(self.session(voter, node), Session::Up { .. });
        let is_accepted = match self.role(owner, address) {
            _ if self.control.silent_since.get(&owner).is_some_and(|since| self.now - since >= LEASE_MS) => {
                true
            }
            Some(AnnouncementRole::Standby) => true,
            _ if voters.iter().any(|voter| sees(*voter, owner)) => false,
            Some(AnnouncementRole::Held) => true,
            Some(AnnouncementRole::Owner) | None => {
                voters.iter().any(|voter| !sees(*voter, owner) && sees(*voter, from))
            }
        };
        if is_accepted {
            candidates.retain(|candidate| *candidate != from);
            candidates.insert(0, from);
            self.reorder(address, epoch + 1, candidates);
        }
    }

    /// Returns the role that a node reports under the current order.
    fn role(&self, node: usize, address: IpAddr) -> Option<AnnouncementRole> {
        let entry = self.nodes[node].owners.as_ref()?.get(address)?;
        let follows = entry.ownership.order().epoch == self.control.orders[&address].0;
        words::standing(&entry.ownership).filter(|_| follows).map(|(role, _)| role)
    }

    fn claims(&self, node: usize, address: IpAddr) -> bool {
        let candidates = &self.control.orders[&address].1;
        let is_leaving = self.nodes[node]
            .owners
            .as_ref()
            .and_then(|owners| owners.get(address))
            .is_none_or(|entry| entry.ownership.is_leaving());
        !is_leaving
            && self.role(node, address) == Some(AnnouncementRole::Owner)
            && candidates.first() != Some(&node)
            && candidates.contains(&node)
    }

    pub(super) fn reorder(&mut self, address: IpAddr, epoch: u64, candidates: Vec<usize>) {
        self.control.orders.insert(address, (epoch, candidates.clone()));
        for node in 0..self.nodes.len() {
            if self.control_hears(node) {
                let life = self.nodes[node].life;
                let candidates = candidates.clone();
                let delay = LINK_MS + self.next_random() % (self.order_jitter_ms + 1);
                self.push(delay, Arrival::Order { node, life, address, epoch, candidates });
            }
        }
    }
}
