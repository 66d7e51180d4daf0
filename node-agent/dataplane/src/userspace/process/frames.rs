//! Sends and receives messages as frames over a socket, and performs the agent's side of the greeting, the
//! exchange that opens a connection. Contains no decisions.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    place::RelayDirectory,
    wire::{self, Farewell, GREETING_BYTES_MAX, Greeting, Intent, LENGTH_BYTES, MAGIC, Welcome},
};

/// Timeout for the response to a greeting, which a relay sends without further work.
pub(super) const GREETING_TIME_MAX: Duration = Duration::from_secs(10);
/// Timeout for all other responses. The slowest one is to a first kernel update with very many Services on a
/// slow machine.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// Sends a message as one frame.
pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&wire::encode(message)?)?;
    to.flush()
}

/// Receives a message of at most `limit` bytes and returns it with its size in bytes; `None` at the end of
/// the stream.
pub(super) fn read<T: DeserializeOwned>(
    from: &mut impl Read,
    limit: usize,
) -> io::Result<Option<(T, usize)>> {
    let mut head = [0; LENGTH_BYTES];
    if from.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..])?;
    let length = wire::length(head, limit)?;
    // The buffer grows with the received bytes, not with the announced length.
    let mut payload = Vec::new();
    let read = from.take(u64::try_from(length).unwrap_or(u64::MAX)).read_to_end(&mut payload)?;
    if read < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((wire::decode(&payload)?, length)))
}

/// Connects to a relay process and sends a greeting. Returns the connection and the welcome message of the
/// relay; `None` if the process is gone.
pub(super) fn greet(
    place: &RelayDirectory,
    pid: u32,
    intent: Intent,
) -> io::Result<Option<(UnixStream, Welcome)>> {
    let Some(mut stream) = place.connect(pid)? else { return Ok(None) };
    stream.set_read_timeout(Some(GREETING_TIME_MAX))?;
    stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    let welcome = write(&stream, &Greeting::new(intent))
        .and_then(|()| read::<Welcome>(&mut stream, GREETING_BYTES_MAX));
    let welcome = match welcome {
        Ok(Some((welcome, _))) => welcome,
        Ok(None) => return Ok(None),
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if welcome.magic != MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidData, "the response does not come from a relay"));
    }
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(Some((stream, welcome)))
}

/// Sends a greeting with an intent other than `Serve` to a relay process, and returns its farewell; `None` if
/// the process is already gone.
pub(super) fn send_away(place: &RelayDirectory, pid: u32, intent: Intent) -> io::Result<Option<Farewell>> {
    let Some((mut stream, _)) = greet(place, pid, intent)? else { return Ok(None) };
    match read(&mut stream, GREETING_BYTES_MAX) {
        Ok(farewell) => Ok(farewell.map(|(farewell, _)| farewell)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if an error means that the relay process has closed the connection or ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}
