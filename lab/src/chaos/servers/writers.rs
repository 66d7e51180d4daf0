//! Clients that write and read a few shared objects one request after another, and record each request with
//! its outcome.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use reqwest::{Client, Method};
use serde_json::Value;

use super::site::{Site, SiteCall, SiteReply, client, state, unexpected};
use crate::chaos::histories::{
    ClientRequest, Demand, Freshness, ObjectChange, Operation, Refusal, RequestOutcome,
};
use crate::host::random::Random;

/// Number of objects per round: few, so that clients conflict.
const KEYS: u64 = 5;
/// Number of specific addresses that clients request: fewer than objects, so that requests conflict.
const ADDRESSES: u64 = 3;
/// Maximum pause of a client between two requests in milliseconds.
const PAUSE_MS_MAX: u64 = 12;
/// Maximum pause in milliseconds after a request without a response, so that a dead server does not receive
/// thousands of requests.
const PAUSE_UNANSWERED_MS_MAX: u64 = 60;

/// Client that sends one request after another and records the outcomes.
#[derive(Debug)]
pub struct ClientWriter {
    site: Arc<Site>,
    index: usize,
    random: Random,
    client: Client,
    /// Last known entity tag and revision of each object.
    known: BTreeMap<String, (String, u64)>,
    written: u64,
    operations: Vec<Operation>,
}

/// Request, together with the data that its outcome is recorded with.
struct WriterRequest {
    call: SiteCall,
    asked: ClientRequest,
    is_patch: bool,
}

impl ClientWriter {
    /// Creates client `index` of a round.
    ///
    /// # Errors
    /// Returns an error if the HTTP client cannot be created.
    pub fn new(site: &Arc<Site>, index: usize, seed: u64) -> Result<Self> {
        Ok(Self {
            site: Arc::clone(site),
            index,
            random: Random::new(seed, 100 + index as u64),
            client: client()?,
            known: BTreeMap::new(),
            written: 0,
            operations: Vec::new(),
        })
    }

    /// Sends requests until `stop` is set and returns the recorded operations.
    pub async fn run(mut self, stop: Arc<AtomicBool>) -> Vec<Operation> {
        while !stop.load(Ordering::Relaxed) {
            let server = self.random.index(self.site.servers.len());
            let question = self.question();
            let is_answered = self.ask(server, question).await;
            let pause_max = if is_answered { PAUSE_MS_MAX } else { PAUSE_UNANSWERED_MS_MAX };
            let pause = self.random.millis(0, pause_max);
            tokio::time::sleep(pause).await;
        }
        self.operations
    }

    /// Creates an object that no other client uses. Returns its revision, or `None` if the server did not
    /// confirm the creation.
    pub async fn mark(&mut self, server: usize, attempt: usize) -> Option<u64> {
        let key = format!("end-{server}-{attempt}");
        let value = self.value();
        let mut question = self.creation(&key, &value, None);
        if let Some(body) = &mut question.call.body {
            // The object is for watchers only, not for nodes.
            body["spec"]["clusterIP"] = Value::from("None");
        }
        self.ask(server, question).await;
        match self.operations.last()?.answer {
            RequestOutcome::Accepted(revision) => Some(revision),
            RequestOutcome::Refused(_)
            | RequestOutcome::Unknown
            | RequestOutcome::Object(_)
            | RequestOutcome::Listing { .. }
            | RequestOutcome::Unexpected(_) => None,
        }
    }

    /// Lists all objects at a server in a state of the required age, and records the outcome.
    pub async fn list(&mut self, server: usize, freshness: Freshness) {
        let question = self.listing(freshness);
        self.ask(server, question).await;
    }

    /// Returns the recorded operations.
    #[must_use]
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }

    /// Sends a request to a server and records its outcome. Returns true if the server responded.
    async fn ask(&mut self, server: usize, question: WriterRequest) -> bool {
        let WriterRequest { call, asked, is_patch } = question;
        let begin = self.site.now();
        let reply = self.site.call(&self.client, server, call).await;
        let end = self.site.now();
        let answer = match (&reply, &asked) {
            (Ok(reply), _) => self.understand(&asked, is_patch, reply),
            (Err(error), ClientRequest::Write { .. }) if is_unsent(error) => {
                RequestOutcome::Refused(Refusal::Busy)
            }
            (
                Err(_),
                ClientRequest::Write { .. } | ClientRequest::Read { .. } | ClientRequest::List { .. },
            ) => RequestOutcome::Unknown,
        };
        self.operations.push(Operation { client: self.index, server, begin, end, asked, answer });
        reply.is_ok()
    }

    /// Chooses the next request at random: a write, a read or a list.
    fn question(&mut self) -> WriterRequest {
        let key = self.key();
        let value = self.value();
        match self.random.below(100) {
            0..20 => {
                let address = self.random.chance(40).then(|| self.address());
                self.creation(&key, &value, address)
            }
            20..45 => self.replacement(key, value),
            45..53 => self.patch(key, value),
            53..65 => self.deletion(key),
            65..75 => self.apply(key, value),
            75..92 => {
                let freshness = self.freshness();
                let call = SiteCall { path: self.path(&key), freshness, ..SiteCall::default() };
                WriterRequest { call, asked: ClientRequest::Read { key, freshness }, is_patch: false }
            }
            _ => {
                let freshness = self.freshness();
                self.listing(freshness)
            }
        }
    }

    fn creation(&self, key: &str, value: &str, address: Option<String>) -> WriterRequest {
        let body = Some(self.site.object(key, value, address.as_deref()));
        let call =
            SiteCall { method: Method::POST, path: self.site.collection(), body, ..SiteCall::default() };
        let change = ObjectChange { key: key.to_owned(), value: Some(value.to_owned()), address };
        let asked = ClientRequest::Write { changes: vec![change], demand: Demand::Absent };
        WriterRequest { call, asked, is_patch: false }
    }

    fn replacement(&mut self, key: String, value: String) -> WriterRequest {
        let (if_match, demand) = self.precondition(&key, 70);
        let call = SiteCall {
            method: Method::PUT,
            path: self.path(&key),
            if_match: Some(if_match.unwrap_or_else(|| "*".to_owned())),
            body: Some(self.site.object(&key, &value, None)),
            ..SiteCall::default()
        };
        let changes = vec![ObjectChange { key, value: Some(value), address: None }];
        WriterRequest { call, asked: ClientRequest::Write { changes, demand }, is_patch: false }
    }

    fn patch(&self, key: String, value: String) -> WriterRequest {
        let body = Some(self.site.patch(&value));
        let call = SiteCall { method: Method::PATCH, path: self.path(&key), body, ..SiteCall::default() };
        let changes = vec![ObjectChange { key, value: Some(value), address: None }];
        WriterRequest {
            call,
            asked: ClientRequest::Write { changes, demand: Demand::Present },
            is_patch: true,
        }
    }

    fn deletion(&mut self, key: String) -> WriterRequest {
        let (if_match, demand) = self.precondition(&key, 40);
        let call =
            SiteCall { method: Method::DELETE, path: self.path(&key), if_match, ..SiteCall::default() };
        let changes = vec![ObjectChange { key, value: None, address: None }];
        WriterRequest { call, asked: ClientRequest::Write { changes, demand }, is_patch: false }
    }

    fn apply(&mut self, key: String, value: String) -> WriterRequest {
        let other = self.key();
        let mut changes = vec![ObjectChange { key, value: Some(value), address: None }];
        if other != changes[0].key {
            changes.push(ObjectChange { key: other, value: Some(self.value()), address: None });
        }
        let object = |change: &ObjectChange| {
            self.site.object(&change.key, change.value.as_deref().unwrap_or_default(), None)
        };
        let body = Some(changes.iter().map(object).collect());
        let call =
            SiteCall { method: Method::POST, path: "/v1/apply".to_owned(), body, ..SiteCall::default() };
        WriterRequest {
            call,
            asked: ClientRequest::Write { changes, demand: Demand::Nothing },
            is_patch: false,
        }
    }

    fn listing(&self, freshness: Freshness) -> WriterRequest {
        let call = SiteCall { path: self.site.collection(), freshness, ..SiteCall::default() };
        WriterRequest { call, asked: ClientRequest::List { freshness }, is_patch: false }
    }

    /// Chooses the precondition of a write: with a probability of `percent`, the object must still have the
    /// revision that the client last received, else it must only exist. Returns the value of the `If-Match`
    /// header and the precondition.
    fn precondition(&mut self, key: &str, percent: u64) -> (Option<String>, Demand) {
        match self.known.get(key).filter(|_| self.random.chance(percent)) {
            Some((tag, revision)) => (Some(tag.clone()), Demand::Revision(*revision)),
            None => (None, Demand::Present),
        }
    }

    /// Chooses the required age of a read at random: none, the newest revision that the client has received from
    /// any server, or the latest state of the store.
    fn freshness(&mut self) -> Freshness {
        let newest = self.known.values().map(|(_, revision)| *revision).max();
        match self.random.below(100) {
            0..30 => newest.map_or(Freshness::Any, Freshness::AtLeast),
            30..60 => Freshness::Latest,
            _ => Freshness::Any,
        }
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.below(KEYS))
    }

    fn address(&mut self) -> String {
        self.site.address(self.random.below(ADDRESSES))
    }

    fn value(&mut self) -> String {
        self.written += 1;
        format!("c{}-{}", self.index, self.written)
    }

    fn path(&self, key: &str) -> String {
        format!("{}/{key}", self.site.collection())
    }

    fn understand(&mut self, asked: &ClientRequest, is_patch: bool, reply: &SiteReply) -> RequestOutcome {
        match asked {
            ClientRequest::List { .. } => {
                let answer = self.site.listing(reply);
                if let RequestOutcome::Listing { objects, .. } = &answer {
                    // The tags of deleted objects are discarded.
                    self.known.retain(|key, _| objects.contains_key(key));
                }
                answer
            }
            ClientRequest::Read { key, .. } => match (reply.status, state(&reply.body)) {
                (200, Some(seen)) => {
                    self.learn(key, reply, seen.revision);
                    RequestOutcome::Object(Some(seen))
                }
                (404, _) => RequestOutcome::Object(None),
                (503, _) => RequestOutcome::Unknown,
                _ => unexpected(reply),
            },
            ClientRequest::Write { changes, .. } => {
                let answer = written(reply, is_patch);
                if let (RequestOutcome::Accepted(revision), [change]) = (&answer, &changes[..])
                    && change.value.is_some()
                {
                    self.learn(&change.key, reply, *revision);
                }
                answer
            }
        }
    }

    fn learn(&mut self, key: &str, reply: &SiteReply, revision: u64) {
        if let Some(tag) = &reply.etag {
            self.known.insert(key.to_owned(), (tag.clone(), revision));
        }
    }
}

/// Returns true if a failed request was certainly not sent, because no connection was established.
fn is_unsent(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(client::http::is_definitely_unsent))
}

/// Converts the response to a write into the outcome of the write. `is_patch` is true if the write was a merge
/// patch.
fn written(reply: &SiteReply, is_patch: bool) -> RequestOutcome {
    let code = reply.body["code"].as_str().unwrap_or_default();
    let pointer = reply.body["errors"][0]["pointer"].as_str().unwrap_or_default();
    match (reply.status, reply.revision, code) {
        (200 | 201, Some(revision), _) => RequestOutcome::Accepted(revision),
        (404, _, "NotFound") => RequestOutcome::Refused(Refusal::Absent),
        (409, _, "AlreadyExists") => RequestOutcome::Refused(Refusal::Present),
        // A patch has no precondition; it lost several races in a row.
        (412, _, _) if is_patch => RequestOutcome::Refused(Refusal::Busy),
        (412, _, _) => RequestOutcome::Refused(Refusal::Changed),
        (422, _, _) if pointer.starts_with("/spec/clusterIP") => RequestOutcome::Refused(Refusal::Taken),
        (429, _, _) => RequestOutcome::Refused(Refusal::Busy),
        (503, _, _) => RequestOutcome::Unknown,
        _ => unexpected(reply),
    }
}
