//! Events of the ownership simulation: failures, pauses, partitions, returns, and changes by operators.

use node_agent::announce::{machine::Liveness, owners::Owners};

use super::{Arrival, DETECTION_MS, Session, World, addresses, name, owned};

impl World {
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].owners = None;
        self.nodes[node].life += 1;
        self.nodes[node].leaving.clear();
        self.nodes[node].paused = None;
        self.follow_leases();
    }

    /// Lets the control server reach all nodes during partitions.
    pub(crate) fn separate_management(&mut self) {
        self.has_management_network = true;
    }

    /// Delays each order on the way to each node by a random time of at most `ms` milliseconds.
    pub(crate) fn delay_orders(&mut self, ms: u64) {
        self.order_jitter_ms = ms;
    }

    /// Stops the process of a node without its end. The kernel of the node keeps forwarding packets.
    pub(crate) fn pause(&mut self, node: usize) {
        if self.nodes[node].owners.is_some() && self.nodes[node].paused.is_none() {
            self.nodes[node].paused = Some(Vec::new());
            self.nodes[node].paused_at = self.now;
            self.follow_leases();
        }
    }

    pub(crate) fn resume(&mut self, node: usize) {
        let Some(arrivals) = self.nodes[node].paused.take() else { return };
        let (now, random) = (self.instant(), self.next_random());
        let was_noticed = self.now - self.nodes[node].paused_at > DETECTION_MS;
        if let Some(owners) = self.nodes[node].owners.as_mut().filter(|_| was_noticed) {
            owners.resume(now, random);
        }
        self.carry_out(node);
        for arrival in arrivals {
            self.arrive(arrival);
        }
        if was_noticed {
            // The packets of the others report their sessions as down.
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                self.nodes[node].sessions.insert(other, Session::Down { reached_at: None });
                self.set_liveness(node, other, Liveness::Down);
            }
        }
        self.feed(node);
    }

    pub(crate) fn resume_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.resume(node);
        }
    }

    /// Moves an address to a candidate on request.
    pub(crate) fn move_first_to(&mut self, node: usize) {
        let (epoch, mut candidates) = self.control.orders[&addresses()[0]].clone();
        candidates.retain(|candidate| *candidate != node);
        candidates.insert(0, node);
        self.reorder(addresses()[0], epoch + 1, candidates);
    }

    pub(crate) fn first_in_order(&self) -> usize {
        self.control.orders[&addresses()[0]].1[0]
    }

    /// Returns the number of times since the last call that an announcement of the first address moved the client.
    pub(crate) fn take_moves_of_first(&mut self) -> u64 {
        std::mem::take(&mut self.client_moves)
    }

    /// Returns the node to which the client sends packets for the first address.
    pub(crate) fn client_at(&self) -> usize {
        self.client[&addresses()[0]]
    }

    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].owners.is_some() {
            return;
        }
        self.nodes[node].life += 1;
        self.nodes[node].sessions.clear();
        self.nodes[node].bursts.clear();
        self.nodes[node].owners = Some(Owners::new(name(node)));
        for (address, (epoch, candidates)) in self.nodes[node].journal.clone() {
            self.order(node, address, epoch, &candidates, true);
        }
        self.set_gate(node);
        self.feed(node);
    }

    pub(crate) fn partition(&mut self, side: u8) {
        self.sides = (0..self.nodes.len()).map(|node| side & (1 << node) != 0).collect();
        for node in 0..self.nodes.len() {
            self.feed(node);
        }
        self.follow_leases();
    }

    pub(crate) fn stop_control(&mut self) {
        self.control.runs = false;
        self.tell_control();
    }

    pub(crate) fn start_control(&mut self) {
        if !std::mem::replace(&mut self.control.runs, true) {
            self.control.silent_since.clear();
            self.follow_leases();
            for node in 0..self.nodes.len() {
                self.feed(node);
                self.report(node);
            }
        }
    }

    pub(crate) fn drain(&mut self, node: usize) {
        if !self.control.runs {
            return;
        }
        if !self.control.drained.remove(&node) {
            self.control.drained.insert(node);
        }
        for address in addresses() {
            let (epoch, mut candidates) = self.control.orders[&address].clone();
            candidates.retain(|candidate| *candidate != node);
            if !self.control.drained.contains(&node) {
                candidates.push(node);
            }
            self.reorder(address, epoch + 1, candidates);
        }
    }

    pub(crate) fn hand_over(&mut self, node: usize) {
        let Some(owners) = &self.nodes[node].owners else { return };
        self.nodes[node].leaving = owned(owners);
        for other in 0..self.nodes.len() {
            if other != node && self.reaches(node, other) {
                self.set_liveness(other, node, Liveness::HandedOver);
                self.nodes[other].sessions.insert(node, Session::Down { reached_at: None });
            }
        }
        let life = self.nodes[node].life;
        self.push(2000, Arrival::Ended { node, life });
    }

    pub(crate) fn toggle_gate(&mut self, node: usize) {
        self.nodes[node].is_open = !self.nodes[node].is_open;
        self.set_gate(node);
    }
}
