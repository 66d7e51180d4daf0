//! Input and output on the connections of a neighbor: connecting, reading, writing and closing.

use std::{io, net::SocketAddr, os::fd::AsFd as _};

use ::bgp::{
    Message,
    session::{ConnectionId, Direction, Input},
    wire,
};
use tokio::net::TcpStream;
use tracing::{debug, warn};

use super::Neighbour;
use crate::peering::{
    connection::{Connection, Read},
    settings::Place,
    socket, words,
};

/// Size of the send buffer in bytes at which no further route messages are added to it. The kernel's own
/// send buffer does not count.
const UNSENT_BYTES_ENOUGH: usize = 16 << 10;
/// Maximum number of reads after a connection was lost, to process messages that the neighbor sent before the
/// loss.
const LAST_READINGS_MAX: usize = 16;
/// Maximum number of bytes in the send buffer. Only keepalives are added above [`UNSENT_BYTES_ENOUGH`], so
/// that a larger buffer indicates a broken session, and the connection is closed.
const UNSENT_BYTES_MAX: usize = 1 << 20;

impl Neighbour {
    pub(super) fn dial(&mut self) -> Result<(), String> {
        let remote = self.remote().ok_or_else(|| "the interface is not there".to_owned())?;
        let socket =
            socket::connector(remote, &self.settings.way).map_err(|error| self.not_connected(&error))?;
        self.dialing = Some(Box::pin(socket.connect(remote)));
        Ok(())
    }

    /// Returns the address to connect to, or `None` while the router of an unnumbered link is unknown.
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        let place = match &self.settings.place {
            Place::Address(address) => *address,
            Place::Interface(_) => return self.found,
        };
        let device = self.settings.way.device.as_ref();
        let index = device.and_then(|device| {
            let links = self.links.borrow();
            let link = links.by_index.iter().find(|(_, link)| link.name == device.as_str());
            link.map(|(index, _)| *index)
        });
        Some(socket::scoped(place, self.settings.port, index.unwrap_or_default()))
    }

    pub(super) fn dialed(&mut self, outcome: io::Result<TcpStream>) {
        self.dialing = None;
        match outcome {
            Ok(stream) => self.connected(stream, Direction::Outgoing),
            Err(error) => {
                let why = self.not_connected(&error);
                self.tell(Input::ConnectFailed { why });
            }
        }
    }

    pub(super) fn connected(&mut self, stream: TcpStream, direction: Direction) {
        self.connections_made += 1;
        let id = ConnectionId(self.connections_made);
        let connection = Connection::new(id, stream).and_then(|connection| {
            if direction == Direction::Incoming {
                socket::travel(connection.as_fd(), connection.remote.is_ipv4(), &self.settings.way)?;
            }
            Ok(connection)
        });
        match connection {
            Ok(connection) => {
                self.face.address = Some(connection.remote.ip());
                self.connections.insert(id, connection);
                self.tell(Input::Connected { connection: id, direction });
                self.watch();
            }
            // The connection was lost before it could be used.
            Err(error) if direction == Direction::Outgoing => {
                let why = self.not_connected(&error);
                self.tell(Input::ConnectFailed { why });
            }
            Err(error) => debug!(neighbour = %self.key, %error, "cannot use a BGP connection"),
        }
    }

    fn not_connected(&mut self, error: &io::Error) -> String {
        self.face.counters.connection_failures += 1;
        words::not_connected(error, &self.settings.way)
    }

    /// Reads from a connection and processes the complete messages.
    pub(super) fn read(&mut self, id: ConnectionId, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let read = connection.read(buffer);
        loop {
            let context = self.session.context(id);
            // Any message may end the connection.
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let Some(frame) = connection.frame(&context) else { break };
            let result = frame.and_then(|frame| wire::decode(frame, &context));
            self.face.received(&result);
            self.tell(Input::Received { connection: id, result });
        }
        if let Read::End(why) = read
            && self.connections.remove(&id).is_some()
        {
            self.tell(Input::Closed { connection: id, why });
        }
    }

    pub(super) fn send(&mut self, id: ConnectionId, message: &Message) {
        let context = self.session.context(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match wire::encode(message, &context) {
            Ok(bytes) => {
                connection.push(&bytes);
                self.face.sent(message);
            }
            Err(error) => warn!(neighbour = %self.key, %error, "cannot encode a BGP message; it is not sent"),
        }
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        // Bytes that cannot be sent at once are sent during the graceful close.
        let _lost = connection.write();
        self.lingering.close(connection);
    }

    /// Encodes route messages into the send buffers and writes these, up to a limit per call, so that other
    /// neighbors are served as well. Returns true if routes remain that can be sent at once.
    pub(super) fn pour(&mut self) -> bool {
        let mut is_more = false;
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.fill(id);
            let is_drained = self.drain(id);
            is_more |= is_drained && self.session.established_over() == Some(id) && self.routes.is_due();
        }
        is_more
    }

    /// Encodes routes that have not been sent yet into the send buffer, as long as the buffer contains less
    /// than [`UNSENT_BYTES_ENOUGH`] bytes.
    fn fill(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let room = UNSENT_BYTES_ENOUGH.saturating_sub(connection.unsent_bytes());
        if self.session.established_over() == Some(id) && room > 0 {
            for message in self.routes.take(room, &self.reflection) {
                self.send(id, &message);
            }
        }
    }

    /// Writes the send buffer. Returns true if the kernel accepted all bytes.
    fn drain(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let outcome = connection.write();
        let is_drained = connection.unsent_bytes() == 0;
        let was_stalled = std::mem::replace(&mut connection.is_stalled, !is_drained);
        match outcome {
            _ if connection.unsent_bytes() > UNSENT_BYTES_MAX => {
                self.lose(id, "the neighbour takes nothing of what is sent".to_owned());
                return false;
            }
            // Earlier messages of the neighbor are still to be read.
            Err(error) => {
                debug!(neighbour = %self.key, %error, "cannot send to a BGP neighbor");
                self.lose_after_reading(id, &error);
                return false;
            }
            Ok(bytes) if was_stalled && bytes > 0 => {
                self.tell(Input::SendMoved { connection: id, is_drained });
            }
            Ok(_) if !was_stalled && !is_drained => self.tell(Input::SendStalled { connection: id }),
            Ok(_) => {}
        }
        if is_drained && self.session.established_over() == Some(id) {
            self.routes.sent();
        }
        is_drained
    }

    /// Reads remaining messages before reporting the loss of a connection, because a NOTIFICATION is more
    /// informative than the I/O error.
    fn lose_after_reading(&mut self, id: ConnectionId, error: &io::Error) {
        let mut buffer = [0; 4096];
        for _ in 0..LAST_READINGS_MAX {
            self.read(id, &mut buffer);
        }
        self.lose(id, words::lost(error));
    }

    fn lose(&mut self, id: ConnectionId, why: String) {
        if self.connections.remove(&id).is_some() {
            self.tell(Input::Closed { connection: id, why });
        }
    }
}
