//! Simulated control server of the ownership simulation: sends candidate orders, receives reports, and
//! records takeovers.

use std::net::IpAddr;

use node_agent::announce::machine::Phase;

use super::{Arrival, LINK_MS, World, addresses};

impl World {
    pub(super) fn control_hears(&self, node: usize) -> bool {
        self.control.runs && !self.sides[node] && self.nodes[node].owners.is_some()
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

    /// Processes a report in which the agent of node `from` states that it has taken over an address: makes
    /// this node the first candidate. Ignores the report if the node cannot reach the control server.
    pub(super) fn take_report(&mut self, from: usize, address: IpAddr) {
        if !self.control_hears(from) {
            return;
        }
        let owners = self.nodes[from].owners.as_ref().unwrap();
        let Some(entry) = owners.get(address) else { return };
        let says_owner = matches!(entry.ownership.phase(), Phase::Owner(_)) && !entry.ownership.is_leaving();
        let (epoch, mut candidates) = self.control.orders[&address].clone();
        let follows = entry.ownership.order().epoch == epoch;
        if says_owner && follows && candidates.first() != Some(&from) && candidates.contains(&from) {
            candidates.retain(|candidate| *candidate != from);
            candidates.insert(0, from);
            self.reorder(address, epoch + 1, candidates);
        }
    }

    pub(super) fn reorder(&mut self, address: IpAddr, epoch: u64, candidates: Vec<usize>) {
        self.control.orders.insert(address, (epoch, candidates.clone()));
        for node in 0..self.nodes.len() {
            if self.control_hears(node) {
                let life = self.nodes[node].life;
                let candidates = candidates.clone();
                self.push(LINK_MS, Arrival::Order { node, life, address, epoch, candidates });
            }
        }
    }
}
