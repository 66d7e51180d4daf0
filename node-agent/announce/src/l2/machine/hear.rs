//! Processing of received frames: replies to requests, and detection of other stations that announce an
//! address.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::links::Mac;
use model::primitives::net::IpFamily;

use super::{DropReason, L2Conflict, L2Output, LATE_TIME, Machine, frames};
use crate::l2::wire::{
    self, Advertisement, Arp, Frame, Operation, Packet, Solicitation, solicited_node_group,
};

/// Time within which conflicts with the same station on the same interface are reported only once.
const TOLD_TIME: Duration = Duration::from_secs(1);
/// Maximum number of stations reported as conflicts for one address within [`TOLD_TIME`].
const TOLD_MAX: usize = 8;

impl Machine {
    /// Processes a frame that the kernel received on the interface with this index `age` ago: replies to requests,
    /// unless they are older than [`LATE_TIME`], and reports conflicts.
    pub fn receive(&mut self, index: u32, bytes: &[u8], age: Duration, now: Instant) {
        let Some(port) = self.ports.get_mut(&index) else { return };
        port.counters.received += 1;
        let mac = port.mac;
        let heard = match wire::parse(bytes) {
            Ok(frame) if frame.destination != mac && frame.destination.is_unicast() => {
                Err(DropReason::NotOurs)
            }
            Ok(frame) if age > LATE_TIME && is_request(&frame) => Err(DropReason::Late),
            Ok(frame) => self.hear(index, &frame, now),
            Err(reason) => Err(DropReason::Unreadable(reason)),
        };
        if let (Err(reason), Some(port)) = (heard, self.ports.get_mut(&index)) {
            port.counters.drop(reason);
        }
    }

    fn hear(&mut self, index: u32, frame: &Frame, now: Instant) -> Result<(), DropReason> {
        let speaker = match &frame.packet {
            Packet::Arp(arp) => arp.sender_mac,
            Packet::Solicitation(solicitation) => solicitation.source_mac.unwrap_or(frame.source),
            Packet::Advertisement(advertisement) => advertisement.target_mac.unwrap_or(frame.source),
        };
        if self.own_macs.contains(&speaker) || self.own_macs.contains(&frame.source) {
            return Err(DropReason::Own);
        }
        match &frame.packet {
            Packet::Arp(arp) => self.hear_arp(index, arp, now),
            Packet::Solicitation(solicitation) => self.hear_solicitation(index, frame, solicitation, now),
            Packet::Advertisement(Advertisement { target, .. }) => {
                self.claimed(IpAddr::V6(*target), speaker, index, now)
            }
        }
    }

    /// Processes an ARP packet. Both requests and replies announce the sender address for the sending station
    /// (RFC 5227 §2.4).
    fn hear_arp(&mut self, index: u32, arp: &Arp, now: Instant) -> Result<(), DropReason> {
        let is_claim = self.claimed(IpAddr::V4(arp.sender), arp.sender_mac, index, now).is_ok();
        if arp.operation == Operation::Request && arp.target != arp.sender {
            let asked = self.asked(IpAddr::V4(arp.target), arp.sender_mac, index, now);
            if let Ok(mac) = asked {
                self.reply(IpAddr::V4(arp.target), index, &frames::arp_reply(arp, mac));
                return Ok(());
            }
            return if is_claim { Ok(()) } else { asked.map(|_| ()) };
        }
        if is_claim { Ok(()) } else { Err(DropReason::NotOurs) }
    }

    fn hear_solicitation(
        &mut self,
        index: u32,
        frame: &Frame,
        solicitation: &Solicitation,
        now: Instant,
    ) -> Result<(), DropReason> {
        let Solicitation { source, destination, target, source_mac } = solicitation;
        let station = source_mac.unwrap_or(frame.source);
        let is_claim = self.claimed(IpAddr::V6(*source), station, index, now).is_ok();
        if source == target || (destination != target && *destination != solicited_node_group(*target)) {
            return if is_claim { Ok(()) } else { Err(DropReason::NotOurs) };
        }
        match self.asked(IpAddr::V6(*target), station, index, now) {
            Ok(mac) => {
                let reply = frames::neighbor_reply(solicitation, frame.source, mac);
                self.reply(IpAddr::V6(*target), index, &reply);
                Ok(())
            }
            Err(_) if is_claim => Ok(()),
            Err(reason) => Err(reason),
        }
    }

    /// Returns the MAC address with which to reply to a request of `station`, or the reason why no reply is
    /// sent.
    fn asked(&mut self, address: IpAddr, station: Mac, index: u32, now: Instant) -> Result<Mac, DropReason> {
        let place = self.held.get(&address).and_then(|held| held.places.get(&index));
        let port = self.ports.get(&index).filter(|_| matches!(place, Some(Some(_))));
        let mac = port.ok_or(DropReason::NotOurs)?.mac;
        if self.replies.admits(station, address, now) { Ok(mac) } else { Err(DropReason::Flood) }
    }

    fn reply(&mut self, address: IpAddr, index: u32, frame: &Frame) {
        if let Some(held) = self.held.get_mut(&address) {
            held.counters.replies += 1;
        }
        if let Some(port) = self.ports.get_mut(&index) {
            port.counters.replies += 1;
        }
        self.outputs.push(L2Output::Send { index, family: IpFamily::of(address), frame: frame.render() });
    }

    /// Processes an announcement of an address by another station: reports a conflict and ends probes. The
    /// announcement is ignored unless this node announces, watches or probes the address on the interface.
    fn claimed(&mut self, address: IpAddr, mac: Mac, index: u32, now: Instant) -> Result<(), DropReason> {
        if address.is_unspecified() {
            return Err(DropReason::NotOurs);
        }
        let interface = self.ports.get(&index).map(|port| port.name.clone()).ok_or(DropReason::NotOurs)?;
        let is_probed = self.answer_probes(address, mac, index, &interface);
        let held = self.held.get_mut(&address).filter(|held| held.places.contains_key(&index));
        let Some(held) = held else {
            return if is_probed { Ok(()) } else { Err(DropReason::NotOurs) };
        };
        let (since, told) = &mut held.told;
        if since.is_none_or(|since| now.saturating_duration_since(since) >= TOLD_TIME) {
            *since = Some(now);
            told.clear();
        }
        if told.len() < TOLD_MAX && told.insert((mac, index)) {
            self.outputs.push(L2Output::Conflict(L2Conflict { address, mac, interface }));
        }
        Ok(())
    }
}

/// Returns true if a frame requests the owner of an address, and does not announce one.
fn is_request(frame: &Frame) -> bool {
    match &frame.packet {
        Packet::Arp(arp) => arp.operation == Operation::Request && arp.target != arp.sender,
        Packet::Solicitation(_) => true,
        Packet::Advertisement(_) => false,
    }
}
