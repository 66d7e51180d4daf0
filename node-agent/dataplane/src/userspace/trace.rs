//! Continuation of a packet trace in the relay: from the rule that redirects the connection to a listener,
//! to the targets of the listener.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use model::{
    kinds::resource::ServiceKey,
    wire::trace::{End, Packet, PacketTrace, VisibleSource},
};

use super::{desired::RelayId, relay::Relay};
use crate::trace::Recorder;

/// In a trace, replaces each end that is the port of a listener: by the targets that the listener may
/// select, or by a rejection if no listener at that port serves the destination of the packet.
pub(super) fn go_on(
    captured: PacketTrace,
    packet: &Packet,
    services: &BTreeMap<ServiceKey, BTreeMap<RelayId, Arc<Relay>>>,
) -> PacketTrace {
    let mut recorder = Recorder::of(captured);
    for end in recorder.take_ends() {
        match end {
            End::Relayed(port) => {
                let relays = services.values().flat_map(BTreeMap::values);
                let mut listening = relays.filter(|relay| {
                    relay.port == port
                        && relay.frontend.protocol == packet.protocol
                        && !relay.closing.is_cancelled()
                });
                let original = SocketAddr::new(packet.destination, packet.port.get());
                match listening.find(|relay| relay.answers(original)) {
                    Some(relay) => place(&mut recorder, relay, packet),
                    None => {
                        recorder.odd(
                            format!("listener at port {port}"),
                            "",
                            "there is no such listener of this frontend",
                        );
                        recorder.end(End::Refused);
                    }
                }
            }
            other
            @ (End::Reaches { .. } | End::Refused | End::Dropped | End::Untouched | End::Unknown(_)) => {
                recorder.end(other)
            }
        }
    }
    recorder.finish()
}

fn place(recorder: &mut Recorder, relay: &Relay, packet: &Packet) {
    let at = format!("listener at port {}", relay.port);
    let targets = relay.targets();
    let sum: u64 = targets.values().map(|weight| u64::from(weight.0)).sum();
    if targets.is_empty() {
        recorder.odd(at.clone(), "", "it has no endpoint: the connection is closed");
        recorder.end(End::Refused);
    }
    for (target, weight) in targets {
        let port = target.port.unwrap_or(packet.port);
        let to = SocketAddr::new(target.address, port.get());
        recorder.step(
            at.clone(),
            to.to_string(),
            format!("weight {} of {sum}; another one is tried if it does not answer", weight.0),
        );
        recorder.end(End::Reaches { address: target.address, port, sees: VisibleSource::Node });
    }
}
