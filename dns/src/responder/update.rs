//! Dynamic updates (RFC 2136): permission, and the response.

use std::net::IpAddr;

use hickory_proto::op::ResponseCode;
use model::{discovery::dns::ZoneUpdate, kinds::dns_key::DnsOperation};

use super::{Responder, Step};
use crate::{
    message::Request,
    metrics::Outcome,
    update::{UpdateAuthor, ZoneChange},
};

/// Update to make.
#[derive(Debug)]
pub(crate) struct UpdateJob {
    request: Request,
    update: ZoneChange,
}

impl Responder {
    /// Returns the next step for an update. The permission depends on the key alone.
    pub(super) fn begin_update(&self, request: Request, update: ZoneUpdate, client: IpAddr) -> Step {
        let Some(zone) = self.zones.borrow().clone() else { return self.not_ready(&request) };
        let request = match self.verified(request, &zone) {
            Ok(request) => request,
            Err(step) => return step,
        };
        let name = request.question().labels.join(".");
        let found = zone.snapshot().dns_zone_of(&name).filter(|(_, spec)| spec.zone.as_str() == name);
        let Some((_, spec)) = found else {
            return self.respond(Outcome::UpdateRejected, request.fail(ResponseCode::NotAuth));
        };
        match request.verified_key().filter(|key| spec.permits(key, DnsOperation::Update)) {
            Some(key) => {
                let transaction = request.transaction();
                let update = ZoneChange {
                    zone: name,
                    author: UpdateAuthor::Key(key.to_owned()),
                    client,
                    transaction,
                    update,
                };
                Step::Update(Box::new(UpdateJob { request, update }))
            }
            None => self.respond(Outcome::UpdateRejected, request.fail(ResponseCode::Refused)),
        }
    }

    /// Makes an update and returns the response.
    pub(crate) async fn update(&self, job: UpdateJob) -> Vec<u8> {
        let UpdateJob { request, update } = job;
        let code = self.updates.make(update).await;
        self.metrics.count(if code == ResponseCode::NoError {
            Outcome::Update
        } else if code == ResponseCode::ServFail {
            Outcome::UpdateFailed
        } else {
            Outcome::UpdateRejected
        });
        request.fail(code)
    }
}
