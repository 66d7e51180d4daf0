//! Answers that need neither the general search nor memory of their own: addresses of Services at their names, and cached
//! responses. Most questions are of this kind. All others are left to [`Responder::begin`], and the answers are the same on both ways.

use std::{net::IpAddr, sync::Arc, time::Duration};

use model::discovery::dns::{ClientView, Zone};

use super::Responder;
use crate::{
    message::{NAME_BYTES_MAX, PlainRequest, ResponseClass, Transport},
    metrics::Outcome,
};

/// Type of a question for all types, which is not forwarded.
const ALL_TYPES: u16 = 255;

/// Answers to the questions of one batch, from one state.
#[derive(Debug)]
pub(crate) struct DirectAnswers<'r> {
    responder: &'r Responder,
    zone: Option<Arc<Zone>>,
    now: Duration,
    /// Number of answers of the cluster zone that have not been counted.
    own: u64,
    /// Number of cached responses that have not been counted.
    cached: u64,
}

impl Responder {
    /// Begins a batch of questions.
    pub(crate) fn direct(&self) -> DirectAnswers<'_> {
        let (zone, now) = (self.zones.borrow().clone(), self.names.now());
        DirectAnswers { responder: self, zone, now, own: 0, cached: 0 }
    }
}

impl DirectAnswers<'_> {
    /// Appends the response for a client to `response`. Returns false, and appends nothing, if the question is left to
    /// [`Responder::begin`].
    pub(crate) fn answer(&mut self, packet: &[u8], client: IpAddr, response: &mut Vec<u8>) -> bool {
        let Self { responder, zone: Some(zone), .. } = self else { return false };
        let Some(request) = PlainRequest::read(packet, Transport::Udp) else { return false };
        if responder.view_of(client) != ClientView::Cluster {
            return false;
        }
        let mut buffer = [0; NAME_BYTES_MAX];
        let Some(name) = request.host_name(&mut buffer) else { return false };
        let turn = fastrand::usize(..);
        let counter = if let Some(found) = zone.service_addresses(name) {
            if responder.options.prefers_near && found.0.len() > 1 {
                return false;
            }
            if !request.answer(responder.forwarder.is_some(), found, turn, response) {
                return false;
            }
            &mut self.own
        } else {
            let is_forwarded = request.recursion_desired() && request.record_type() != ALL_TYPES;
            let forwarder = responder.forwarder.as_ref().filter(|_| is_forwarded);
            let Some(forwarder) = forwarder.filter(|_| is_foreign(zone, name)) else { return false };
            if !forwarder.find_direct(&request, |reply, age| request.relay(reply, age, turn, response)) {
                return false;
            }
            &mut self.cached
        };
        *counter += 1;
        responder.names.record_name(request.name(), ResponseClass::Answer, self.now);
        true
    }
}

/// Returns true if a name in lower case is certainly outside of all zones.
fn is_foreign(zone: &Zone, name: &str) -> bool {
    // Some names of these zones are answered from the addresses of Services.
    if name.ends_with("arpa") || zone.snapshot().dns_zone_of(name).is_some() {
        return false;
    }
    // Too many names are left to the general search if the last label of one only ends like the zone.
    !name.ends_with(zone.settings().domain.as_str())
}

impl Drop for DirectAnswers<'_> {
    fn drop(&mut self) {
        self.responder.metrics.count_several(Outcome::Own, self.own);
        self.responder.metrics.count_several(Outcome::Cached, self.cached);
    }
}
