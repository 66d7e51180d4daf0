//! Upstream servers of one zone: the order in which they are asked, by the policy and the results of earlier questions.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hickory_proto::rr::Name;
use model::wire::dns_server::{DnsUpstream, DnsUpstreamState};
use rustls::ClientConfig;
use tokio::time::Instant;

use super::{
    exchange::exchange,
    loops::LoopGuard,
    order::{ServerRank, order},
    tls::TlsServer,
};
use crate::{
    args::{UpstreamPolicy, UpstreamServer},
    message::{QuestionKey, Reply, ReplyKind, TtlLimits},
};

/// Maximum time for the response of one server.
pub(super) const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Time for which a server that did not respond is asked after the others.
const AVOIDANCE: Duration = Duration::from_secs(10);
/// Part of the difference by which a response time changes the average: one of this number.
const AVERAGE_PART: u32 = 8;

/// Upstream servers of one zone.
#[derive(Debug)]
pub(super) struct Upstreams {
    servers: Vec<Upstream>,
    policy: UpstreamPolicy,
    loops: LoopGuard,
    ttl_limits: TtlLimits,
    random: RandomWords,
}

/// Random numbers that cannot be predicted, for the ids and spellings of questions.
#[derive(Debug, Default)]
struct RandomWords {
    secret: RandomState,
    count: AtomicU64,
}

#[derive(Debug)]
struct Upstream {
    index: usize,
    /// Setting of the server, for the log.
    setting: String,
    transport: UpstreamTransport,
    history: Mutex<UpstreamHistory>,
}

/// Results of earlier questions to a server.
#[derive(Debug, Default)]
struct UpstreamHistory {
    avoided_until: Option<Instant>,
    /// Moving average of the response times. `None` before the first response.
    response_time: Option<Duration>,
}

/// State of a server in an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamStatus {
    pub(super) server: DnsUpstream,
    /// Moving average of the response times. `None` before the first response.
    pub(super) response_time: Option<Duration>,
}

/// Transport over which a server is asked.
#[derive(Debug)]
enum UpstreamTransport {
    Plain(SocketAddr),
    Tls(Box<TlsServer>),
}

/// Reason why no upstream server answered a question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// Too many questions wait already.
    #[error("too many questions wait for upstream servers")]
    Busy,
    /// The question cannot be encoded.
    #[error("the question cannot be encoded")]
    Malformed,
    /// No server sent a valid response.
    #[error("no upstream server responded")]
    Unanswered(#[source] Option<io::Error>),
}

impl Upstreams {
    /// Creates the state of the servers for the names in `zone`. Those over TLS are verified by `tls`.
    pub(super) fn new(
        (zone, servers): (&Name, Vec<UpstreamServer>),
        policy: UpstreamPolicy,
        tls: &Arc<ClientConfig>,
        ttl_limits: TtlLimits,
    ) -> Self {
        let loops = LoopGuard::new(servers.len(), zone);
        let server = |(index, server): (usize, UpstreamServer)| {
            let setting = if zone.is_root() {
                server.to_string()
            } else {
                format!("{}={server}", zone.to_ascii().trim_end_matches('.'))
            };
            let transport = match server {
                UpstreamServer::Plain(address) => UpstreamTransport::Plain(address),
                UpstreamServer::Tls(address, name) => {
                    UpstreamTransport::Tls(Box::new(TlsServer::new(address, name, Arc::clone(tls))))
                }
            };
            Upstream { index, setting, transport, history: Mutex::default() }
        };
        let servers = servers.into_iter().enumerate().map(server).collect();
        Self { servers, policy, loops, ttl_limits, random: RandomWords::default() }
    }

    /// Asks the servers one after another, in the order of the policy and first those that responded last time, and returns
    /// the first response that is no failure.
    ///
    /// # Errors
    /// Returns an error if no server sent a valid response.
    pub(super) async fn ask(&self, key: &QuestionKey) -> Result<Reply, ForwardError> {
        let (mut failure, mut last) = (None, None);
        for server in self.in_order(&mut fastrand::Rng::new()) {
            let packet = key.encode(self.random.id()).ok_or(ForwardError::Malformed)?;
            let start = Instant::now();
            let response = server.exchange(&packet, &self.random).await;
            let duration = start.elapsed();
            server.note_outcome(response.as_ref().err());
            match response.map(|response| Reply::parse(key, &response, self.ttl_limits)) {
                Ok(Some(reply)) if reply.kind == ReplyKind::Failure => {
                    server.note_time(RESPONSE_TIME_MAX);
                    failure = failure.or(Some(reply));
                }
                Ok(Some(reply)) => {
                    server.note_time(duration);
                    return Ok(reply);
                }
                Ok(None) => {
                    server.note_time(RESPONSE_TIME_MAX);
                    tracing::debug!(
                        upstream = server.setting,
                        "the response of an upstream server is malformed"
                    );
                }
                Err(error) => {
                    server.note_time(RESPONSE_TIME_MAX);
                    tracing::debug!(upstream = server.setting, %error, "an upstream server did not answer");
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.loops.suspect(server.index);
                    }
                    last = Some(error);
                }
            }
        }
        failure.ok_or(ForwardError::Unanswered(last))
    }

    /// Returns the servers in the order in which they are asked now, without those that have a loop.
    fn in_order(&self, random: &mut fastrand::Rng) -> impl Iterator<Item = &Upstream> {
        let usable = self.servers.iter().filter(|server| !self.loops.is_looping(server.index));
        let order = order(self.policy, usable.map(Upstream::rank).collect(), random);
        order.into_iter().filter_map(|index| self.servers.get(index))
    }

    /// Returns the order in which the servers are asked.
    pub(super) const fn policy(&self) -> UpstreamPolicy {
        self.policy
    }

    /// Returns the servers with their states, in the order of the setting.
    pub(super) fn statuses(&self) -> Vec<UpstreamStatus> {
        let status = |server: &Upstream| {
            let ServerRank { is_avoided, response_time, .. } = server.rank();
            let state = match (self.loops.is_looping(server.index), is_avoided) {
                (true, _) => DnsUpstreamState::Looping,
                (false, true) => DnsUpstreamState::Failing,
                (false, false) => DnsUpstreamState::Ok,
            };
            let server = DnsUpstream { server: server.setting.clone(), state };
            UpstreamStatus { server, response_time }
        };
        self.servers.iter().map(status).collect()
    }

    /// Returns true if a name is that of a check for loops.
    pub(super) fn is_loop_check(&self, name: &Name) -> bool {
        self.loops.observe(name)
    }

    /// Checks the servers that may have a loop. Returns the number of those that have one.
    pub(super) async fn check_loops(&self) -> usize {
        for server in &self.servers {
            let question = self.loops.start(server.index);
            let Some(packet) = question.and_then(|question| question.encode(self.random.id())) else {
                continue;
            };
            // The response does not matter; there is none if the server does not know the name.
            let _ = server.exchange(&packet, &self.random).await;
            match self.loops.end(server.index) {
                Some(true) => tracing::error!(
                    upstream = server.setting,
                    "the upstream server forwards questions back to this server, so it is not used: set --upstream to a \
                     server that does not"
                ),
                Some(false) => {
                    tracing::info!(
                        upstream = server.setting,
                        "the loop through the upstream server has ended"
                    )
                }
                None => {}
            }
        }
        self.loops.looping()
    }
}

impl RandomWords {
    fn word(&self) -> u64 {
        self.secret.hash_one(self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the id of a question: the lowest bits of a word.
    fn id(&self) -> u16 {
        (self.word() & u64::from(u16::MAX)) as u16
    }
}

impl Upstream {
    async fn exchange(&self, packet: &[u8], random: &RandomWords) -> io::Result<Vec<u8>> {
        match &self.transport {
            UpstreamTransport::Plain(address) => exchange(*address, packet, || random.word()).await,
            UpstreamTransport::Tls(server) => server.ask(packet).await,
        }
    }

    fn history(&self) -> MutexGuard<'_, UpstreamHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rank(&self) -> ServerRank {
        let UpstreamHistory { avoided_until, response_time } = *self.history();
        let is_avoided = avoided_until.is_some_and(|until| Instant::now() < until);
        ServerRank { index: self.index, is_avoided, response_time }
    }

    /// Adds the time of a response to the moving average. A failure counts as the maximum time.
    fn note_time(&self, time: Duration) {
        let history = &mut *self.history();
        history.response_time = Some(
            history
                .response_time
                .map_or(time, |average| (average * (AVERAGE_PART - 1) + time) / AVERAGE_PART),
        );
    }

    /// Avoids the server for a time after an error. Logs the error of TLS, such as an invalid certificate, if the server
    /// responded before: the server must be corrected, or its setting.
    fn note_outcome(&self, error: Option<&io::Error>) {
        let until = error.map(|_| Instant::now() + AVOIDANCE);
        let before = std::mem::replace(&mut self.history().avoided_until, until);
        let tls = error.and_then(|error| error.get_ref()?.downcast_ref::<rustls::Error>());
        if let (None, Some(error)) = (before, tls) {
            tracing::warn!(upstream = self.setting, %error, "an upstream server cannot be used over TLS");
        }
    }
}
