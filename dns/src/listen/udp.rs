//! Questions over UDP.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{net::UdpSocket, time::sleep};

use super::error_limit::{ErrorDecision, ErrorLimit};
use crate::{
    message::{Transport, is_error, truncate_error},
    responder::{Responder, Step},
};

/// Maximum size of a question in bytes. Longer datagrams are cut and then malformed.
const QUESTION_BYTES_MAX: usize = 4096;
/// Delay after an error of the socket, such as a lack of memory.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Limit on error responses of all sockets.
#[derive(Debug)]
pub(super) struct ErrorGate {
    limit: Mutex<ErrorLimit>,
    start: Instant,
}

impl Default for ErrorGate {
    fn default() -> Self {
        Self { limit: Mutex::default(), start: Instant::now() }
    }
}

impl ErrorGate {
    /// Returns the response that may be sent to a client instead of this one; `None` if none may be sent.
    fn pass(&self, mut response: Vec<u8>, client: SocketAddr, responder: &Responder) -> Option<Vec<u8>> {
        if !is_error(&response) {
            return Some(response);
        }
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = limit.decide(client.ip(), self.start.elapsed());
        drop(limit);
        if decision != ErrorDecision::Send {
            responder.metrics().limited_errors.inc();
        }
        match decision {
            ErrorDecision::Send => Some(response),
            ErrorDecision::Truncate => {
                truncate_error(&mut response);
                Some(response)
            }
            ErrorDecision::Drop => None,
        }
    }
}

/// Answers the questions of one socket until the task is cancelled.
pub(super) async fn serve(socket: Arc<UdpSocket>, responder: Arc<Responder>, errors: Arc<ErrorGate>) {
    let mut buffer = vec![0; QUESTION_BYTES_MAX];
    loop {
        let (size, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "cannot receive a question");
                sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        // No client uses port 0; a response would go nowhere.
        if client.port() == 0 {
            continue;
        }
        match responder.begin(&buffer[..size], client.ip(), Transport::Udp) {
            Step::Respond(response) => {
                if let Some(response) = errors.pass(response, client, &responder) {
                    send(&socket, &response, client).await;
                }
            }
            Step::Forward(job) => {
                let (socket, responder, errors) =
                    (Arc::clone(&socket), Arc::clone(&responder), Arc::clone(&errors));
                tokio::spawn(async move {
                    let response = responder.finish(job).await;
                    if let Some(response) = errors.pass(response, client, &responder) {
                        send(&socket, &response, client).await;
                    }
                });
            }
            Step::Update(job) => {
                let (socket, responder, errors) =
                    (Arc::clone(&socket), Arc::clone(&responder), Arc::clone(&errors));
                tokio::spawn(async move {
                    let response = responder.update(*job).await;
                    if let Some(response) = errors.pass(response, client, &responder) {
                        send(&socket, &response, client).await;
                    }
                });
            }
            // Zones are transferred over TCP only.
            Step::Transfer(_) | Step::Discard => {}
        }
    }
}

async fn send(socket: &UdpSocket, response: &[u8], client: SocketAddr) {
    if let Err(error) = socket.send_to(response, client).await {
        tracing::debug!(%client, %error, "cannot send a response");
    }
}
