//! Parts that the packet traces of all proxy modes share: the traced packet, the recorder of steps and final
//! results, and the node's own addresses.

use std::{collections::BTreeSet, io, net::IpAddr, rc::Rc};

use model::wire::trace::{ENDS_MAX, End, Packet, PacketTrace, STEPS_MAX, TraceStep, VisibleSource, words};
use nix::ifaddrs::getifaddrs;

/// Maximum size in bytes of the kernel object named in a step (`model::trace::TraceStep`); longer texts are
/// truncated.
const PLACE_BYTES_MAX: usize = 256;
/// Maximum size in bytes of the rule text in a step; longer texts are truncated.
const RULE_BYTES_MAX: usize = 4096;
/// Maximum size in bytes of the text that describes the result of a step or the fate of the whole packet;
/// longer texts are truncated.
const RESULT_BYTES_MAX: usize = 1024;

/// Packet to trace, together with the node's addresses, which decide whether the source or destination is
/// local.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// Packet as given in the request for a trace.
    pub(super) packet: &'a Packet,
    local: Rc<BTreeSet<IpAddr>>,
}

impl<'a> Subject<'a> {
    /// Pairs each packet with the addresses of the local node, as the input of a trace. Reads these addresses
    /// once, in the network namespace of the calling thread.
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

    /// Returns true if the address belongs to the machine, loopback included.
    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.local.contains(&address)
    }

    /// Returns true if the packet originates on the machine.
    pub(super) fn is_from_node(&self) -> bool {
        self.is_local(self.packet.source)
    }

    /// Returns true if the destination is a local address other than loopback, so that node port rules may
    /// match the packet.
    pub(super) fn is_at_node(&self) -> bool {
        self.is_local(self.packet.destination) && !self.packet.destination.is_loopback()
    }

    /// Returns the source address that the endpoint at `endpoint` sees: the node's if the connection comes from
    /// the node or is masqueraded, else the client's. A packet to an address of the node is not masqueraded,
    /// because it does not pass the postrouting hook.
    pub(super) fn seen(&self, is_masqueraded: bool, endpoint: IpAddr) -> VisibleSource {
        if self.is_from_node() || (is_masqueraded && !self.is_local(endpoint)) {
            VisibleSource::Node
        } else {
            VisibleSource::Client
        }
    }
}

/// Recorder of the steps of a traced packet and of the ends it can reach: an endpoint, a reject or a drop.
/// Several ends are possible because endpoints are chosen at random.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    steps: Vec<TraceStep>,
    ends: BTreeSet<End>,
}

impl Recorder {
    /// Records a regular step: the kernel object, the matching rule and its result. Steps beyond the maximum
    /// number of steps are dropped.
    pub(super) fn step(
        &mut self,
        place: impl Into<String>,
        rule: impl Into<String>,
        result: impl Into<String>,
    ) {
        self.note(place.into(), rule.into(), result.into(), false);
    }

    /// Records a step at a kernel object that differs from the object that the agent programmed. The trace
    /// shows such a step as unexpected.
    pub(super) fn odd(
        &mut self,
        place: impl Into<String>,
        rule: impl Into<String>,
        result: impl Into<String>,
    ) {
        self.note(place.into(), rule.into(), result.into(), true);
    }

    /// Records one end of the packet, such as an endpoint or a drop. Ends beyond the maximum number of ends
    /// are dropped.
    pub(super) fn end(&mut self, end: End) {
        if self.ends.len() < ENDS_MAX {
            self.ends.insert(end);
        }
    }

    /// Removes and returns the ends recorded so far, so that the caller can record other ends in their
    /// place.
    pub(super) fn take_ends(&mut self) -> BTreeSet<End> {
        std::mem::take(&mut self.ends)
    }

    /// Creates a recorder that continues a finished trace, with its steps and ends.
    pub(super) fn of(traced: PacketTrace) -> Self {
        let PacketTrace { steps, fate: _, ends } = traced;
        Self { steps, ends }
    }

    /// Returns the trace: steps, ends, and the fate of the packet in words.
    pub(super) fn finish(self) -> PacketTrace {
        let Self { steps, ends } = self;
        PacketTrace { steps, fate: cut(words(&ends), RESULT_BYTES_MAX), ends }
    }

    fn note(&mut self, place: String, rule: String, result: String, odd: bool) {
        // Unexpected steps matter more than regular ones and come early, so later steps are dropped at the
        // limit.
        if self.steps.len() < STEPS_MAX {
            let place = cut(place, PLACE_BYTES_MAX);
            let (rule, result) = (cut(rule, RULE_BYTES_MAX), cut(result, RESULT_BYTES_MAX));
            self.steps.push(TraceStep { place, rule, result, odd });
        }
    }
}

/// Truncates a text to at most `bytes_max` bytes, at a character boundary.
fn cut(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}
