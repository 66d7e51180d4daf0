//! Questions over UDP.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::UdpSocket, time::sleep};

use crate::{
    message::Transport,
    responder::{Responder, Step},
};

/// Maximum size of a question in bytes. Longer datagrams are cut and then malformed.
const QUESTION_BYTES_MAX: usize = 4096;
/// Delay after an error of the socket, such as a lack of memory.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Answers the questions of one socket until the task is cancelled.
pub(super) async fn serve(socket: Arc<UdpSocket>, responder: Arc<Responder>) {
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
        match responder.begin(&buffer[..size], Transport::Udp) {
            Step::Respond(response) => send(&socket, &response, client).await,
            Step::Forward(job) => {
                let (socket, responder) = (Arc::clone(&socket), Arc::clone(&responder));
                tokio::spawn(async move {
                    let response = responder.finish(job).await;
                    send(&socket, &response, client).await;
                });
            }
            Step::Discard => {}
        }
    }
}

async fn send(socket: &UdpSocket, response: &[u8], client: SocketAddr) {
    if let Err(error) = socket.send_to(response, client).await {
        tracing::debug!(%client, %error, "cannot send a response");
    }
}
