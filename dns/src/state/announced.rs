//! Stream of the load balancer addresses that are announced, from any of the control servers. Without a connection, the
//! last addresses stay in use.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use client::{Backoff, Client, Error, Request};
use model::{discovery::dns::Zone, wire::announced::AnnouncedFrame};
use tokio::sync::watch;

use super::serial::numbered;

/// Minimum delay before the next attempt to reach a control server.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum delay before the next attempt to reach a control server.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Follower of the announced addresses.
pub(crate) struct AnnouncedFollower {
    pub(crate) client: Client,
    pub(crate) zones: watch::Sender<Option<Arc<Zone>>>,
}

impl AnnouncedFollower {
    /// Follows the addresses until the task is cancelled. Begins when the objects are known.
    pub(crate) async fn run(&self) {
        let mut zones = self.zones.subscribe();
        if zones.wait_for(Option::is_some).await.is_err() {
            return;
        }
        drop(zones);
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let cause = match self.read(&mut backoff).await {
                Ok(()) => "the server closed the stream".to_owned(),
                Err(error) => base::chain(&error),
            };
            tracing::warn!(
                server = self.client.url(),
                cause,
                "no stream of announced addresses; the last addresses stay in use"
            );
            self.client.use_next();
            tokio::time::sleep(backoff.next_random_delay()).await;
        }
    }

    async fn read(&self, backoff: &mut Backoff) -> Result<(), Error> {
        let mut lines = self.client.stream(&Request::get("/v1/addresses/announced")).await?;
        let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
        while let Some(line) = lines.next().await? {
            let Ok(frame) = serde_json::from_value::<AnnouncedFrame>(line) else { continue };
            match frame {
                AnnouncedFrame::Heartbeat => {}
                AnnouncedFrame::Error { .. } => return Ok(()),
                AnnouncedFrame::Complete { .. } | AnnouncedFrame::Change { .. } => {
                    frame.apply(&mut addresses);
                    self.publish(&addresses);
                    backoff.reset();
                }
            }
        }
        Ok(())
    }

    fn publish(&self, addresses: &BTreeSet<IpAddr>) {
        self.zones.send_if_modified(|zone| {
            let Some(known) = zone.as_ref() else { return false };
            if known.announced().is_some_and(|known| **known == *addresses) {
                return false;
            }
            let changed = known.with_announced(Some(Arc::new(addresses.clone())));
            *zone = Some(Arc::new(numbered(&changed, Some(known))));
            true
        });
    }
}
