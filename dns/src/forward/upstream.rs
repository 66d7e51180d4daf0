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
use nix::errno::Errno;
use prometheus_client::metrics::counter::Counter;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    exchange::{ServerResponse, Spelling, exchange},
    health::ServerHealth,
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
/// Minimum time of a question without a response that counts as a failure of the server. A question that waited in the queue may have
/// less time.
const BLAMED_TIME_MIN: Duration = Duration::from_secs(1);
/// Time for which names are sent to a server in their original spelling after it did not keep another one.
const ORIGINAL_SPELLING_TIME: Duration = Duration::from_secs(300);
/// Delay after an error of this machine, such as a lack of files, before the servers are asked again.
const LOCAL_ERROR_PAUSE: Duration = Duration::from_millis(50);
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

/// Options of the servers of all zones.
#[derive(Debug)]
pub(super) struct UpstreamOptions {
    pub(super) policy: UpstreamPolicy,
    /// Settings of connections over TLS.
    pub(super) tls: Arc<ClientConfig>,
    pub(super) ttl_limits: TtlLimits,
    /// Counts questions in the original spelling.
    pub(super) original_spellings: Counter,
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
    original_spellings: Counter,
}

/// Results of earlier questions to a server.
#[derive(Debug, Default)]
struct UpstreamHistory {
    health: ServerHealth,
    /// Moving average of the response times. `None` before the first response.
    response_time: Option<Duration>,
    /// Time until which names are sent in their original spelling.
    original_spelling_until: Option<Instant>,
}

/// State of a server in an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamStatus {
    pub(super) server: DnsUpstream,
    /// Moving average of the response times. `None` before the first response.
    pub(super) response_time: Option<Duration>,
    /// Time for which names are sent in their original spelling. `None` if they are spelled at random.
    pub(super) original_spelling: Option<Duration>,
}

/// Outcome of a question to one server.
#[derive(Debug)]
enum ServerOutcome {
    Reply(Reply),
    /// The response has no meaning.
    Malformed,
    /// There is no response.
    Silent(io::Error),
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
    /// No server sent a valid response to the same question shortly before.
    #[error("no upstream server responded shortly before")]
    FailedBefore,
    /// No server sent a valid response.
    #[error("no upstream server responded")]
    Unanswered(#[source] Option<io::Error>),
}

impl Upstreams {
    /// Creates the state of the servers for the names in `zone`.
    pub(super) fn new((zone, servers): (&Name, Vec<UpstreamServer>), options: &UpstreamOptions) -> Self {
        let UpstreamOptions { policy, tls, ttl_limits, original_spellings } = options;
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
            let original_spellings = original_spellings.clone();
            Upstream { index, setting, transport, history: Mutex::default(), original_spellings }
        };
        let servers = servers.into_iter().enumerate().map(server).collect();
        Self { servers, policy: *policy, loops, ttl_limits: *ttl_limits, random: RandomWords::default() }
    }

    /// Asks the servers one after another until `deadline`, in the order of the policy and first those that are not avoided, and
    /// returns the first response that is no failure. Servers that do not respond are asked again, because packets may be lost.
    ///
    /// # Errors
    /// Returns an error if no server sent a valid response.
    pub(super) async fn ask(&self, key: &QuestionKey, deadline: Instant) -> Result<Reply, ForwardError> {
        let (mut failure, mut last) = (None, None);
        let mut servers: Vec<_> = self.in_order(&mut fastrand::Rng::new()).collect();
        while !servers.is_empty() && failure.is_none() && Instant::now() < deadline {
            let mut again = Vec::new();
            for server in servers {
                match self.ask_one(server, key, deadline).await? {
                    ServerOutcome::Reply(reply) if reply.kind == ReplyKind::Failure => {
                        failure = failure.or(Some(reply));
                    }
                    ServerOutcome::Reply(reply) => return Ok(reply),
                    ServerOutcome::Malformed => {}
                    ServerOutcome::Silent(error) => {
                        if is_local(&error) {
                            sleep(LOCAL_ERROR_PAUSE).await;
                        }
                        if is_local(&error) || error.kind() == io::ErrorKind::TimedOut {
                            again.push(server);
                        }
                        last = Some(error);
                    }
                }
            }
            servers = again;
        }
        failure.ok_or(ForwardError::Unanswered(last))
    }

    /// Asks one server, and records the outcome.
    async fn ask_one(
        &self,
        server: &Upstream,
        key: &QuestionKey,
        deadline: Instant,
    ) -> Result<ServerOutcome, ForwardError> {
        let packet = key.encode(self.random.id()).ok_or(ForwardError::Malformed)?;
        let start = Instant::now();
        server.history().health.begin(start);
        let response = server.exchange(&packet, deadline, &self.random).await;
        let duration = start.elapsed();
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(upstream = server.setting, %error, "an upstream server did not answer");
                let is_timeout = error.kind() == io::ErrorKind::TimedOut;
                if is_timeout {
                    self.loops.suspect(server.index);
                }
                if !is_local(&error) && (!is_timeout || duration >= BLAMED_TIME_MIN) {
                    server.note_failure(start, &error);
                    server.note_time(RESPONSE_TIME_MAX);
                }
                return Ok(ServerOutcome::Silent(error));
            }
        };
        server.history().health.succeed();
        let reply = Reply::parse(key, &response, self.ttl_limits);
        let is_good = reply.as_ref().is_some_and(|reply| reply.kind != ReplyKind::Failure);
        server.note_time(if is_good { duration } else { RESPONSE_TIME_MAX });
        Ok(reply.map_or_else(
            || {
                tracing::debug!(upstream = server.setting, "the response of an upstream server is malformed");
                ServerOutcome::Malformed
            },
            ServerOutcome::Reply,
        ))
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
            let UpstreamHistory { health, response_time, original_spelling_until } = &*server.history();
            let response_time = *response_time;
            let original_spelling =
                original_spelling_until.and_then(|until| until.checked_duration_since(Instant::now()));
            let state = match (self.loops.is_looping(server.index), health.is_failing()) {
                (true, _) => DnsUpstreamState::Looping,
                (false, true) => DnsUpstreamState::Failing,
                (false, false) => DnsUpstreamState::Ok,
            };
            let server = DnsUpstream { server: server.setting.clone(), state };
            UpstreamStatus { server, response_time, original_spelling }
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
            // Any response shows that the server works. There is none if the server does not know the name.
            let deadline = Instant::now() + RESPONSE_TIME_MAX;
            let has_responded = server.exchange(&packet, deadline, &self.random).await.is_ok();
            let health = &mut server.history().health;
            if has_responded {
                health.succeed();
            } else if health.is_failing() {
                self.loops.suspect(server.index);
            }
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
    async fn exchange(&self, packet: &[u8], deadline: Instant, random: &RandomWords) -> io::Result<Vec<u8>> {
        match &self.transport {
            UpstreamTransport::Plain(address) => {
                let spelling = self.spelling();
                let asked = exchange(*address, (packet, spelling), deadline, || random.word());
                let ServerResponse { response, spelling } = asked.await?;
                if spelling == Spelling::Original {
                    self.note_original_spelling();
                }
                Ok(response)
            }
            UpstreamTransport::Tls(server) => timeout_at(deadline, server.ask(packet)).await?,
        }
    }

    fn spelling(&self) -> Spelling {
        let until = self.history().original_spelling_until;
        if until.is_some_and(|until| Instant::now() < until) { Spelling::Original } else { Spelling::Random }
    }

    /// Counts a question in the original spelling, and sends the next ones in it for a time.
    fn note_original_spelling(&self) {
        self.original_spellings.inc();
        let until = &mut self.history().original_spelling_until;
        if until.is_none_or(|until| until <= Instant::now()) {
            *until = Some(Instant::now() + ORIGINAL_SPELLING_TIME);
            tracing::warn!(
                upstream = self.setting,
                "the upstream server changes the spelling of names and has no TCP, so forged responses are easier: use \
                 another server, or TLS"
            );
        }
    }

    fn history(&self) -> MutexGuard<'_, UpstreamHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rank(&self) -> ServerRank {
        let UpstreamHistory { health, response_time, .. } = &*self.history();
        let is_avoided = health.is_avoided(Instant::now());
        ServerRank { index: self.index, is_avoided, response_time: *response_time }
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

    /// Records an error. Logs the error of TLS, such as an invalid certificate, if the server responded before: the server must
    /// be corrected, or its setting.
    fn note_failure(&self, start: Instant, error: &io::Error) {
        let health = &mut self.history().health;
        let was_failing = health.is_failing();
        health.fail(start, Instant::now());
        let is_tls = error.get_ref().is_some_and(|error| error.is::<rustls::Error>());
        if is_tls && !was_failing {
            tracing::warn!(upstream = self.setting, %error, "an upstream server cannot be used over TLS");
        }
    }
}

/// Returns true if an error is one of this machine, and not of the server.
fn is_local(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    let local = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL];
    code.is_some_and(|code| local.contains(&code))
}
