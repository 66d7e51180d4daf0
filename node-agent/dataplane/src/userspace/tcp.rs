//! TCP: accepts connections, connects to a target that responds, and forwards bytes in both directions until
//! both sides have closed.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::AsFd,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use model::kinds::service::Protocol;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::{sleep, timeout},
};

use super::{
    origin, receive_buffer,
    relay::{Assignment, Relay, count},
    wire,
};

/// Size of the accept queue of a listening socket, in connections (`listen(2)`).
pub(super) const BACKLOG: u32 = 4096;
/// Time for which a listener continues to accept after its rules were removed, for connections that were
/// redirected before.
pub(super) const CLOSING_GRACE: Duration = Duration::from_secs(1);
/// Pause before the next accept when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Connect timeouts of successive attempts. The first ones are short, so that one dead target costs little;
/// later ones are longer, so that slow targets are reached.
const PATIENCE: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(2),
    Duration::from_secs(2),
];
/// Maximum number of targets tried for one connection, including those that refuse it at once.
const TRIES_MAX: usize = 32;
/// Idle time after which keepalive probes are sent, so that connections of vanished peers are freed.
const KEEPALIVE_IDLE_SECS: u32 = 300;
/// Time between forwarding the last bytes of a target and resetting the client, so that the kernel can
/// deliver them.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Accepts connections and starts a task for each, until the listener is closed.
pub(super) async fn accept(relay: Arc<Relay>, listener: TcpListener) {
    let mut closing = pin!(async {
        relay.closing.cancelled().await;
        sleep(CLOSING_GRACE).await;
    });
    loop {
        tokio::select! {
            () = &mut closing => return,
            accepted = listener.accept() => match accepted {
                Ok((client, peer)) => begin(&relay, client, peer),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

fn begin(relay: &Arc<Relay>, client: TcpStream, peer: SocketAddr) {
    let Ok(permit) = Arc::clone(&relay.shared.connections).try_acquire_owned() else {
        count(&relay.shared.tally.connections_refused);
        return reset(&client);
    };
    let relay = Arc::clone(relay);
    tokio::spawn(async move {
        serve(&relay, client, peer).await;
        drop(permit);
    });
}

async fn serve(relay: &Relay, mut client: TcpStream, peer: SocketAddr) {
    let Some(original) = origin::of_stream(&client).filter(|original| relay.answers(*original)) else {
        count(&relay.shared.tally.strays);
        return reset(&client);
    };
    let Some((mut target, placed)) = connect(relay, peer, original).await else {
        count(&relay.shared.tally.unplaced);
        return reset(&client);
    };
    // An error means that the target has already closed the connection, which the first read detects.
    let _closed = prepare(&target);
    count(&placed.seat.account.connections);
    let header = placed.proxy_protocol.map(|version| wire::header(version, Protocol::Tcp, peer, original));
    let carry = async {
        if target.write_all(&header.unwrap_or_default()).await.is_err() {
            return End::TargetGone;
        }
        carry(&mut client, &mut target, &placed.seat.account.bytes).await
    };
    let end = tokio::select! {
        end = carry => end,
        () = placed.seat.cut.cancelled() => End::Cut,
    };
    match end {
        End::Finished => {}
        End::ClientGone => reset(&target),
        End::TargetGone => {
            placed.seat.account.failures.note_reset();
            sleep(LAST_WORDS).await;
            reset(&client);
        }
        End::Cut => {
            reset(&client);
            reset(&target);
        }
    }
}

/// Connects to one target after another until one responds; `None` if none does within the allowed attempts.
async fn connect(relay: &Relay, client: SocketAddr, original: SocketAddr) -> Option<(TcpStream, Assignment)> {
    let (mut refused, mut silent) = (BTreeSet::new(), BTreeSet::new());
    let mut patience = PATIENCE.into_iter();
    let mut wait = patience.next()?;
    for attempt in 0..TRIES_MAX {
        if attempt > 0 {
            count(&relay.shared.tally.retries);
        }
        let placed = match relay.place(client, original, &refused.union(&silent).copied().collect()) {
            Some(placed) => placed,
            None if silent.is_empty() => return None,
            None => {
                silent.clear();
                relay.place(client, original, &refused)?
            }
        };
        match timeout(wait, TcpStream::connect(placed.address)).await {
            Ok(Ok(target)) => {
                placed.seat.account.failures.note_taken();
                return Some((target, placed));
            }
            Ok(Err(error)) => {
                placed.seat.account.failures.note(&error);
                refused.insert(placed.seat.target);
            }
            Err(_) => {
                placed.seat.account.failures.note_silent();
                silent.insert(placed.seat.target);
                wait = patience.next()?;
            }
        }
    }
    None
}

/// Cause for the end of a forwarded connection.
enum End {
    /// Close of the connection by both sides.
    Finished,
    /// Reset of the connection by the client.
    ClientGone,
    /// Reset of the connection by the target.
    TargetGone,
    /// Termination by the relay, after the target or the frontend was removed.
    Cut,
}

/// Side whose socket failed while bytes were forwarded in one direction.
enum FailedSide {
    Source,
    Sink,
}

async fn carry(client: &mut TcpStream, target: &mut TcpStream, bytes: &AtomicU64) -> End {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_target, mut to_target) = target.split();
    let mut up = pin!(pump(&mut from_client, &mut to_target, bytes));
    let mut down = pin!(pump(&mut from_target, &mut to_client, bytes));
    let (mut up_ended, mut down_ended, mut target_is_deaf) = (false, false, false);
    while !(up_ended && down_ended) {
        tokio::select! {
            ended = &mut up, if !up_ended => {
                up_ended = true;
                match ended {
                    Ok(()) => {}
                    Err(FailedSide::Source) => return End::ClientGone,
                    // Bytes sent by the target before its reset must still be read.
                    Err(FailedSide::Sink) => target_is_deaf = true,
                }
            }
            ended = &mut down, if !down_ended => {
                down_ended = true;
                match ended {
                    Ok(()) => {}
                    Err(FailedSide::Source) => return End::TargetGone,
                    Err(FailedSide::Sink) => return End::ClientGone,
                }
            }
        }
    }
    if target_is_deaf { End::TargetGone } else { End::Finished }
}

/// Forwards bytes until the source closes, then closes the sink. Does not read while the sink does not accept
/// data.
async fn pump(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>, bytes: &AtomicU64) -> Result<(), FailedSide> {
    while let Some(left) =
        poll_fn(|context| receive_buffer::lend(|room| poll_move(context, from, to, room, bytes))).await?
    {
        to.write_all(&left).await.map_err(|_| FailedSide::Sink)?;
    }
    to.shutdown().await.map_err(|_| FailedSide::Sink)
}

/// Waits for data from the source, and writes as much of it to the sink as the sink accepts at once. Returns
/// the bytes that the sink has not accepted, or `None` at the end of the source's stream.
fn poll_move(
    context: &mut Context<'_>,
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    room: &mut [u8],
    bytes: &AtomicU64,
) -> Poll<Result<Option<Vec<u8>>, FailedSide>> {
    let mut said = ReadBuf::new(room);
    if ready!(Pin::new(from).poll_read(context, &mut said)).is_err() {
        return Poll::Ready(Err(FailedSide::Source));
    }
    let said = said.filled();
    if said.is_empty() {
        return Poll::Ready(Ok(None));
    }
    // Count before forwarding, so that a reader who has seen the reply also sees its bytes in the counter.
    bytes.fetch_add(u64::try_from(said.len()).unwrap_or_default(), Ordering::Relaxed);
    let taken = match Pin::new(to).poll_write(context, said) {
        Poll::Ready(Ok(taken)) => taken,
        Poll::Ready(Err(_)) => return Poll::Ready(Err(FailedSide::Sink)),
        Poll::Pending => 0,
    };
    Poll::Ready(Ok(Some(said[taken..].to_vec())))
}

/// Disables Nagle's algorithm and enables keepalive. Accepted connections inherit the options of their
/// listener.
pub(super) fn prepare(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    // Set before keepalive is enabled, because a later change would restart the timer.
    setsockopt(socket, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_SECS)?;
    Ok(setsockopt(socket, sockopt::KeepAlive, &true)?)
}

/// Sets the socket option by which closing the connection sends a reset (`SO_LINGER` with timeout 0).
fn reset(stream: &TcpStream) {
    let _closed = stream.set_zero_linger();
}
