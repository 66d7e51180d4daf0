//! Client of a raw TCP stream of numbered messages of fixed length. The time that such a stream takes is the
//! lower limit of the time in which changes can be distributed to many clients.

use anyhow::{Context, Result, ensure};
use tokio::{io::AsyncReadExt, net::TcpSocket};

use super::serve::Follower;

/// Maximum length of a message in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Receives messages until an error occurs, and records the number at the end of each message. The stream
/// starts with the message length as eight bytes.
pub(super) async fn follow(follower: &Follower) -> Result<()> {
    let socket = TcpSocket::new_v4().context("no socket")?;
    socket.bind((follower.from, 0).into()).context("no address")?;
    let mut stream = socket.connect(follower.server).await.context("nobody sends")?;
    let length = usize::try_from(stream.read_u64().await?)?;
    ensure!((8..=MESSAGE_BYTES_MAX).contains(&length), "messages of {length} bytes");
    let mut message = vec![0; length];
    loop {
        stream.read_exact(&mut message).await.context("the sender has ended")?;
        let number = message.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        follower.tally.note(follower.number, number);
    }
}
