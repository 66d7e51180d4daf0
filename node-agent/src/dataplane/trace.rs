//! What backends share when they follow a packet through what the kernel holds: the steps, the ends, and which
//! addresses are the node's own.

use std::{collections::BTreeSet, io, net::IpAddr, rc::Rc};

use model::wire::trace::{ENDS_MAX, End, Packet, STEPS_MAX, Seen, TraceStep, Traced, words};
use nix::ifaddrs::getifaddrs;

/// Longest place of a step, in bytes (`model::trace::TraceStep`).
const PLACE_BYTES_MAX: usize = 256;
/// Longest rule of a step, in bytes.
const RULE_BYTES_MAX: usize = 4096;
/// Longest result of a step and longest fate, in bytes.
const RESULT_BYTES_MAX: usize = 1024;

/// A packet on the machine that it is asked about.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// The packet.
    pub(super) packet: &'a Packet,
    local: Rc<BTreeSet<IpAddr>>,
}

impl<'a> Subject<'a> {
    /// Reads the addresses of the network namespace of the calling thread, once for all packets.
    pub(super) fn all_here(packets: &'a [Packet]) -> io::Result<Vec<Self>> {
        let found = getifaddrs().map_err(io::Error::from)?;
        let local = found.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        });
        let local = Rc::new(local.collect());
        Ok(packets.iter().map(|packet| Self { packet, local: Rc::clone(&local) }).collect())
    }

    /// Whether an address is one of the machine's, loopback included.
    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.local.contains(&address)
    }

    /// Whether the packet starts on the machine.
    pub(super) fn is_from_node(&self) -> bool {
        self.is_local(self.packet.source)
    }

    /// Whether node ports may answer at the destination: an address of the machine that is no loopback one.
    pub(super) fn is_at_node(&self) -> bool {
        self.is_local(self.packet.destination) && !self.packet.destination.is_loopback()
    }

    /// Whom an endpoint sees.
    pub(super) fn seen(&self, is_masqueraded: bool) -> Seen {
        if is_masqueraded || self.is_from_node() { Seen::Node } else { Seen::Client }
    }
}

/// What was met on the way.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    steps: Vec<TraceStep>,
    ends: BTreeSet<End>,
}

impl Recorder {
    /// Notes a step.
    pub(super) fn step(
        &mut self,
        place: impl Into<String>,
        rule: impl Into<String>,
        result: impl Into<String>,
    ) {
        self.note(place.into(), rule.into(), result.into(), false);
    }

    /// Notes a step at something that would not have been programmed so.
    pub(super) fn odd(
        &mut self,
        place: impl Into<String>,
        rule: impl Into<String>,
        result: impl Into<String>,
    ) {
        self.note(place.into(), rule.into(), result.into(), true);
    }

    /// Notes an end.
    pub(super) fn end(&mut self, end: End) {
        if self.ends.len() < ENDS_MAX {
            self.ends.insert(end);
        }
    }

    /// The ends so far, taken out to be replaced by others.
    pub(super) fn take_ends(&mut self) -> BTreeSet<End> {
        std::mem::take(&mut self.ends)
    }

    /// A trace that goes on from an earlier one.
    pub(super) fn of(traced: Traced) -> Self {
        let Traced { steps, fate: _, ends } = traced;
        Self { steps, ends }
    }

    /// The whole trace.
    pub(super) fn finish(self) -> Traced {
        let Self { steps, ends } = self;
        Traced { steps, fate: cut(words(&ends), RESULT_BYTES_MAX), ends }
    }

    fn note(&mut self, place: String, rule: String, result: String, odd: bool) {
        // What is odd is worth more than what is as it should be, and comes early or not at all.
        if self.steps.len() < STEPS_MAX {
            let place = cut(place, PLACE_BYTES_MAX);
            let (rule, result) = (cut(rule, RULE_BYTES_MAX), cut(result, RESULT_BYTES_MAX));
            self.steps.push(TraceStep { place, rule, result, odd });
        }
    }
}

/// A text that fits, cut at a character.
fn cut(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}
