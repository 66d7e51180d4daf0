//! Leader election among the processes that share an etcd store. The leader holds the etcd key `leader`,
//! which is bound to a lease of etcd.
//!
//! ```text
//! waiting ── the key was free and is written ──▶ leading ── lease renewed in time ──▶ leading
//!    ▲                                              │
//!    └── lease lost, or not renewed in time ────────┘
//! ```
//! The leader deletes the key when the store is dropped. By the local clock, leadership ends before etcd can
//! expire the lease.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};
use uuid::Uuid;

use super::{Core, link::Failure};

/// Duration of the etcd lease of the leader. An unresponsive leader keeps the leader key for this long after
/// the last renewal.
const LEASE: Duration = Duration::from_secs(5);
/// Time by which leadership ends before the lease expires; far more than the clocks of two machines drift apart
/// during one lease.
const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// Renewal interval of the lease; two consecutive renewals may fail.
const RENEW: Duration = Duration::from_millis(1_200);
/// Delay after a failed renewal; the next attempt uses another member.
const RENEW_AGAIN: Duration = Duration::from_millis(100);
/// Interval at which candidates check whether the leader key is free.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the election task until the store is dropped or resigns leadership.
pub(super) async fn run(core: Arc<Core>, leads: watch::Sender<bool>, mut alive: watch::Receiver<()>) {
    let id = Uuid::now_v7().to_string();
    loop {
        let won = tokio::select! {
            won = campaign(&core, &id) => won,
            _ = alive.changed() => return,
        };
        if let Some((lease, until)) = won {
            tracing::info!("this server is now the leader");
            leads.send_replace(true);
            let is_dropped = tokio::select! {
                () = hold(&core, lease, until) => false,
                _ = alive.changed() => true,
            };
            leads.send_replace(false);
            tracing::info!("this server is no longer the leader");
            // Released at once; otherwise the lease would expire.
            let _ = core.link.revoke(lease).await;
            if is_dropped {
                return;
            }
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = alive.changed() => return,
        }
    }
}

/// Tries once to become the leader as `id`. Returns the lease id and the time until which the lease is
/// certainly valid; `None` if another process leads or etcd failed.
async fn campaign(core: &Core, id: &str) -> Option<(i64, Instant)> {
    match try_campaign(core, id).await {
        Ok(won) => won,
        Err(failure) => {
            tracing::debug!(error = %failure, "no campaign");
            None
        }
    }
}

async fn try_campaign(core: &Core, id: &str) -> Result<Option<(i64, Instant)>, Failure> {
    let key = core.keys.leader();
    // The check needs no lease; otherwise waiting candidates would cause writes in etcd.
    if !core.link.get(&key, &GetOptions::new().with_keys_only()).await?.kvs().is_empty() {
        return Ok(None);
    }
    let until = Instant::now() + LEASE - LEASE_MARGIN;
    let lease = core.link.grant(LEASE).await?;
    let txn = Txn::new()
        .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key, id, Some(PutOptions::new().with_lease(lease)))]);
    match core.link.txn(txn).await {
        Ok(answer) if answer.succeeded() => Ok(Some((lease, until))),
        Ok(_) => {
            let _ = core.link.revoke(lease).await;
            Ok(None)
        }
        // The key may be ours; revoking the lease releases it.
        Err(failure) => {
            let _ = core.link.revoke(lease).await;
            Err(failure)
        }
    }
}

/// Renews the leader's lease regularly. Returns when etcd reports that the lease has expired, or when its
/// certain validity (`until`, extended by each renewal) ends.
async fn hold(core: &Core, lease: i64, until: Instant) {
    let (mut until, mut pause) = (until, RENEW);
    loop {
        sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
        let asked = Instant::now();
        let renewed = tokio::select! {
            renewed = core.link.renew(lease, RENEW) => renewed,
            () = sleep_until(until.into()) => return,
        };
        match renewed {
            // Counted from the time of the request, because etcd's lease starts later.
            Ok(true) => (until, pause) = (asked + LEASE - LEASE_MARGIN, RENEW),
            Ok(false) => return,
            Err(failure) => {
                tracing::debug!(error = %failure, "cannot renew the lease");
                if Instant::now() >= until {
                    return;
                }
                pause = RENEW_AGAIN;
            }
        }
    }
}
