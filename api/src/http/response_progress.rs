//! Progress of responses on their connections, so that a client that does not read is disconnected.
//!
//! A response counts as unsent until the connection has written its last byte or is closed. The HTTP library reads
//! the body of a response only as far as the client accepts bytes, and drops each piece after it has been written.
//! A response is stalled if neither happens for some time although there are bytes to send.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::header;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::{
    security::account::Account,
    state::response_budget::{RequestClass, RequestPermit, ResponseBudget},
};

/// Maximum size of a piece in bytes. A client makes progress by accepting one piece, so a slow client must receive
/// at least this much in the time limit; it is also the largest part of a response that HTTP/2 buffers for a
/// client that accepts a single byte.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Unsent responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionProgress(Mutex<UnsentResponses>);

#[derive(Debug, Default)]
struct UnsentResponses {
    next_id: u64,
    open: BTreeMap<u64, SendState>,
}

/// State of the transmission of one response.
#[derive(Debug)]
struct SendState {
    /// Time of the last progress.
    at: Instant,
    /// True while the body has bytes that the connection has not taken.
    has_more: bool,
    /// Number of pieces that the connection has taken and not written completely.
    pieces: usize,
}

/// Registration of one response at its connection. Dropping it releases the permit of the request.
#[derive(Debug)]
struct UnsentResponse {
    connection: Arc<ConnectionProgress>,
    id: u64,
    _permit: Option<RequestPermit>,
}

/// Body of a response that registers its progress at the connection.
struct TrackedBody {
    body: Body,
    /// Rest of the current frame of the body.
    rest: Bytes,
    response: Arc<UnsentResponse>,
}

/// Piece of a body in the buffers of the connection.
struct Piece {
    bytes: Bytes,
    response: Arc<UnsentResponse>,
}

impl ConnectionProgress {
    /// Waits until a response has made no progress for the time `timeout`.
    pub(crate) async fn stalled(&self, timeout: Duration) {
        loop {
            let waiting = self.lock().waiting_since();
            let deadline = waiting.unwrap_or_else(Instant::now) + timeout;
            if deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnsentResponses> {
        // Each change is complete before the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnsentResponses {
    /// Returns the time since which the response with the least progress has waited for the client.
    fn waiting_since(&self) -> Option<Instant> {
        let waiting = self.open.values().filter(|state| state.has_more || state.pieces > 0);
        waiting.map(|state| state.at).min()
    }
}

impl UnsentResponse {
    fn register(connection: Arc<ConnectionProgress>, permit: Option<RequestPermit>) -> Self {
        let mut responses = connection.lock();
        let id = responses.next_id;
        responses.next_id += 1;
        responses.open.insert(id, SendState { at: Instant::now(), has_more: true, pieces: 0 });
        drop(responses);
        Self { connection, id, _permit: permit }
    }

    fn update(&self, change: impl FnOnce(&mut SendState)) {
        if let Some(state) = self.connection.lock().open.get_mut(&self.id) {
            change(state);
        }
    }
}

impl Drop for UnsentResponse {
    fn drop(&mut self) {
        self.connection.lock().open.remove(&self.id);
    }
}

impl TrackedBody {
    /// Returns the next piece of the current frame.
    fn next_piece(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        self.response.update(|state| {
            state.at = Instant::now();
            state.has_more = true;
            state.pieces += 1;
        });
        let response = Arc::clone(&self.response);
        Frame::data(Bytes::from_owner(Piece { bytes, response }))
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => {
                    // The connection waits for the handler of a stream, not for the client.
                    self.response.update(|state| state.has_more = false);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(Ok(self.next_piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        // Pieces of it may still be in the buffers of the connection.
        self.response.update(|state| state.has_more = false);
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.response.update(|state| {
            state.at = Instant::now();
            state.pieces -= 1;
        });
    }
}

/// Registers a response at its connection, and keeps the permit of its request until the last byte has been
/// written. The body of a rejection is omitted if its account has too many unread ones.
pub(crate) fn track(
    response: Response,
    connection: Arc<ConnectionProgress>,
    (budget, account): (&Arc<ResponseBudget>, &Account),
) -> Response {
    let (mut parts, body) = response.into_parts();
    let permit = parts.extensions.remove::<RequestPermit>();
    if body.is_end_stream() {
        return Response::from_parts(parts, body);
    }
    let permit = match (permit, body.size_hint().exact()) {
        // Streams have limits of their own.
        (permit, None) => permit,
        (Some(permit), Some(bytes)) => Some(permit).filter(|permit| permit.set_bytes(bytes).is_ok()),
        (None, Some(bytes)) => {
            let permit = budget.enter(account, RequestClass::Rejection);
            let permit = permit.and_then(|permit| permit.set_bytes(bytes).map(|()| permit));
            let Ok(permit) = permit else {
                parts.headers.remove(header::CONTENT_LENGTH);
                return Response::from_parts(parts, Body::empty());
            };
            Some(permit)
        }
    };
    let response = Arc::new(UnsentResponse::register(connection, permit));
    Response::from_parts(parts, Body::new(TrackedBody { body, rest: Bytes::new(), response }))
}
