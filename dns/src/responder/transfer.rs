//! Zone transfers to secondary name servers (RFC 5936, RFC 1995): permission, and the messages of a zone.

use std::{net::IpAddr, sync::Arc};

use hickory_proto::op::ResponseCode;
use model::{
    discovery::dns::{Record, TransferDecision, Zone, judge_transfer, transfer_records},
    kinds::dns_zone::DnsZoneSpec,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Responder, Step,
    history::{TransferContent, is_current},
};
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
    client: IpAddr,
    /// Serial number of the zone that the client has.
    known: Option<u32>,
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
        let known = match kind {
            TransferKind::Full => None,
            TransferKind::Incremental(known) => known,
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
            (TransferKind::Incremental(Some(known)), Transport::Tcp) if is_current(&start, known) => {
                self.respond(Outcome::Transfer, request.start_of_zone(&start))
            }
            (TransferKind::Full | TransferKind::Incremental(_), Transport::Tcp) => {
                Step::Transfer(Box::new(TransferJob { request, zone, spec, start, client, known }))
            }
        }
    }

    /// Computes the messages of a zone transfer.
    pub(crate) async fn transfer(&self, job: TransferJob) -> ZoneMessages {
        let permit = Arc::clone(&self.transfers).acquire_owned().await.ok();
        let failure = job.request.fail(ResponseCode::ServFail);
        let history = Arc::clone(&self.history);
        let messages = tokio::task::spawn_blocking(move || {
            let TransferJob { request, zone, spec, start, client, known } = job;
            let records = transfer_records(&zone, &spec)?;
            history.retain(|name| {
                zone.snapshot().dns_zone_of(name).is_some_and(|(_, spec)| spec.zone.as_str() == name)
            });
            Some(match history.transfer(&start, records, client, known) {
                TransferContent::Whole(records) => {
                    (Outcome::Transfer, request.zone_messages(start, records.to_vec()))
                }
                TransferContent::Changes(changes) => {
                    (Outcome::IncrementalTransfer, request.change_messages(start, &changes))
                }
            })
        });
        // Without the announced addresses, the content of the zone is not known.
        let (outcome, messages) = messages.await.ok().flatten().unzip();
        self.metrics.count(outcome.unwrap_or(Outcome::NotReady));
        ZoneMessages { messages: messages.unwrap_or_else(|| vec![failure]), _permit: permit }
    }
}
