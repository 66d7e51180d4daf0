//! Notification of secondary name servers after changes of the zones of DnsZones (RFC 1996).

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::discovery::dns::{RecordData, ZoneNotification, notifications};
use tokio::{
    net::UdpSocket,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    keys::Keys,
    message::{Signer, encode_notification, is_confirmation},
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
/// Serial number and key of a notification.
type NotifiedState = (u32, Option<String>);

/// Task that notifies secondary name servers.
pub(crate) struct ChangeNotifier {
    zones: Zones,
    keys: Keys,
    /// Addresses of this server. Notifications come from one of them, by which secondary name servers recognize it.
    sources: Vec<IpAddr>,
    metrics: Arc<Metrics>,
}

impl ChangeNotifier {
    /// Creates the task for a server with the addresses `sources`.
    pub(crate) const fn new(zones: Zones, keys: Keys, sources: Vec<IpAddr>, metrics: Arc<Metrics>) -> Self {
        Self { zones, keys, sources, metrics }
    }

    /// Notifies secondary name servers of the first state and of each change until the task is cancelled.
    pub(crate) async fn run(mut self) {
        let mut notified: BTreeMap<Target, (NotifiedState, AbortHandle)> = BTreeMap::new();
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
            for (target, notification) in wanted {
                let RecordData::Soa { serial, .. } = notification.start.data else { continue };
                let state = (serial, notification.key.clone());
                if notified.get(&target).is_some_and(|(known, _)| *known == state) {
                    continue;
                }
                let delivery = Delivery {
                    source: self.source_for(target.1),
                    keys: self.keys.clone(),
                    metrics: Arc::clone(&self.metrics),
                    notification,
                };
                // A newer notification replaces one that has not been confirmed.
                if let Some((_, older)) = notified.insert(target, (state, tasks.spawn(delivery.run()))) {
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

    /// Returns the notifications of which each secondary name server must know.
    fn wanted(&mut self) -> BTreeMap<Target, ZoneNotification> {
        let zone = self.zones.borrow_and_update().clone();
        let all = zone.map(|zone| notifications(&zone)).unwrap_or_default();
        let target = |it: &ZoneNotification| (it.start.owner.clone(), it.server);
        all.into_iter().take(TARGETS_MAX).map(|notification| (target(&notification), notification)).collect()
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

/// Notification of one secondary name server.
struct Delivery {
    notification: ZoneNotification,
    source: IpAddr,
    keys: Keys,
    metrics: Arc<Metrics>,
}

impl Delivery {
    /// Sends the notification until it is confirmed or all attempts have failed.
    async fn run(self) {
        let ZoneNotification { server, start, .. } = &self.notification;
        let zone = &start.owner;
        match self.attempt().await {
            Ok(true) => tracing::debug!(%server, zone, "notified of a change"),
            Ok(false) => {
                self.metrics.notify_failures.inc();
                tracing::warn!(
                    %server,
                    zone,
                    key = self.notification.key,
                    "a secondary name server does not respond to notifications, or not with a valid signature of the key"
                );
            }
            Err(error) => {
                self.metrics.notify_failures.inc();
                tracing::warn!(%server, zone, %error, "cannot notify a secondary name server");
            }
        }
    }

    /// Sends the notification several times. Returns true as soon as it is confirmed.
    async fn attempt(&self) -> io::Result<bool> {
        let ZoneNotification { server, start, .. } = &self.notification;
        let id = fastrand::u16(..);
        let Some(message) = encode_notification(id, start) else { return Ok(false) };
        let socket = UdpSocket::bind((self.source, 0)).await?;
        socket.connect(server).await?;
        for seconds in WAITS_SECS {
            let wait = Duration::from_secs(seconds);
            // Each attempt is signed at its own time.
            let Some((message, signer)) = self.signed(&message, id) else {
                tracing::debug!(%server, "the key of a notification has not been received yet");
                sleep(wait).await;
                continue;
            };
            // Errors such as a closed port are those of a server that starts later.
            if let Err(error) = socket.send(&message).await {
                tracing::debug!(%server, %error, "cannot send a notification");
            }
            if timeout(wait, confirmed(&socket, id, signer.as_ref())).await.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the message with the signature of the key, and the signer that verifies the response. A notification without
    /// a key stays as it is. `None` if the key is not known yet.
    fn signed(&self, message: &[u8], id: u16) -> Option<(Vec<u8>, Option<Signer>)> {
        let Some(key) = &self.notification.key else { return Some((message.to_vec(), None)) };
        let secret = self.keys.borrow().secret(&self.notification.start.owner, key)?;
        let mut signer = Signer::of_request(key, &secret, id, now())?;
        Some((signer.sign(message.to_vec()), Some(signer)))
    }
}

/// Waits for the confirmation of a notification.
async fn confirmed(socket: &UdpSocket, id: u16, signer: Option<&Signer>) {
    let mut buffer = [0; RESPONSE_BYTES_MAX];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(size) if is_confirmation(&buffer[..size], id, signer, now()) => return,
            Ok(_) => {}
            Err(_) => sleep(INTERVAL).await,
        }
    }
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
