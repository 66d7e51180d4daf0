//! Notification of secondary name servers after changes of the zones of DnsZones (RFC 1996).

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use model::discovery::dns::{Record, RecordData, notifications};
use tokio::{
    net::UdpSocket,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    message::{encode_notification, is_confirmation},
    metrics::Metrics,
    responder::Zones,
};

/// Minimum time between the notifications of two changes. Changes within it are notified together.
const INTERVAL: Duration = Duration::from_millis(500);
/// Times to wait for the response to each attempt in seconds (RFC 1996 §3.6).
const WAITS_SECS: [u64; 5] = [1, 2, 4, 8, 16];
/// Maximum number of secondary name servers of all zones together.
const TARGETS_MAX: usize = 1024;
/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 512;

/// Zone and secondary name server.
type Target = (String, SocketAddr);

/// Task that notifies secondary name servers.
pub(crate) struct ChangeNotifier {
    zones: Zones,
    /// Addresses of this server. Notifications come from one of them, by which secondary name servers recognize it.
    sources: Vec<IpAddr>,
    metrics: Arc<Metrics>,
}

impl ChangeNotifier {
    /// Creates the task for a server with the addresses `sources`.
    pub(crate) const fn new(zones: Zones, sources: Vec<IpAddr>, metrics: Arc<Metrics>) -> Self {
        Self { zones, sources, metrics }
    }

    /// Notifies secondary name servers of the first state and of each change until the task is cancelled.
    pub(crate) async fn run(mut self) {
        let mut notified: BTreeMap<Target, (u32, AbortHandle)> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let wanted = self.wanted();
            notified.retain(|target, (_, task)| {
                let is_wanted = wanted.contains_key(target);
                if !is_wanted {
                    task.abort();
                }
                is_wanted
            });
            for (target, start) in wanted {
                let RecordData::Soa { serial, .. } = start.data else { continue };
                if notified.get(&target).is_some_and(|(known, _)| *known == serial) {
                    continue;
                }
                let delivery = deliver(target.1, start, self.source_for(target.1), Arc::clone(&self.metrics));
                // A newer notification replaces one that has not been confirmed.
                if let Some((_, older)) = notified.insert(target, (serial, tasks.spawn(delivery))) {
                    older.abort();
                }
            }
            while tasks.try_join_next().is_some() {}
            sleep(INTERVAL).await;
            if self.zones.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns the start of authority of which each secondary name server must know.
    fn wanted(&mut self) -> BTreeMap<Target, Record> {
        let zone = self.zones.borrow_and_update().clone();
        let all = zone.map(|zone| notifications(&zone)).unwrap_or_default();
        all.into_iter()
            .take(TARGETS_MAX)
            .map(|(server, start)| ((start.owner.clone(), server), start))
            .collect()
    }

    /// Returns the own address from which a server is notified: the first of its IP family.
    fn source_for(&self, server: SocketAddr) -> IpAddr {
        let mut own = self.sources.iter().copied();
        let any = match server {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        own.find(|address| address.is_ipv4() == server.is_ipv4()).unwrap_or(any)
    }
}

/// Sends a notification until it is confirmed or all attempts have failed.
async fn deliver(server: SocketAddr, start: Record, source: IpAddr, metrics: Arc<Metrics>) {
    let zone = start.owner.clone();
    match attempt(server, &start, source).await {
        Ok(true) => tracing::debug!(%server, zone, "notified of a change"),
        Ok(false) => {
            metrics.notify_failures.inc();
            tracing::warn!(%server, zone, "a secondary name server does not respond to notifications");
        }
        Err(error) => {
            metrics.notify_failures.inc();
            tracing::warn!(%server, zone, %error, "cannot notify a secondary name server");
        }
    }
}

/// Sends a notification several times. Returns true as soon as it is confirmed.
async fn attempt(server: SocketAddr, start: &Record, source: IpAddr) -> io::Result<bool> {
    let id = fastrand::u16(..);
    let Some(message) = encode_notification(id, start) else { return Ok(false) };
    let socket = UdpSocket::bind((source, 0)).await?;
    socket.connect(server).await?;
    for seconds in WAITS_SECS {
        // Errors such as a closed port are those of a server that starts later.
        if let Err(error) = socket.send(&message).await {
            tracing::debug!(%server, %error, "cannot send a notification");
        }
        if timeout(Duration::from_secs(seconds), confirmed(&socket, id)).await.is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for the confirmation of a notification.
async fn confirmed(socket: &UdpSocket, id: u16) {
    let mut buffer = [0; RESPONSE_BYTES_MAX];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(size) if is_confirmation(&buffer[..size], id) => return,
            Ok(_) => {}
            Err(_) => sleep(INTERVAL).await,
        }
    }
}
