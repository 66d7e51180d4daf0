//! Clients that write and read a few objects in a closed loop and record all operations.

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

use super::site::{Call, Reply, Site, client, state, unexpected};
use crate::chaos::histories::{Answer, Asked, Change, Demand, Operation, Refusal};
use crate::host::random::Random;

/// Number of objects per round: few, so that clients conflict.
const KEYS: u64 = 5;
/// Number of addresses requested by name: fewer than objects, so that clients conflict on them too.
const ADDRESSES: u64 = 3;
/// Maximum pause of a client between two requests in milliseconds.
const PAUSE_MS_MAX: u64 = 12;
/// Maximum pause in milliseconds after a request without a response, so that a dead server does not receive
/// thousands of requests.
const PAUSE_UNANSWERED_MS_MAX: u64 = 60;

/// A client.
#[derive(Debug)]
pub struct Writer {
    site: Arc<Site>,
    index: usize,
    random: Random,
    client: Client,
    /// Last known tag and revision of each object.
    known: BTreeMap<String, (String, u64)>,
    written: u64,
    operations: Vec<Operation>,
}

/// A request with the context needed to interpret its response.
struct Question {
    call: Call,
    asked: Asked,
    is_patch: bool,
}

impl Writer {
    /// Creates a client of a round.
    ///
    /// # Errors
    /// Returns an error if the client cannot be created.
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

    /// Creates an object unknown to other clients, and returns its revision if the server confirms it.
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
            Answer::Accepted(revision) => Some(revision),
            Answer::Refused(_)
            | Answer::Unknown
            | Answer::Object(_)
            | Answer::Listing { .. }
            | Answer::Unexpected(_) => None,
        }
    }

    /// Lists all objects.
    pub async fn list(&mut self, server: usize, at_least: Option<u64>) {
        let question = self.listing(at_least);
        self.ask(server, question).await;
    }

    /// Returns the recorded operations.
    #[must_use]
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }

    /// Sends a request and returns true if there was a response.
    async fn ask(&mut self, server: usize, question: Question) -> bool {
        let Question { call, asked, is_patch } = question;
        let begin = self.site.now();
        let reply = self.site.call(&self.client, server, call).await;
        let end = self.site.now();
        let answer = match (&reply, &asked) {
            (Ok(reply), _) => self.understand(&asked, is_patch, reply),
            (Err(error), Asked::Write { .. }) if is_unsent(error) => Answer::Refused(Refusal::Busy),
            (Err(_), Asked::Write { .. } | Asked::Read { .. } | Asked::List { .. }) => Answer::Unknown,
        };
        self.operations.push(Operation { client: self.index, server, begin, end, asked, answer });
        reply.is_ok()
    }

    /// Chooses the next request.
    fn question(&mut self) -> Question {
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
                let at_least = self.at_least();
                let call = Call { path: self.path(&key), at_least, ..Call::default() };
                Question { call, asked: Asked::Read { key, at_least }, is_patch: false }
            }
            _ => {
                let at_least = self.at_least();
                self.listing(at_least)
            }
        }
    }

    fn creation(&self, key: &str, value: &str, address: Option<String>) -> Question {
        let body = Some(self.site.object(key, value, address.as_deref()));
        let call = Call { method: Method::POST, path: self.site.collection(), body, ..Call::default() };
        let change = Change { key: key.to_owned(), value: Some(value.to_owned()), address };
        let asked = Asked::Write { changes: vec![change], demand: Demand::Absent };
        Question { call, asked, is_patch: false }
    }

    fn replacement(&mut self, key: String, value: String) -> Question {
        let (if_match, demand) = self.precondition(&key, 70);
        let call = Call {
            method: Method::PUT,
            path: self.path(&key),
            if_match: Some(if_match.unwrap_or_else(|| "*".to_owned())),
            body: Some(self.site.object(&key, &value, None)),
            ..Call::default()
        };
        let changes = vec![Change { key, value: Some(value), address: None }];
        Question { call, asked: Asked::Write { changes, demand }, is_patch: false }
    }

    fn patch(&self, key: String, value: String) -> Question {
        let body = Some(self.site.patch(&value));
        let call = Call { method: Method::PATCH, path: self.path(&key), body, ..Call::default() };
        let changes = vec![Change { key, value: Some(value), address: None }];
        Question { call, asked: Asked::Write { changes, demand: Demand::Present }, is_patch: true }
    }

    fn deletion(&mut self, key: String) -> Question {
        let (if_match, demand) = self.precondition(&key, 40);
        let call = Call { method: Method::DELETE, path: self.path(&key), if_match, ..Call::default() };
        let changes = vec![Change { key, value: None, address: None }];
        Question { call, asked: Asked::Write { changes, demand }, is_patch: false }
    }

    fn apply(&mut self, key: String, value: String) -> Question {
        let other = self.key();
        let mut changes = vec![Change { key, value: Some(value), address: None }];
        if other != changes[0].key {
            changes.push(Change { key: other, value: Some(self.value()), address: None });
        }
        let object = |change: &Change| {
            self.site.object(&change.key, change.value.as_deref().unwrap_or_default(), None)
        };
        let body = Some(changes.iter().map(object).collect());
        let call = Call { method: Method::POST, path: "/v1/apply".to_owned(), body, ..Call::default() };
        Question { call, asked: Asked::Write { changes, demand: Demand::Nothing }, is_patch: false }
    }

    fn listing(&self, at_least: Option<u64>) -> Question {
        let call = Call { path: self.site.collection(), at_least, ..Call::default() };
        Question { call, asked: Asked::List { at_least }, is_patch: false }
    }

    /// Returns, with some probability, the precondition that the object is unchanged since it was last seen.
    fn precondition(&mut self, key: &str, percent: u64) -> (Option<String>, Demand) {
        match self.known.get(key).filter(|_| self.random.chance(percent)) {
            Some((tag, revision)) => (Some(tag.clone()), Demand::Revision(*revision)),
            None => (None, Demand::Present),
        }
    }

    /// Returns, at times, the newest known revision, possibly from another server.
    fn at_least(&mut self) -> Option<u64> {
        let newest = self.known.values().map(|(_, revision)| *revision).max();
        newest.filter(|_| self.random.chance(40))
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

    fn understand(&mut self, asked: &Asked, is_patch: bool, reply: &Reply) -> Answer {
        match asked {
            Asked::List { .. } => {
                let answer = self.site.listing(reply);
                if let Answer::Listing { objects, .. } = &answer {
                    // The tags of deleted objects are discarded.
                    self.known.retain(|key, _| objects.contains_key(key));
                }
                answer
            }
            Asked::Read { key, .. } => match (reply.status, state(&reply.body)) {
                (200, Some(seen)) => {
                    self.learn(key, reply, seen.revision);
                    Answer::Object(Some(seen))
                }
                (404, _) => Answer::Object(None),
                (503, _) => Answer::Unknown,
                _ => unexpected(reply),
            },
            Asked::Write { changes, .. } => {
                let answer = written(reply, is_patch);
                if let (Answer::Accepted(revision), [change]) = (&answer, &changes[..])
                    && change.value.is_some()
                {
                    self.learn(&change.key, reply, *revision);
                }
                answer
            }
        }
    }

    fn learn(&mut self, key: &str, reply: &Reply, revision: u64) {
        if let Some(tag) = &reply.etag {
            self.known.insert(key.to_owned(), (tag.clone(), revision));
        }
    }
}

/// True if the request was not sent: there was no connection.
fn is_unsent(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(client::http::is_definitely_unsent))
}

/// Interprets the response to a write.
fn written(reply: &Reply, is_patch: bool) -> Answer {
    let code = reply.body["code"].as_str().unwrap_or_default();
    let pointer = reply.body["errors"][0]["pointer"].as_str().unwrap_or_default();
    match (reply.status, reply.revision, code) {
        (200 | 201, Some(revision), _) => Answer::Accepted(revision),
        (404, _, "NotFound") => Answer::Refused(Refusal::Absent),
        (409, _, "AlreadyExists") => Answer::Refused(Refusal::Present),
        // A patch has no precondition; it lost several races in a row.
        (412, _, _) if is_patch => Answer::Refused(Refusal::Busy),
        (412, _, _) => Answer::Refused(Refusal::Changed),
        (422, _, _) if pointer.starts_with("/spec/clusterIP") => Answer::Refused(Refusal::Taken),
        (429, _, _) => Answer::Refused(Refusal::Busy),
        (503, _, _) => Answer::Unknown,
        _ => unexpected(reply),
    }
}
