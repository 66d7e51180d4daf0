//! Open connections to the health check node ports, with limits per client address, per port and in total. At a
//! limit, the oldest of the connections concerned is closed. A check takes milliseconds, so this is one of a
//! client that does not send its request, and a new check never waits for such a client.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::primitives::quantity::Port;
use tokio::sync::Notify;

/// Maximum number of open connections over all ports.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Maximum number of open connections to one port.
pub(super) const CONNECTIONS_PER_PORT_MAX: usize = 64;
/// Maximum number of open connections from one client address. A load balancer checks many ports from one address.
pub(super) const CONNECTIONS_PER_ADDRESS_MAX: usize = 64;

/// Open connections of all health check node ports.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<ConnectionTable>);

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Open connections by number, in the order in which they were accepted.
    open: BTreeMap<u64, OpenConnection>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    port: Port,
    closing: Arc<Notify>,
}

/// Place of one connection in the table; removes it when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    closing: Arc<Notify>,
}

impl Connections {
    /// Adds a connection. If this exceeds a limit, the oldest of the connections concerned closes.
    pub(super) fn open(self: &Arc<Self>, address: IpAddr, port: Port) -> ConnectionSlot {
        let closing = Arc::new(Notify::new());
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let connection =
            OpenConnection { address: address.to_canonical(), port, closing: Arc::clone(&closing) };
        if let Some(evicted) = table.evict_for(&connection) {
            evicted.closing.notify_one();
        }
        table.open.insert(number, connection);
        drop(table);
        ConnectionSlot { connections: Arc::clone(self), number, closing }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    /// Removes and returns the connection that must close to make room for a new one; `None` if there is room.
    fn evict_for(&mut self, new: &OpenConnection) -> Option<OpenConnection> {
        let is_of_address = |one: &OpenConnection| one.address == new.address;
        let is_of_port = |one: &OpenConnection| one.port == new.port;
        let oldest = self
            .oldest_beyond(CONNECTIONS_PER_ADDRESS_MAX, is_of_address)
            .or_else(|| self.oldest_beyond(CONNECTIONS_PER_PORT_MAX, is_of_port))
            .or_else(|| self.oldest_beyond(CONNECTIONS_MAX, |_| true))?;
        self.open.remove(&oldest)
    }

    /// Returns the oldest of the connections that match, if there are already `limit` of them.
    fn oldest_beyond(&self, limit: usize, matches: impl Fn(&OpenConnection) -> bool) -> Option<u64> {
        let mut matching = self.open.iter().filter(|(_, one)| matches(one)).map(|(number, _)| *number);
        let oldest = matching.next()?;
        (1 + matching.count() >= limit).then_some(oldest)
    }
}

impl ConnectionSlot {
    /// Waits until the connection must close.
    pub(super) async fn closed(&self) {
        self.closing.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(connections: &Arc<Connections>, address: u8, port: u16) -> ConnectionSlot {
        connections.open([192, 0, 2, address].into(), Port::new(port).unwrap())
    }

    fn count(connections: &Arc<Connections>) -> usize {
        connections.lock().open.len()
    }

    fn is_open(connections: &Arc<Connections>, slot: &ConnectionSlot) -> bool {
        connections.lock().open.contains_key(&slot.number)
    }

    #[test]
    fn the_oldest_connection_at_a_limit_closes() {
        let connections = Arc::new(Connections::default());
        let other = open(&connections, 250, 31_000);
        let of_address: Vec<_> = (0..100).map(|number| open(&connections, 1, 30_000 + number % 50)).collect();
        assert_eq!(count(&connections), 1 + CONNECTIONS_PER_ADDRESS_MAX);
        assert!(is_open(&connections, &other) && is_open(&connections, &of_address[99]));
        assert!(!is_open(&connections, &of_address[35]) && is_open(&connections, &of_address[36]));
        drop(of_address);
        let of_port: Vec<_> = (0..100).map(|address| open(&connections, address, 32_000)).collect();
        assert_eq!(count(&connections), 1 + CONNECTIONS_PER_PORT_MAX);
        assert!(is_open(&connections, &other) && is_open(&connections, &of_port[99]));
        let of_all: Vec<_> = (0..200_u8)
            .map(|number| open(&connections, 100 + number % 100, 30_000 + u16::from(number)))
            .collect();
        assert_eq!(count(&connections), CONNECTIONS_MAX);
        assert!(!is_open(&connections, &other) && is_open(&connections, &of_all[199]));
        drop((other, of_port, of_all));
        assert_eq!(count(&connections), 0);
    }
}
