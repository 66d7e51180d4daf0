//! Client of the `sd_notify(3)` protocol, by which a program sends its state to the service manager
//! (systemd): one text datagram per message.
//!
//! Best effort: without `NOTIFY_SOCKET` messages are discarded, and a manager that does not read loses
//! messages. The crate `sd-notify` is not used: its sends block if the manager does not read, and a blocked
//! send would stop the task that feeds the watchdog.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// Sender of messages to the service manager (systemd). Also contains the watchdog interval. Sends nothing if
/// the environment has no usable `NOTIFY_SOCKET`.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Creates a notifier from the environment variables `NOTIFY_SOCKET`, `WATCHDOG_PID` and `WATCHDOG_USEC`,
    /// which the service manager sets.
    #[must_use]
    pub fn of_environment() -> Self {
        let address = env::var_os("NOTIFY_SOCKET");
        let socket = address.filter(|address| !address.is_empty()).and_then(|address| {
            let opened = open(&address);
            opened.inspect_err(|error| tracing::warn!(%error, ?address, "NOTIFY_SOCKET cannot be used")).ok()
        });
        let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_meant && *usec > 0);
        Self { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// Sends a message such as `READY=1` to the service manager. Errors are ignored.
    pub fn say(&self, message: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::debug!(%error, message, "cannot notify the service manager");
        }
    }

    /// Returns the interval at which the program must send watchdog messages: a third of the watchdog
    /// timeout. `None` if the service manager has set no watchdog for this process.
    #[must_use]
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|limit| limit / 3)
    }
}

fn open(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block this process.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}
