//! Queries to agents. A query is sent as a line in the open feed of a node; the agent sends the reply as a PUT
//! request.
//!
//! ```text
//! ask(node, question) ──line──▶ channel of the node ──▶ its open feed ──▶ agent
//!        ▲                                                                │
//!        └───────── waits with a timeout ◀── answer(node, id) ◀── PUT ────┘
//! ```
//! A caller waits for a reply only until a timeout, and a query whose caller no longer waits is dropped. Query ids
//! start at a random number after each start of the server, so that a late reply to a previous process matches no
//! query.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use model::{
    primitives::name::Name,
    wire::{
        ask::{AskId, Question, Reply},
        feed::Frame,
    },
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    base::error::{Code, Problem},
    state::compiled_set::line,
};

/// Maximum number of pending queries per node. An agent processes one query at a time; further ones would
/// time out.
const PER_NODE_MAX: usize = 8;
/// Maximum number of pending queries of all nodes: a few for each node of the largest supported cluster.
const WAITING_MAX: usize = 4096;
/// Maximum size of one query in bytes: enough for the plan of a whole `apply` request, and below the maximum line
/// length of agents.
const QUESTION_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum total size of all pending queries in bytes.
const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Reason why a query to an agent has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// The node has no open feed at this server.
    #[error("the agent is not connected")]
    NotConnected,
    /// The node or the server has reached its limit of pending queries.
    #[error("too many queries are pending")]
    Busy,
    /// The query is longer than [`QUESTION_BYTES_MAX`]. Contains its length in bytes.
    #[error("the query has {0} bytes; an agent accepts at most {QUESTION_BYTES_MAX}")]
    TooLarge(usize),
    /// No reply arrived before the timeout, which the variant contains.
    #[error("the agent did not answer within {} seconds", .0.as_secs())]
    TimedOut(Duration),
}

/// `Retry-After` of a query that is rejected because of a limit, in seconds.
const BUSY_RETRY_SECS: u32 = 1;

impl QueryError {
    /// Converts the error to a problem response that names the node.
    pub(crate) fn problem(self, node: &Name) -> Problem {
        let detail = format!("Node {node}: {self}");
        match self {
            Self::NotConnected | Self::TimedOut(_) => Problem::new(Code::NodeSilent, detail)
                .hint("check `tidegate describe node`, and the agent on the machine"),
            Self::Busy => Problem::new(Code::TooManyRequests, detail).retry_after(BUSY_RETRY_SECS),
            Self::TooLarge(_) => Problem::new(Code::PayloadTooLarge, detail),
        }
    }
}

/// Registry of the open feeds (streams to agents) and the pending queries.
#[derive(Debug)]
pub(crate) struct NodeQueries {
    next: AtomicU64,
    inner: Mutex<QueryTable>,
}

#[derive(Debug, Default)]
struct QueryTable {
    /// Channels to the open feeds, by node.
    posts: BTreeMap<Name, mpsc::Sender<Bytes>>,
    waiting: BTreeMap<AskId, PendingQuery>,
    waiting_bytes: usize,
}

/// Query that waits for the reply of an agent.
#[derive(Debug)]
struct PendingQuery {
    node: Name,
    bytes: usize,
    reply: oneshot::Sender<Reply>,
}

/// Guard that removes a pending query when its caller stops waiting, for example because the client disconnects.
struct PendingGuard<'a> {
    asks: &'a NodeQueries,
    id: AskId,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.asks.lock().forget(self.id);
    }
}

impl QueryTable {
    fn forget(&mut self, id: AskId) -> Option<PendingQuery> {
        let waiting = self.waiting.remove(&id)?;
        self.waiting_bytes -= waiting.bytes;
        Some(waiting)
    }
}

impl NodeQueries {
    /// Creates an empty registry. `secret` determines the first query id.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, ..] = *secret;
        // 48 bits, so that every JSON reader represents an id as an exact integer.
        let first = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Self { next: AtomicU64::new(first), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, QueryTable> {
        // No operation under the lock can panic half way through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the channel of a new feed of `node`. A previous feed of the node receives no more queries.
    pub(crate) fn open(&self, node: &Name) -> mpsc::Receiver<Bytes> {
        let (post, lines) = mpsc::channel(PER_NODE_MAX);
        self.lock().posts.insert(node.clone(), post);
        lines
    }

    /// Removes the channels of closed feeds.
    pub(crate) fn forget_closed(&self) {
        self.lock().posts.retain(|_, post| !post.is_closed());
    }

    /// Sends a query to the agent of a node, and waits for the reply for at most the time `patience`. If the
    /// returned future is dropped, the query is discarded.
    pub(crate) async fn ask(
        &self,
        node: &Name,
        question: Question,
        patience: Duration,
    ) -> Result<Reply, QueryError> {
        let id = AskId(self.next.fetch_add(1, Ordering::Relaxed));
        let line = line(&Frame::Ask { id, question });
        let (reply, answer) = oneshot::channel();
        let _asked = self.put(node, id, line, reply)?;
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) | Err(_) => Err(QueryError::TimedOut(patience)),
        }
    }

    fn put(
        &self,
        node: &Name,
        id: AskId,
        line: Bytes,
        reply: oneshot::Sender<Reply>,
    ) -> Result<PendingGuard<'_>, QueryError> {
        let bytes = line.len();
        if bytes > QUESTION_BYTES_MAX {
            return Err(QueryError::TooLarge(bytes));
        }
        let mut inner = self.lock();
        let of_node = inner.waiting.values().filter(|waiting| waiting.node == *node).count();
        let post = inner.posts.get(node).filter(|post| !post.is_closed()).ok_or(QueryError::NotConnected)?;
        if of_node >= PER_NODE_MAX
            || inner.waiting.len() >= WAITING_MAX
            || inner.waiting_bytes + bytes > WAITING_BYTES_MAX
        {
            return Err(QueryError::Busy);
        }
        post.try_send(line).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => QueryError::Busy,
            mpsc::error::TrySendError::Closed(_) => QueryError::NotConnected,
        })?;
        inner.waiting_bytes += bytes;
        inner.waiting.insert(id, PendingQuery { node: node.clone(), bytes, reply });
        drop(inner);
        Ok(PendingGuard { asks: self, id })
    }

    /// Delivers a reply to the caller that waits for it. Returns false if no caller waits for this reply from this
    /// node.
    pub(crate) fn answer(&self, node: &Name, id: AskId, reply: Reply) -> bool {
        let mut inner = self.lock();
        if inner.waiting.get(&id).is_none_or(|waiting| waiting.node != *node) {
            return false;
        }
        let waiting = inner.forget(id);
        drop(inner);
        waiting.is_some_and(|waiting| waiting.reply.send(reply).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeout of queries in these tests, in which a reply arrives at once or never.
    const PATIENCE: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    fn node(name: &str) -> Name {
        Name::parse(name).unwrap()
    }

    fn asks() -> NodeQueries {
        NodeQueries::new(&[0; 32])
    }

    fn id_of(line: &Bytes) -> AskId {
        let frame: Frame = serde_json::from_slice(line).unwrap();
        let Frame::Ask { id, question: Question::Doctor } = frame else {
            panic!("not the question: {frame:?}")
        };
        id
    }

    #[tokio::test]
    async fn an_answer_reaches_who_asked() {
        let asks = asks();
        let mut feed = asks.open(&node("a"));
        let name = node("a");
        let (reply, ()) = tokio::join!(asks.ask(&name, Question::Doctor, LONG), async {
            let id = id_of(&feed.recv().await.unwrap());
            let of = |findings| Reply::Doctor { findings, clock: None };
            assert!(!asks.answer(&node("b"), id, of(Vec::new())), "another node answers for itself only");
            assert!(asks.answer(&node("a"), id, of(Vec::new())));
            assert!(!asks.answer(&node("a"), id, of(Vec::new())), "once");
        });
        assert_eq!(reply, Ok(Reply::Doctor { findings: Vec::new(), clock: None }));
        let inner = asks.lock();
        assert_eq!((inner.waiting.len(), inner.waiting_bytes), (0, 0));
    }

    #[tokio::test]
    async fn a_node_without_a_feed_is_said_to_be_gone_at_once() {
        let asks = asks();
        let name = node("a");
        let ask = || asks.ask(&name, Question::Doctor, PATIENCE);
        assert_eq!(ask().await, Err(QueryError::NotConnected));
        drop(asks.open(&node("a")));
        assert_eq!(ask().await, Err(QueryError::NotConnected));
        asks.forget_closed();
        assert!(asks.lock().posts.is_empty());
    }

    #[tokio::test]
    async fn what_is_not_answered_is_forgotten() {
        let asks = asks();
        let mut feed = asks.open(&node("a"));
        let name = node("a");
        assert_eq!(asks.ask(&name, Question::Doctor, PATIENCE).await, Err(QueryError::TimedOut(PATIENCE)));
        let id = id_of(&feed.recv().await.unwrap());
        assert!(!asks.answer(&name, id, Reply::Doctor { findings: Vec::new(), clock: None }), "too late");
        let inner = asks.lock();
        assert_eq!((inner.waiting.len(), inner.waiting_bytes), (0, 0));
    }

    #[tokio::test]
    async fn a_node_has_a_bounded_number_of_open_questions() {
        let asks = asks();
        let mut feed = asks.open(&node("a"));
        let name = node("a");
        let many = (0..=PER_NODE_MAX).map(|_| asks.ask(&name, Question::Doctor, PATIENCE));
        let answers = futures::future::join_all(many).await;
        let busy = answers.iter().filter(|answer| **answer == Err(QueryError::Busy)).count();
        assert_eq!(busy, 1);
        // Lines that the feed did not read still fill the channel.
        assert_eq!(asks.ask(&name, Question::Doctor, PATIENCE).await, Err(QueryError::Busy));
        while feed.try_recv().is_ok() {}
        assert_eq!(asks.ask(&name, Question::Doctor, PATIENCE).await, Err(QueryError::TimedOut(PATIENCE)));
    }
}
