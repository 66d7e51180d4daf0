//! Explanation of the handling of a name that is asked of upstream servers.

use std::time::Duration;

use clap::ValueEnum as _;
use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{Name, RecordType},
};
use model::wire::dns_server::DnsUpstreamState;
use serde::Serialize;

use super::{
    Forwarder, ForwarderState, cache::CachedReply, failures::Failure, upstream::UpstreamStatus,
    zones::NameServers,
};
use crate::message::QuestionKey;

/// Name that is asked of upstream servers, with their states and the cached response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForwardedName {
    /// Complete name that is asked.
    name: String,
    /// Longest zone of `--upstream` that contains the name; `.` for all names.
    zone: String,
    /// Order in which the servers are asked.
    policy: String,
    /// Servers of the zone in the order of the setting.
    servers: Vec<ForwardingServer>,
    cache: CachedState,
}

/// Upstream server with its state.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ForwardingServer {
    /// Server as in `--upstream`.
    server: String,
    state: DnsUpstreamState,
    /// Moving average of the response times in microseconds, in which a failure counts as 2 s. Absent before the first question.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_micros: Option<u64>,
    /// Time in seconds for which names are sent in their original spelling, because the server changes the spelling and cannot be asked
    /// over TCP. Absent if names are spelled at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    original_spelling_secs: Option<u64>,
}

/// State of the cached response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
enum CachedState {
    /// No response is cached: the servers are asked.
    Missing,
    /// The servers failed to answer the question shortly before, and are not asked.
    Failed {
        /// Time in milliseconds until the servers are asked again.
        remaining_millis: u64,
        /// Number of questions that failed without a question to the servers.
        uses: u32,
        /// Response code, such as SERVFAIL.
        code: String,
    },
    /// A response answers the question without the servers.
    Fresh {
        /// Time in seconds until the response expires.
        remaining_secs: u64,
        /// Number of questions that were answered with it.
        uses: u32,
        /// Response code, such as NXDOMAIN.
        code: String,
        /// Records of all sections in the presentation format of DNS.
        records: Vec<String>,
    },
    /// A response has expired: the servers are asked, and it is used if they fail.
    Stale {
        /// Time in seconds for which the response is still used.
        usable_secs: u64,
        /// Response code, such as NXDOMAIN.
        code: String,
        /// Records of all sections in the presentation format of DNS.
        records: Vec<String>,
    },
}

impl Forwarder {
    /// Explains the handling of a question. `None` if no server is asked for the name. Uses nothing in the cache.
    pub(crate) fn explain(&self, name: &Name, record_type: RecordType) -> Option<ForwardedName> {
        let key = QuestionKey::plain(name, record_type);
        let NameServers { zone, upstreams, .. } = self.0.upstreams.of(&key.name)?;
        let now = self.0.now();
        let ForwarderState { cache, failures, .. } = &mut *self.0.lock();
        let cached = match cache.inspect(&key, zone, now) {
            Some(cached) => state(cached),
            None => failures.inspect(&key, now).map_or(CachedState::Missing, |failure| failed(&failure, now)),
        };
        let policy = upstreams.policy().to_possible_value();
        Some(ForwardedName {
            name: text_of(&key.name),
            zone: text_of(zone),
            policy: policy.map(|policy| policy.get_name().to_owned()).unwrap_or_default(),
            servers: upstreams.statuses().into_iter().map(server).collect(),
            cache: cached,
        })
    }
}

fn server(status: UpstreamStatus) -> ForwardingServer {
    let UpstreamStatus { server, response_time, original_spelling } = status;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    ForwardingServer {
        server: server.server,
        state: server.state,
        response_micros: response_time.map(micros),
        original_spelling_secs: original_spelling.map(|time| time.as_secs()),
    }
}

fn state(cached: CachedReply) -> CachedState {
    let CachedReply { bytes, remaining, usable, uses } = cached;
    let (code, records) = content(&bytes);
    match remaining {
        Some(remaining) => CachedState::Fresh { remaining_secs: remaining.as_secs(), uses, code, records },
        None => CachedState::Stale { usable_secs: usable.as_secs(), code, records },
    }
}

fn failed(failure: &Failure, now: Duration) -> CachedState {
    let code = failure.reply.as_ref().map(|reply| content(&reply.aged(0)).0);
    CachedState::Failed {
        remaining_millis: u64::try_from(failure.remaining(now).as_millis()).unwrap_or(u64::MAX),
        uses: failure.uses,
        code: code.unwrap_or_else(|| "SERVFAIL".to_owned()),
    }
}

/// Returns the response code and the records of a message.
fn content(bytes: &[u8]) -> (String, Vec<String>) {
    let Ok(message) = Message::from_vec(bytes) else { return (String::new(), Vec::new()) };
    let names = [
        (ResponseCode::NoError, "NOERROR"),
        (ResponseCode::NXDomain, "NXDOMAIN"),
        (ResponseCode::ServFail, "SERVFAIL"),
        (ResponseCode::Refused, "REFUSED"),
    ];
    let code = message.metadata.response_code;
    let name = names.iter().find(|(known, _)| *known == code).map(|(_, name)| (*name).to_owned());
    let code = name.unwrap_or_else(|| code.to_string());
    let records = message.answers.iter().chain(&message.authorities).chain(&message.additionals);
    (code, records.map(ToString::to_string).collect())
}

/// Returns a name without the final dot; `.` for the root.
fn text_of(name: &Name) -> String {
    let text = name.to_ascii();
    if text == "." { text } else { text.trim_end_matches('.').to_owned() }
}
