//! Watch of the overview: the stream of one client, with the whole document first and then its changes. For a
//! slow client several changes are merged into one.
//!
//! A watch stores only the document that it sent last, and has no queue. If the newest document directly
//! follows this one, the watch sends the change line that all watches share; otherwise it sends the
//! difference between the two documents.

use std::{io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use model::{
    kinds::resource::Kind,
    primitives::name::Namespace,
    views::overview::{
        Overview,
        diff::{OverviewError, OverviewFrame, OverviewHeartbeat, between},
    },
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::state::overview_cache::OverviewDocument;
use crate::{
    base::{
        body_stream::{Gone, PIECE_BYTES, Pieces},
        error::Problem,
        negotiate::StreamForm,
    },
    context::server_state::ServerState,
    security::{Access, Subject, Verb, access::unauthenticated},
};

/// Interval of the heartbeats. The API promises at most 2 s.
const HEARTBEAT: Duration = Duration::from_millis(1500);

/// Parameters of a watch of the overview.
pub(crate) struct OverviewWatch {
    /// State of the server.
    pub(crate) app: Arc<ServerState>,
    /// Permissions of the caller, which limit the visible part of the overview.
    pub(crate) access: Arc<Access>,
    /// Format of the stream.
    pub(crate) form: StreamForm,
    /// True if the stream is compressed with gzip.
    pub(crate) gzip: bool,
    /// Id of the request, included in the error that ends the watch.
    pub(crate) request_id: String,
    /// Token that is cancelled to end the watch, for example at shutdown.
    pub(crate) stop: CancellationToken,
}

/// Overview that a watch has sent last.
enum SentOverview {
    /// The complete document.
    Whole(Arc<OverviewDocument>),
    /// The part of the document that the caller is permitted to see.
    Part(Box<Overview>),
}

impl OverviewWatch {
    /// Sends the overview and its changes until the client disconnects or loses its permissions.
    pub(crate) async fn run(self, pieces: Pieces) {
        let mut sink = OverviewSink::new(pieces, self.form, self.gzip);
        // The watcher disconnected; there is no recipient for the error.
        let _ = self.serve(&mut sink).await;
        sink.finish().await;
    }

    async fn serve(&self, sink: &mut OverviewSink) -> Result<(), Gone> {
        let mut newest = self.app.overview.subscribe();
        let Some(shown) = self.app.overview.current(&self.app).await else { return Ok(()) };
        newest.mark_unchanged();
        let (mut held, first) = self.begin(shown);
        sink.line(&first).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        // Changes between the document and the mark are sent in the first turn.
        newest.mark_changed();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.pieces.closed() => return Err(Gone),
                changed = newest.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    // Checked before every piece that is sent, because a token may have been revoked.
                    if !self.is_allowed() {
                        return self.revoked(sink).await;
                    }
                    let shown = newest.borrow_and_update().clone();
                    if let Some(line) = shown.and_then(|shown| self.follow(&mut held, shown)) {
                        sink.line(&line).await?;
                        heartbeat.reset();
                    }
                }
                _ = heartbeat.tick() => {
                    if !self.is_allowed() {
                        return self.revoked(sink).await;
                    }
                    sink.line(&self.heartbeat()).await?;
                }
            }
        }
    }

    fn begin(&self, shown: Arc<OverviewDocument>) -> (SentOverview, Bytes) {
        let overview = seen(&self.access, &shown.overview);
        let at = self.app.source.now();
        let first = json(&OverviewFrame::Overview(Box::new(Overview {
            at,
            ..overview.as_deref().unwrap_or(&shown.overview).clone()
        })));
        (overview.map_or(SentOverview::Whole(shown), SentOverview::Part), first)
    }

    /// Returns the line with the changes from the document last sent (`held`) to the newest document
    /// (`shown`), or `None` if there are none. Then replaces `held` by the newest document.
    fn follow(&self, held: &mut SentOverview, shown: Arc<OverviewDocument>) -> Option<Bytes> {
        match held {
            SentOverview::Whole(before) => {
                let line = if shown.number == before.number {
                    None
                } else if shown.number == before.number + 1 {
                    Some(shown.line.clone())
                } else {
                    between(&before.overview, &shown.overview)
                        .map(|it| json(&OverviewFrame::Change(Box::new(it))))
                };
                *before = shown;
                line
            }
            SentOverview::Part(before) => {
                let part = seen(&self.access, &shown.overview)?;
                let change = between(before, &part);
                *before = part;
                change.map(|change| json(&OverviewFrame::Change(Box::new(change))))
            }
        }
    }

    fn heartbeat(&self) -> Bytes {
        let (position, at) = (self.app.hub.load().position(), self.app.source.now());
        json(&OverviewFrame::Heartbeat(OverviewHeartbeat { position, at }))
    }

    /// Returns true if the caller still has the permissions with which the watch started.
    fn is_allowed(&self) -> bool {
        let renewed = self.app.authenticator.renew(&self.access, self.app.source.now());
        renewed.is_some_and(|renewed| renewed.is_as(&self.access))
    }

    async fn revoked(&self, sink: &mut OverviewSink) -> Result<(), Gone> {
        let problem: Problem =
            unauthenticated("the token has expired, or its role bindings have changed since the watch began");
        let problem = problem.finish("/v1/overview/watch", &self.request_id);
        let problem = serde_json::to_value(problem).expect("problems have string keys only");
        sink.line(&json(&OverviewFrame::Error(OverviewError { problem }))).await
    }
}

/// Returns the part of the overview that the caller may see, or `None` if the caller may see all of it.
pub(crate) fn seen(access: &Access, overview: &Overview) -> Option<Box<Overview>> {
    let may = |subject, namespace: Option<&Namespace>| access.may(Verb::Get, subject, namespace);
    let is_whole = may(Subject::Status, None);
    if is_whole && access.may(Verb::List, Subject::History, None) {
        return None;
    }
    if is_whole {
        return Some(Box::new(overview.without_changes()));
    }
    let may_see = |namespace: &Namespace| {
        may(Subject::Status, Some(namespace)) && access.may_object(Verb::List, Kind::Service, Some(namespace))
    };
    let may_see_changes = |namespace: &Namespace| access.may(Verb::List, Subject::History, Some(namespace));
    Some(Box::new(overview.restricted(may_see, may_see_changes)))
}

/// Encodes a frame of the stream as JSON without line end.
pub(super) fn json(frame: &OverviewFrame) -> Bytes {
    Bytes::from(serde_json::to_vec(frame).expect("frames have string keys only"))
}

struct OverviewSink {
    pieces: Pieces,
    form: StreamForm,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl OverviewSink {
    fn new(pieces: Pieces, form: StreamForm, gzip: bool) -> Self {
        let encoder = gzip.then(|| GzEncoder::new(Vec::new(), Compression::default()));
        Self { pieces, form, encoder }
    }

    /// Sends a line with its line end. A compressed stream is flushed, so that the line arrives at once.
    async fn line(&mut self, line: &Bytes) -> Result<(), Gone> {
        let (before, after): (&[u8], &[u8]) = match self.form {
            StreamForm::Ndjson => (b"", b"\n"),
            StreamForm::Sse => (b"data: ", b"\n\n"),
        };
        let bytes = match &mut self.encoder {
            None => Bytes::from([before, line, after].concat()),
            Some(encoder) => {
                for part in [before, line, after] {
                    encoder.write_all(part).map_err(|_| Gone)?;
                }
                encoder.flush().map_err(|_| Gone)?;
                Bytes::from(std::mem::take(encoder.get_mut()))
            }
        };
        self.send(bytes).await
    }

    /// Sends bytes in pieces of limited size, so that little unread data is buffered.
    async fn send(&self, mut bytes: Bytes) -> Result<(), Gone> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            self.pieces.send(piece).await?;
        }
        Ok(())
    }

    /// Ends a compressed stream with its trailer, if the watcher is still connected.
    async fn finish(mut self) {
        if let Some(encoder) = self.encoder.take()
            && let Ok(rest) = encoder.finish()
        {
            let _ = self.send(Bytes::from(rest)).await;
        }
    }
}
