//! Zone transfers to secondary name servers (RFC 5936): permission, and the messages of a zone.

use std::{net::IpAddr, sync::Arc};

use hickory_proto::op::ResponseCode;
use model::{
    discovery::dns::{Record, RecordData, TransferDecision, Zone, judge_transfer, transfer_records},
    kinds::dns_zone::DnsZoneSpec,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{Responder, Step};
use crate::{
    message::{Request, TransferKind, Transport},
    metrics::Outcome,
};

/// Maximum number of zone transfers at once; others wait.
pub(super) const TRANSFERS_MAX: usize = 4;

/// Zone transfer to begin.
#[derive(Debug)]
pub(crate) struct TransferJob {
    request: Request,
    zone: Arc<Zone>,
    spec: DnsZoneSpec,
    start: Record,
}

/// Messages of a zone transfer.
#[derive(Debug)]
pub(crate) struct ZoneMessages {
    /// Messages in the order in which they are sent.
    pub(crate) messages: Vec<Vec<u8>>,
    /// Held until all messages are sent.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Responder {
    /// Returns the next step for a request of a zone transfer. The permission does not depend on the client networks.
    pub(super) fn begin_transfer(
        &self,
        request: Request,
        kind: TransferKind,
        zone: Arc<Zone>,
        (client, transport): (IpAddr, Transport),
    ) -> Step {
        let question = request.question();
        let (spec, start) = match judge_transfer(&zone, &question, client, request.verified_key()) {
            TransferDecision::Allowed(spec, start) => (spec.clone(), start),
            TransferDecision::NotAuthoritative => {
                return self.respond(Outcome::TransferRefused, request.fail(ResponseCode::NotAuth));
            }
            TransferDecision::Refused => {
                return self.respond(Outcome::TransferRefused, request.fail(ResponseCode::Refused));
            }
        };
        match (kind, transport) {
            // Transfers of whole zones are not defined over UDP (RFC 5936 §4.2).
            (TransferKind::Full, Transport::Udp) => {
                self.respond(Outcome::Malformed, request.fail(ResponseCode::FormErr))
            }
            // The client repeats the request over TCP (RFC 1995 §2).
            (TransferKind::Incremental(_), Transport::Udp) => {
                self.respond(Outcome::Transfer, request.start_of_zone(&start))
            }
            (TransferKind::Incremental(known), Transport::Tcp) if is_serial(&start, known) => {
                self.respond(Outcome::Transfer, request.start_of_zone(&start))
            }
            (TransferKind::Full | TransferKind::Incremental(_), Transport::Tcp) => {
                Step::Transfer(Box::new(TransferJob { request, zone, spec, start }))
            }
        }
    }

    /// Computes the messages of a zone transfer.
    pub(crate) async fn transfer(&self, job: TransferJob) -> ZoneMessages {
        let permit = Arc::clone(&self.transfers).acquire_owned().await.ok();
        let failure = job.request.fail(ResponseCode::ServFail);
        let messages = tokio::task::spawn_blocking(move || {
            let TransferJob { request, zone, spec, start } = job;
            Some(request.zone_messages(start, transfer_records(&zone, &spec)?))
        });
        // Without the announced addresses, the content of the zone is not known.
        let messages = messages.await.ok().flatten();
        self.metrics.count(if messages.is_some() { Outcome::Transfer } else { Outcome::NotReady });
        ZoneMessages { messages: messages.unwrap_or_else(|| vec![failure]), _permit: permit }
    }
}

/// Returns true if a start of authority has the serial number that a client knows.
fn is_serial(start: &Record, known: Option<u32>) -> bool {
    matches!(start.data, RecordData::Soa { serial, .. } if Some(serial) == known)
}
