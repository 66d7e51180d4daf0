//! Forwarding of questions to upstream servers, with a cache.
//!
//! A question whose response is cached is answered at once. Other questions wait until an upstream server responds, for a limited
//! time: equal ones together, and different ones in a queue of limited length for each zone of upstream servers, so that servers that
//! do not respond delay no question for others. If the servers fail or take too long, an expired response is served (RFC 8767).

mod cache;
mod exchange;
mod explain;
mod failures;
mod flights;
mod health;
mod loops;
pub(crate) mod lru;
mod order;
mod tls;
mod upstream;
mod zones;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hickory_proto::rr::Name;
use model::wire::dns_server::DnsUpstream;
use rustls::ClientConfig;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

pub(crate) use self::{cache::CacheOptions, explain::ForwardedName, upstream::ForwardError};
use self::{
    cache::{Cache, LookupResult},
    failures::{Failure, FailureCache},
    flights::{FlightLimits, Flights, JoinResult},
    upstream::UpstreamOptions,
    zones::{NameServers, UpstreamZones},
};
use crate::{
    args::{UpstreamPolicy, UpstreamSetting},
    message::{PlainRequest, QuestionKey, Reply, ReplyKind, ServedReply},
    metrics::{Metrics, Outcome},
};

/// Limits on questions that wait for the upstream servers of one zone.
const LIMITS: FlightLimits = FlightLimits { asked: 1000, waiting: 10_000, time: QUESTION_TIME_MAX };
/// Maximum time for a question, in the queue and with all upstream servers. Resolvers repeat a question after 5 s.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Time after which an expired response is served instead of waiting longer (RFC 8767 §5).
const STALE_DELAY: Duration = Duration::from_millis(1800);
/// Interval of checks for loops, which include only servers that may have one.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Client of the upstream servers. Clones share all state.
#[derive(Debug, Clone)]
pub(crate) struct Forwarder(Arc<ForwarderCore>);

#[derive(Debug)]
struct ForwarderCore {
    upstreams: UpstreamZones,
    start: Instant,
    state: Mutex<ForwarderState>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct ForwarderState {
    cache: Cache,
    failures: FailureCache,
    /// Waiting questions of each zone.
    flights: Vec<Flights<oneshot::Sender<SharedReply>>>,
}

/// Response of the upstream servers for all clients that wait for it; `None` if they failed.
type SharedReply = Option<Arc<Reply>>;

/// Response to a forwarded question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForwardedReply {
    /// Response in a form that is independent of the client.
    pub(crate) served: ServedReply,
    /// Result by which the question is counted.
    pub(crate) outcome: Outcome,
}

impl ForwardedReply {
    const fn cached(served: ServedReply) -> Self {
        let outcome = if served.is_stale { Outcome::Stale } else { Outcome::Cached };
        Self { served, outcome }
    }

    fn from_upstream(reply: &Reply) -> Self {
        let served = ServedReply { bytes: reply.aged(0), is_stale: false };
        Self { served, outcome: Outcome::Forwarded }
    }
}

/// Returns the response with a cached failure.
///
/// # Errors
/// Returns an error if no upstream server responded.
fn cached_failure(failure: &Failure) -> Result<ForwardedReply, ForwardError> {
    let reply = failure.reply.as_ref().ok_or(ForwardError::FailedBefore)?;
    let served = ServedReply { bytes: reply.aged(0), is_stale: false };
    Ok(ForwardedReply { served, outcome: Outcome::CachedFailure })
}

impl Forwarder {
    /// Creates a client of upstream servers, which are asked in the order of the policy. Those over TLS are verified by
    /// `tls`. Returns `None` without servers.
    pub(crate) fn new(
        (upstreams, policy): (Vec<UpstreamSetting>, UpstreamPolicy),
        tls: &Arc<ClientConfig>,
        options: CacheOptions,
        metrics: Arc<Metrics>,
    ) -> Option<Self> {
        if upstreams.is_empty() {
            return None;
        }
        let upstream_options = UpstreamOptions {
            policy,
            tls: Arc::clone(tls),
            ttl_limits: options.ttl_limits,
            original_spellings: metrics.upstream_original_spellings.clone(),
        };
        let upstreams = UpstreamZones::new(upstreams, &upstream_options);
        let flights = std::iter::repeat_with(|| Flights::new(LIMITS)).take(upstreams.len()).collect();
        let state = ForwarderState { cache: Cache::new(options), failures: FailureCache::default(), flights };
        Some(Self(Arc::new(ForwarderCore {
            upstreams,
            start: Instant::now(),
            state: Mutex::new(state),
            metrics,
        })))
    }

    /// Returns true if a server is asked for a name.
    pub(crate) fn has_server_for(&self, name: &Name) -> bool {
        self.0.upstreams.of(name).is_some()
    }

    /// Returns the cached response to a question, or the failure shortly before, if the upstream servers need not be asked first.
    /// Renews a response in the background that is about to expire.
    pub(crate) fn cached(&self, key: &QuestionKey) -> Option<Result<ForwardedReply, ForwardError>> {
        let NameServers { place, zone, .. } = self.0.upstreams.of(&key.name)?;
        let ForwarderState { cache, failures, flights } = &mut *self.0.lock();
        let now = self.0.now();
        match cache.find_in(key, zone, now) {
            LookupResult::Fresh { served, is_due } => {
                let flights = flights.get_mut(place).filter(|_| is_due);
                if flights.is_some_and(|flights| flights.join(key, now, None) == JoinResult::Ask) {
                    self.0.metrics.cache_renewals.inc();
                    self.spawn(key.clone(), now);
                }
                Some(Ok(ForwardedReply::cached(served)))
            }
            LookupResult::Stale { served, is_due: false } => Some(Ok(ForwardedReply::cached(served))),
            LookupResult::Stale { .. } => None,
            LookupResult::Missing => failures.find(key, now).map(cached_failure),
        }
    }

    /// Finds a cached response that has not expired and need not be renewed, and passes it with its age in seconds to
    /// `write`. Returns true if there is one and `write` does.
    pub(crate) fn find_direct(
        &self,
        question: &PlainRequest<'_>,
        write: impl FnOnce(&Reply, u32) -> bool,
    ) -> bool {
        let now = self.0.now();
        self.0.lock().cache.find_direct(question, now, write)
    }

    /// Returns the response to a question, from the cache or the upstream servers.
    ///
    /// # Errors
    /// Returns an error if no upstream server responds, or did shortly before, and nothing is cached, or too many questions wait.
    pub(crate) async fn ask(&self, key: &QuestionKey) -> Result<ForwardedReply, ForwardError> {
        let (sender, receiver) = oneshot::channel();
        let unanswered = ForwardError::Unanswered(None);
        let Some(NameServers { place, zone, .. }) = self.0.upstreams.of(&key.name) else {
            return Err(unanswered);
        };
        let patience = {
            let ForwarderState { cache, failures, flights } = &mut *self.0.lock();
            let Some(flights) = flights.get_mut(place) else { return Err(unanswered) };
            let now = self.0.now();
            let found = cache.find_in(key, zone, now);
            let stale = match found {
                LookupResult::Fresh { served, .. } | LookupResult::Stale { served, is_due: false } => {
                    return Ok(ForwardedReply::cached(served));
                }
                LookupResult::Stale { served, is_due: true } => Some(served),
                LookupResult::Missing => match failures.find(key, now) {
                    Some(failure) => return cached_failure(failure),
                    None => None,
                },
            };
            let start = match (flights.join(key, now, Some(sender)), &stale) {
                (JoinResult::Ask, _) => {
                    self.spawn(key.clone(), now);
                    now
                }
                (JoinResult::Wait(start), _) => start,
                (JoinResult::Full, Some(stale)) => return Ok(ForwardedReply::cached(stale.clone())),
                (JoinResult::Full, None) => return Err(ForwardError::Busy),
            };
            if stale.is_some() { (start + STALE_DELAY).saturating_sub(now) } else { QUESTION_TIME_MAX }
        };
        let outcome = timeout(patience, receiver).await.ok().and_then(Result::ok).flatten();
        if let Some(reply) = outcome.as_ref().filter(|reply| reply.kind != ReplyKind::Failure) {
            return Ok(ForwardedReply::from_upstream(reply));
        }
        match (self.0.lock().cache.stale(key, self.0.now()), outcome) {
            (LookupResult::Fresh { served, .. } | LookupResult::Stale { served, .. }, _) => {
                Ok(ForwardedReply::cached(served))
            }
            (LookupResult::Missing, Some(failure)) => Ok(ForwardedReply::from_upstream(&failure)),
            (LookupResult::Missing, None) => Err(unanswered),
        }
    }

    /// Returns the upstream servers with their states, those of the longest zones first.
    pub(crate) fn upstream_states(&self) -> Vec<DnsUpstream> {
        self.0.upstreams.states()
    }

    /// Returns true if a question is one of the checks for loops that came back through an upstream server.
    pub(crate) fn is_loop_check(&self, name: &Name) -> bool {
        self.0.upstreams.is_loop_check(name)
    }

    /// Checks the upstream servers for loops until the task is cancelled.
    pub(crate) async fn watch_loops(&self) {
        loop {
            let looping = self.0.upstreams.check_loops().await;
            self.0.metrics.upstream_loops.set(i64::try_from(looping).unwrap_or(i64::MAX));
            sleep(LOOP_CHECK_INTERVAL).await;
        }
    }

    /// Asks the upstream servers in the background a question of which the first client came at `start`, and then those in the queue
    /// of its zone, one after another. Goes on if the client that asked first is gone.
    fn spawn(&self, key: QuestionKey, start: Duration) {
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut next = Some((key, start));
            while let Some((key, start)) = next
                && let Some(NameServers { place, upstreams, .. }) = shared.upstreams.of(&key.name)
            {
                shared.metrics.upstream_questions.inc();
                let deadline = shared.start + start + QUESTION_TIME_MAX;
                let outcome = upstreams.ask(&key, deadline).await;
                next = shared.end(place, &key, outcome);
            }
        });
    }
}

impl ForwarderCore {
    /// Time since the start.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, ForwarderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the response to a question for the zone at `place` and passes it to all clients that wait for it. Returns the next
    /// question for the zone, with the time of its first client.
    fn end(
        &self,
        place: usize,
        key: &QuestionKey,
        outcome: Result<Reply, ForwardError>,
    ) -> Option<(QuestionKey, Duration)> {
        let outcome =
            outcome.inspect_err(|error| tracing::debug!(%error, name = %key.name, "a question failed"));
        let reply = outcome.ok().map(Arc::new);
        let mut state = self.lock();
        let now = self.now();
        match &reply {
            Some(reply) if reply.kind != ReplyKind::Failure => {
                state.failures.succeed(key);
                let evicted = state.cache.store(key, Reply::clone(reply), now);
                self.metrics.cache_evictions.inc_by(u64::try_from(evicted).unwrap_or(u64::MAX));
            }
            Some(_) | None => {
                self.metrics.upstream_failures.inc();
                state.cache.fail(key, now);
                state.failures.fail(key, reply.clone(), now);
            }
        }
        let (clients, next) = state.flights.get_mut(place).map(|flights| flights.end(key, now))?;
        self.metrics.set_cache(state.cache.sizes(), state.flights.iter().map(Flights::asked).sum());
        drop(state);
        for client in clients {
            // A client that is gone needs no response.
            let _ = client.send(reply.clone());
        }
        next
    }
}

#[cfg(test)]
mod tests;
