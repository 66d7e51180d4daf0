//! Leader election by a Lease: one of several adapters of a cluster is active. An adapter that loses the
//! Lease exits and is restarted.

mod machine;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;

use self::machine::{Candidate, DEADLINE, DURATION, LeaseState, RENEW, Verdict};

use super::words;

/// Leader election of this adapter process among all adapters of its cluster.
pub(super) struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
}

impl Election {
    pub(super) fn new(client: Client, namespace: &str, name: String, me: String) -> Self {
        Self { api: Api::namespaced(client, namespace), name, me }
    }

    /// Tries to acquire the Lease until this process holds it.
    pub(super) async fn win(&self) {
        let (start, mut candidate) = (Instant::now(), Candidate::default());
        let mut is_said = false;
        loop {
            match tokio::time::timeout(DEADLINE, self.round(&mut candidate, start.elapsed())).await {
                Ok(Ok(true)) => return tracing::info!(lease = self.name, identity = self.me, "leading"),
                Ok(Ok(false)) if is_said => {}
                Ok(Ok(false)) => tracing::info!(
                    lease = self.name,
                    "another adapter holds the lease; \
                                                                    waiting"
                ),
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, "cannot read or write the lease: {}", words(&error))
                }
                Err(elapsed) => {
                    tracing::warn!(lease = self.name, "cannot read or write the lease: {elapsed}")
                }
            }
            is_said = true;
            tokio::time::sleep(RENEW / 2).await;
        }
    }

    /// Renews the Lease. Returns when renewals have failed for too long, or another candidate holds the
    /// Lease.
    pub(super) async fn hold(&self) {
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(RENEW).await;
            let left = DEADLINE.saturating_sub(renewed_at.elapsed());
            // A blocked request must not outlive the Lease that it renews.
            match tokio::time::timeout(left, self.round(&mut Candidate::default(), Duration::ZERO)).await {
                Ok(Ok(true)) => renewed_at = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, "cannot renew the lease: {}", words(&error))
                }
                Err(_elapsed) => return,
            }
            if renewed_at.elapsed() >= DEADLINE {
                return;
            }
        }
    }

    /// Releases the Lease, so that another candidate can take over at once.
    pub(super) async fn release(&self) {
        if let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await
            && holder(&lease) == self.me
        {
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = None;
            }
            // If this fails, the Lease expires.
            let _replaced = self.api.replace(&self.name, &PostParams::default(), &lease).await;
        }
    }

    /// Reads the Lease, and acquires or renews it if the state machine of the candidate decides so. Returns
    /// true if this process holds the Lease.
    async fn round(&self, candidate: &mut Candidate, now: Duration) -> kube::Result<bool> {
        let lease = self.api.get_opt(&self.name).await?;
        let verdict = candidate.judge(&self.me, lease.as_ref().map(seen), now);
        let written = match (verdict, lease) {
            (Verdict::Wait, _) => return Ok(false),
            (Verdict::Take, None) => self.api.create(&PostParams::default(), &self.ours(None)).await,
            // The write contains the resource version that was read, so a concurrent write is detected.
            (Verdict::Take, Some(old)) => {
                self.api.replace(&self.name, &PostParams::default(), &self.ours(Some(old))).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ours(&self, old: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let is_ours = old.as_ref().is_some_and(|old| holder(old) == self.me);
        let (metadata, spec) = match old {
            Some(old) => (old.metadata, old.spec.unwrap_or_default()),
            None => {
                (ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() }, LeaseSpec::default())
            }
        };
        let transitions = spec.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: if is_ours { spec.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
            ..spec
        };
        Lease { metadata, spec: Some(spec) }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn seen(lease: &Lease) -> LeaseState {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let duration =
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DURATION, Duration::from_secs);
    LeaseState {
        holder: holder(lease).to_owned(),
        duration,
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}
