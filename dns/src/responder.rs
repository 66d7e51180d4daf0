//! Decision on each question: answer from the cluster zone, forward, or refuse.

use std::sync::Arc;

use hickory_proto::op::ResponseCode;
use model::{
    discovery::dns::{Answer, Resolution, Zone, answer},
    primitives::name::Name,
};
use tokio::sync::watch;

use crate::{
    forward::Forwarder,
    message::{ParseResult, Request, Transport, answers_of, parse},
    metrics::{Metrics, Outcome},
};

/// Zone at the newest revision; `None` until the state is known.
pub(crate) type Zones = watch::Receiver<Option<Arc<Zone>>>;

/// Decides on questions.
#[derive(Debug)]
pub(crate) struct Responder {
    domain: Name,
    zones: Zones,
    forwarder: Option<Forwarder>,
    metrics: Arc<Metrics>,
}

/// Next step for a packet.
#[derive(Debug)]
pub(crate) enum Step {
    /// The response is ready.
    Respond(Vec<u8>),
    /// An upstream server must be asked first.
    Forward(Box<Job>),
    /// The packet has no response.
    Discard,
}

/// Question for an upstream server.
#[derive(Debug)]
pub(crate) struct Job {
    request: Request,
    packet: Vec<u8>,
    /// Answer of the cluster zone that ends in an alias, to which the upstream server's answers are appended.
    alias: Option<Answer>,
}

impl Responder {
    /// Creates a responder for a cluster zone. Questions outside of it go to `forwarder`.
    pub(crate) const fn new(
        domain: Name,
        zones: Zones,
        forwarder: Option<Forwarder>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { domain, zones, forwarder, metrics }
    }

    /// Returns the metrics of the server.
    pub(crate) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the next step for a packet. Never waits.
    pub(crate) fn begin(&self, packet: &[u8], transport: Transport) -> Step {
        let request = match parse(packet, transport, self.forwarder.is_some()) {
            ParseResult::Question(request) => request,
            ParseResult::Error(response) => return self.respond(Outcome::Malformed, response),
            ParseResult::Ignored => {
                self.metrics.count(Outcome::Discarded);
                return Step::Discard;
            }
        };
        let question = request.question();
        let Some(zone) = self.zones.borrow().clone() else {
            let domain = self.domain.as_str().split('.').rev();
            let is_own = domain.zip(question.labels.iter().rev()).all(|(a, b)| a == b)
                && question.labels.len() >= self.domain.as_str().split('.').count();
            return if is_own {
                self.respond(Outcome::NotReady, request.fail(ResponseCode::ServFail))
            } else {
                self.forward(request, packet.to_vec())
            };
        };
        match answer(&zone, &question) {
            Resolution::Foreign => self.forward(request, packet.to_vec()),
            Resolution::Own(found) => self.own(request, found),
        }
    }

    fn own(&self, request: Request, found: Answer) -> Step {
        if let Some(target) =
            found.chase.as_deref().filter(|_| request.recursion_desired && self.forwarder.is_some())
            && let Some(packet) = request.ask_about(target)
        {
            return Step::Forward(Box::new(Job { request, packet, alias: Some(found) }));
        }
        let outcome = if found.answers.is_empty() { Outcome::OwnNegative } else { Outcome::Own };
        self.respond(outcome, request.answer(&found, Vec::new(), fastrand::usize(..)))
    }

    fn forward(&self, request: Request, packet: Vec<u8>) -> Step {
        if !request.recursion_desired || self.forwarder.is_none() {
            return self.respond(Outcome::Refused, request.fail(ResponseCode::Refused));
        }
        Step::Forward(Box::new(Job { request, packet, alias: None }))
    }

    fn respond(&self, outcome: Outcome, response: Vec<u8>) -> Step {
        self.metrics.count(outcome);
        Step::Respond(response)
    }

    /// Asks the upstream servers and returns the response for the client.
    pub(crate) async fn finish(&self, job: Box<Job>) -> Vec<u8> {
        let Job { request, packet, alias } = *job;
        let Some(forwarder) = &self.forwarder else { return request.fail(ResponseCode::Refused) };
        let response = match forwarder.ask(packet).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "a question could not be forwarded");
                self.metrics.count(Outcome::UpstreamFailed);
                return request.fail(ResponseCode::ServFail);
            }
        };
        self.metrics.count(Outcome::Forwarded);
        let Some(alias) = alias else { return request.relay(response) };
        match answers_of(&response) {
            Some((ResponseCode::NoError, answers)) => request.answer(&alias, answers, fastrand::usize(..)),
            // The code is that of the last name of the chain (RFC 6604 §3).
            Some((ResponseCode::NXDomain, answers)) => {
                let missing = Answer { code: model::discovery::dns::ResponseCode::NxDomain, ..alias };
                request.answer(&missing, answers, fastrand::usize(..))
            }
            _ => request.fail(ResponseCode::ServFail),
        }
    }
}
