//! Decision on each question: answer from the cluster zone, forward, or refuse.

mod direct;
mod explain;
mod history;
mod name_counters;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;
mod update;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use hickory_proto::op::ResponseCode;
use ipnet::IpNet;
use model::discovery::dns::{
    Answer, ClientView, DnsQuestion, Resolution, ResponseCode as AnswerCode, Zone, answer_in,
    answer_on_search_path, nearest, weighted,
};
use tokio::sync::{Semaphore, watch};

pub(crate) use self::{explain::ServerExplanation, name_counters::NameCounters};
use self::{
    history::TransferHistory,
    transfer::{TRANSFERS_MAX, TransferJob},
    update::UpdateJob,
};
use crate::{
    forward::{ForwardError, ForwardedReply, Forwarder},
    keys::Keys,
    message::{ParseResult, QuestionKey, Request, Transport, answers_of, parse},
    metrics::{Metrics, Outcome},
    update::UpdateQueue,
};

/// Zone at the newest revision; `None` until the state is known.
pub(crate) type Zones = watch::Receiver<Option<Arc<Zone>>>;

/// Options of a responder.
#[derive(Debug, Default)]
pub(crate) struct ResponderOptions {
    /// Networks of the clients of the cluster. Other clients get answers from zones of DnsZones only. Empty for all.
    pub(crate) clients: Vec<IpNet>,
    /// True if the search path of clients is followed.
    pub(crate) follows_search_path: bool,
    /// True if clients get those of several load balancer addresses that are near to them.
    pub(crate) prefers_near: bool,
    /// Host names of the control servers in lower case. Questions for them are forwarded before the state is known,
    /// because without them it may never be.
    pub(crate) control_names: BTreeSet<String>,
}

/// Decides on questions.
#[derive(Debug)]
pub(crate) struct Responder {
    options: ResponderOptions,
    zones: Zones,
    keys: Keys,
    updates: UpdateQueue,
    forwarder: Option<Forwarder>,
    metrics: Arc<Metrics>,
    /// Limit of zone transfers at once.
    transfers: Arc<Semaphore>,
    history: Arc<TransferHistory>,
    names: Arc<NameCounters>,
}

/// Next step for a packet.
#[derive(Debug)]
pub(crate) enum Step {
    /// The response is ready.
    Respond(Vec<u8>),
    /// An upstream server must be asked first.
    Forward(Box<Job>),
    /// The response is a whole zone.
    Transfer(Box<TransferJob>),
    /// The response depends on a write to a control server.
    Update(Box<UpdateJob>),
    /// The packet has no response.
    Discard,
}

/// Question for an upstream server.
#[derive(Debug)]
pub(crate) struct Job {
    request: Request,
    key: QuestionKey,
    /// Answer of the cluster zone that ends in an alias, to which the upstream server's answers are appended.
    alias: Option<Answer>,
}

impl Responder {
    /// Creates a responder for the zones of a state with the keys of DnsZones and the queue of their updates. Questions outside of the zones go to
    /// `forwarder`.
    pub(crate) fn new(
        options: ResponderOptions,
        (zones, keys, updates): (Zones, Keys, UpdateQueue),
        forwarder: Option<Forwarder>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let transfers = Arc::new(Semaphore::new(TRANSFERS_MAX));
        Self {
            options,
            zones,
            keys,
            updates,
            forwarder,
            metrics,
            transfers,
            history: Arc::default(),
            names: Arc::default(),
        }
    }

    /// Returns the metrics of the server.
    pub(crate) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the numbers of questions by name.
    pub(crate) const fn names(&self) -> &Arc<NameCounters> {
        &self.names
    }

    /// Returns the next step for a packet of a client. Never waits.
    pub(crate) fn begin(&self, packet: &[u8], client: IpAddr, transport: Transport) -> Step {
        let step = self.decide(packet, client, transport);
        if let Step::Respond(response) = &step {
            self.names.record(response);
        }
        step
    }

    fn decide(&self, packet: &[u8], client: IpAddr, transport: Transport) -> Step {
        let view = self.view_of(client);
        let forwards = self.forwarder.is_some() && view == ClientView::Cluster;
        let request = match parse(packet, transport, forwards) {
            ParseResult::Question(request) => request,
            ParseResult::Update(request, update) => return self.begin_update(request, update, client),
            ParseResult::Error(response) => return self.respond(Outcome::Malformed, response),
            ParseResult::Ignored => {
                self.metrics.count(Outcome::Discarded);
                return Step::Discard;
            }
        };
        if self.forwarder.as_ref().is_some_and(|forwarder| forwarder.is_loop_check(request.name())) {
            return self.respond(Outcome::Loop, request.fail(ResponseCode::Refused));
        }
        let question = request.question();
        let Some(zone) = self.zones.borrow().clone() else {
            // Any name may be in the zone of a DnsZone.
            let is_control = forwards
                && !request.is_signed()
                && self.options.control_names.contains(&question.labels.join("."));
            return if is_control { self.forward(request) } else { self.not_ready(&request) };
        };
        let request = match self.verified(request, &zone) {
            Ok(request) => request,
            Err(step) => return step,
        };
        if let Some(kind) = request.transfer_kind() {
            return self.begin_transfer(request, kind, zone, (client, transport));
        }
        match answer_in(&zone, &question, view) {
            Resolution::Foreign => self.forward(request),
            Resolution::Own(found) => {
                let other = self.on_search_path(&request, &zone, (&question, client), &found);
                let found = other.unwrap_or(found);
                let found = if self.options.prefers_near { nearest(&zone, client, found) } else { found };
                self.own(request, weighted(&zone, found, |total| fastrand::u32(..total)))
            }
            Resolution::Refused => self.respond(Outcome::OutsideClient, request.fail(ResponseCode::Refused)),
            Resolution::Unknown => self.not_ready(&request),
        }
    }

    /// Verifies the signature of a request, if it has one, with the key of the DnsZone that contains the name.
    ///
    /// # Errors
    /// Returns the error response if the signature is invalid or cannot be verified.
    fn verified(&self, request: Request, zone: &Zone) -> Result<Request, Step> {
        let Some(key) = request.claimed_key() else { return Ok(request) };
        let name = request.question().labels.join(".");
        let owner = zone.snapshot().dns_zone_of(&name).map(|(_, spec)| spec);
        let owner = owner.filter(|spec| spec.keys.iter().any(|known| known.name.as_str() == key));
        let secret = owner.and_then(|spec| self.keys.borrow().secret(spec.zone.as_str(), &key));
        if owner.is_some() && secret.is_none() {
            // The key is new, and its secret has not been received yet.
            return Err(self.not_ready(&request));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        request.verify(secret.as_deref(), now).map_err(|response| {
            tracing::debug!(name, key, "rejected the signature of a request");
            self.respond(Outcome::SignatureRejected, response)
        })
    }

    fn view_of(&self, client: IpAddr) -> ClientView {
        let clients = &self.options.clients;
        if clients.is_empty() || clients.iter().any(|network| network.contains(&client)) {
            ClientView::Cluster
        } else {
            ClientView::External
        }
    }

    fn not_ready(&self, request: &Request) -> Step {
        self.respond(Outcome::NotReady, request.fail(ResponseCode::ServFail))
    }

    /// Returns the answer of another name on the search path of a client, if this name does not exist.
    fn on_search_path(
        &self,
        request: &Request,
        zone: &Zone,
        (question, client): (&DnsQuestion, IpAddr),
        found: &Answer,
    ) -> Option<Answer> {
        if !self.options.follows_search_path || found.code != AnswerCode::NxDomain {
            return None;
        }
        let forwarder = self.forwarder.as_ref().filter(|_| request.recursion_desired);
        let found = answer_on_search_path(zone, question, client, forwarder.is_some())?;
        let has_server = |name: &str| {
            let key = request.key_about(name);
            forwarder.zip(key).is_some_and(|(forwarder, key)| forwarder.has_server_for(&key.name))
        };
        found.chase.as_deref().is_none_or(has_server).then_some(found)
    }

    fn own(&self, request: Request, found: Answer) -> Step {
        if let Some(target) = found.chase.as_deref().filter(|_| request.recursion_desired)
            && let Some(forwarder) = &self.forwarder
            && let Some(key) = request.key_about(target)
            && forwarder.has_server_for(&key.name)
        {
            return self.look_up(forwarder, Box::new(Job { request, key, alias: Some(found) }));
        }
        let outcome = if found.answers.is_empty() { Outcome::OwnNegative } else { Outcome::Own };
        self.respond(outcome, request.answer(&found, Vec::new(), fastrand::usize(..)))
    }

    fn forward(&self, request: Request) -> Step {
        let Some(forwarder) = self.forwarder.as_ref().filter(|_| request.recursion_desired) else {
            return self.respond(Outcome::Refused, request.fail(ResponseCode::Refused));
        };
        let key = request.key();
        if !forwarder.has_server_for(&key.name) {
            return self.respond(Outcome::Refused, request.fail(ResponseCode::Refused));
        }
        if request.is_any() {
            return self.respond(Outcome::AllTypes, request.any());
        }
        self.look_up(forwarder, Box::new(Job { request, key, alias: None }))
    }

    /// Answers from the cache if that is possible.
    fn look_up(&self, forwarder: &Forwarder, job: Box<Job>) -> Step {
        match forwarder.cached(&job.key) {
            Some(Ok(reply)) => Step::Respond(self.deliver(*job, reply)),
            Some(Err(error)) => Step::Respond(self.forward_failed(&job.request, &error)),
            None => Step::Forward(job),
        }
    }

    fn respond(&self, outcome: Outcome, response: Vec<u8>) -> Step {
        self.metrics.count(outcome);
        Step::Respond(response)
    }

    /// Asks the upstream servers and returns the response for the client.
    pub(crate) async fn finish(&self, job: Box<Job>) -> Vec<u8> {
        let response = self.ask(job).await;
        self.names.record(&response);
        response
    }

    async fn ask(&self, job: Box<Job>) -> Vec<u8> {
        let Some(forwarder) = &self.forwarder else { return job.request.fail(ResponseCode::Refused) };
        match forwarder.ask(&job.key).await {
            Ok(reply) => self.deliver(*job, reply),
            Err(error) => self.forward_failed(&job.request, &error),
        }
    }

    fn forward_failed(&self, request: &Request, error: &ForwardError) -> Vec<u8> {
        tracing::debug!(%error, "a question could not be forwarded");
        self.metrics.count(match error {
            ForwardError::FailedBefore => Outcome::CachedFailure,
            ForwardError::Busy | ForwardError::Malformed | ForwardError::Unanswered(_) => {
                Outcome::UpstreamFailed
            }
        });
        request.fail(ResponseCode::ServFail)
    }

    /// Counts a response of the upstream servers or the cache, and encodes it for the client.
    fn deliver(&self, job: Job, reply: ForwardedReply) -> Vec<u8> {
        let ForwardedReply { served, outcome } = reply;
        self.metrics.count(outcome);
        let Job { request, alias, .. } = job;
        let turn = fastrand::usize(..);
        let Some(alias) = alias else { return request.relay(served, turn) };
        match answers_of(&served.bytes) {
            Some((ResponseCode::NoError, answers)) => request.answer(&alias, answers, turn),
            // The code is that of the last name of the chain (RFC 6604 §3).
            Some((ResponseCode::NXDomain, answers)) => {
                let missing = Answer { code: AnswerCode::NxDomain, ..alias };
                request.answer(&missing, answers, turn)
            }
            _ => request.fail(ResponseCode::ServFail),
        }
    }
}
