//! Certificate lifecycle: the node obtains its certificate by a join token, renews the certificate, also after it has
//! expired, and joins again by a new token after the certificate was revoked. The agent continues with its current
//! state in all cases.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use base::{backoff::Backoff, chain, clock::wall_clock as now, entropy};
use model::primitives::{quantity::Timestamp, secret::Secret};
use reqwest::StatusCode;
use rustls_pki_types::CertificateDer;
use tls_trust::{Trust, certificates};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    CertificateStatus, EnrolOptions, IdentityLocation,
    client::{client, read_ca_file, roots},
    identity::{Identity, forget_next_key},
    request::{self, Credential, Refusal},
    token,
};
use crate::control::Control;

/// Minimum delay after a failed certificate request. The maximum is `RETRY_CAP`.
const RETRY_FLOOR: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// Interval between checks for a new join token. The task never sleeps longer, so that it soon notices that
/// the clock was set or the machine was suspended.
const LOOK: Duration = Duration::from_secs(5);
/// Interval between requests to renew an expired certificate after control has refused that. The cause may go away: an
/// operator raises the limit, or sets a clock.
const REFUSED_RETRY: Duration = Duration::from_secs(120);
/// Timeout of the request that finds out if a control server can be verified.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of the error message of rustls if the certificate of a server is not accepted.
const UNVERIFIED: &str = "invalid peer certificate";
/// Share of a certificate's lifetime in percent after which it is renewed. A delay that depends on the node
/// name is added, so that nodes started together do not renew together.
const RENEW_PERCENT: i64 = 66;
const RENEW_SPREAD_PERCENT: i64 = 6;

/// Handle of the task that maintains the node's certificate.
#[derive(Debug)]
pub struct CertificateHandle {
    /// Current status of the certificate.
    pub shown: watch::Receiver<CertificateStatus>,
    settled: watch::Receiver<bool>,
}

impl CertificateHandle {
    /// Waits until the task has determined if the node has a certificate. Requests sent earlier would be
    /// rejected.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut settled = self.settled.clone();
        async move {
            // If the task has ended, the value no longer changes.
            let _gone = settled.wait_for(|settled| *settled).await;
        }
    }
}

struct CertificateRenewal {
    control: Arc<Control>,
    place: IdentityLocation,
    options: EnrolOptions,
    /// CA certificates from the operator's CA file.
    authorities: Vec<CertificateDer<'static>>,
    identity: Option<Identity>,
    /// CA certificates that control sent with the certificate, as PEM.
    stored_authorities: String,
    /// Join token that was present when a control server was verified, and that is therefore not needed.
    unneeded: Option<Secret>,
    /// Last refusal of control to renew the expired certificate, with its time.
    expired_refusal: Option<(Instant, String)>,
    /// True if the control server has revoked the certificate, so this node must join again.
    is_taken_back: bool,
    /// Join token that the control server has rejected and that is not tried again; `None` if there is none.
    refused: Option<Secret>,
    shown: watch::Sender<CertificateStatus>,
    settled: watch::Sender<bool>,
}

/// Loads the saved identity, sets the client of `control`, and maintains the certificate until stopped.
///
/// # Errors
/// Returns an error if a file named by the operator, or the saved identity, cannot be used.
pub fn start(
    control: Arc<Control>,
    place: IdentityLocation,
    options: EnrolOptions,
    stop: CancellationToken,
) -> anyhow::Result<CertificateHandle> {
    let (shown, shown_to) = watch::channel(CertificateStatus::default());
    let (settled, is_settled) = watch::channel(false);
    let kept = CertificateHandle { shown: shown_to, settled: is_settled };
    if !control.urls.iter().any(|url| url.scheme() == "https") {
        settled.send_replace(true);
        return Ok(kept);
    }
    let authorities = options.ca_file.as_deref().map(read_ca_file).transpose()?.unwrap_or_default();
    let mut keeper = CertificateRenewal {
        control,
        place,
        options,
        authorities,
        identity: None,
        stored_authorities: String::new(),
        unneeded: None,
        expired_refusal: None,
        is_taken_back: false,
        refused: None,
        shown,
        settled,
    };
    // An unusable identity is treated as missing: the agent keeps serving and joins again.
    let kept_there = Identity::load(&keeper.place.state_dir, &keeper.place.node).unwrap_or_else(|error| {
        error!(error = chain(error.as_ref()), "cannot use the certificate of this node in --state-dir");
        None
    });
    let stored = kept_there.as_ref().map(|(_, authorities)| authorities.as_str()).unwrap_or_default();
    let client = keeper.client_for(kept_there.as_ref().map(|(identity, _)| identity), stored)?;
    keeper.control.client.store(Arc::new(client));
    if let Some((identity, authorities)) = kept_there {
        keeper.take(identity, authorities);
    }
    tokio::spawn(async move { stop.run_until_cancelled(keeper.run()).await });
    Ok(kept)
}

impl CertificateRenewal {
    async fn run(&mut self) {
        let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CAP);
        loop {
            let now = now();
            let wait = match &self.identity {
                Some(identity) if now < renewal(identity, &self.place) && !self.is_taken_back => {
                    let left = renewal(identity, &self.place).unix_seconds() - now.unix_seconds();
                    let left = Duration::from_secs(u64::try_from(left).unwrap_or_default()).min(LOOK);
                    self.join_unverified().await;
                    left
                }
                Some(identity) if now < identity.expires && !self.is_taken_back => {
                    let renewed = self.renew().await;
                    self.note(renewed, &mut backoff)
                }
                Some(_) if !self.is_taken_back => {
                    let renewed = self.renew_expired().await;
                    self.note(renewed, &mut backoff)
                }
                Some(_) | None => {
                    let joined = self.join().await;
                    self.note(joined, &mut backoff)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.control.rejected.notified() => self.check().await,
            }
        }
    }

    /// Finds out if the certificate was revoked, after a server has rejected it: the renewal of a revoked certificate is
    /// rejected, too. The node then joins again as soon as it has a new join token.
    async fn check(&mut self) {
        let is_valid = self.identity.as_ref().is_some_and(|identity| identity.expires > now());
        if is_valid
            && !self.is_taken_back
            && let Err(error) = self.renew().await
        {
            self.complain(Some(&error));
        }
    }

    /// Handles the result of an attempt to obtain a certificate, and returns the delay until the next
    /// attempt.
    fn note(&mut self, outcome: anyhow::Result<bool>, backoff: &mut Backoff) -> Duration {
        let has_ended =
            self.is_taken_back || self.identity.as_ref().is_none_or(|identity| identity.expires <= now());
        match outcome {
            Ok(true) => {
                backoff.reset();
                Duration::ZERO
            }
            Ok(false) => {
                if has_ended {
                    self.complain(None);
                }
                self.settled.send_replace(true);
                LOOK
            }
            Err(error) => {
                self.complain(Some(&error));
                // Waiting for a certificate helps only while control is unavailable.
                let is_away = matches!(
                    error.downcast_ref::<Refusal>(),
                    Some(Refusal::Unreachable(_) | Refusal::Busy { .. })
                );
                if !is_away {
                    self.settled.send_replace(true);
                }
                backoff.next_delay(entropy())
            }
        }
    }

    /// Publishes a problem with the certificate, and logs it unless it repeats the previous one; `None`
    /// clears the problem.
    fn complain(&self, cause: Option<&anyhow::Error>) {
        let node = &self.place.node;
        let advice = format!(
            "create a join token for node {node} (`tidegate node join-token {node}`) and put it into \
             --join-token-file"
        );
        let cause = cause.map(|error| chain(error.as_ref())).unwrap_or_default();
        let problem = match &self.identity {
            None if cause.is_empty() => format!("this node has no certificate; {advice}"),
            None => format!("this node cannot join: {cause}; if the token was used or has expired, {advice}"),
            Some(_) if self.is_taken_back => {
                let ended = format!("the certificate of this node was revoked; {advice}");
                if cause.is_empty() { ended } else { format!("{ended}; the last attempt: {cause}") }
            }
            Some(identity) if identity.expires > now() => {
                format!(
                    "the certificate of this node expires {} and cannot be renewed: {cause}",
                    identity.expires
                )
            }
            Some(identity) => {
                let ended = format!("the certificate of this node expired {}", identity.expires);
                match &self.expired_refusal {
                    Some((_, refusal)) if refusal == &cause || cause.is_empty() => {
                        format!("{ended} and control does not renew it: {refusal}; {advice}")
                    }
                    Some((_, refusal)) => format!(
                        "{ended} and control does not renew it: {refusal}; {advice}; the last attempt: {cause}"
                    ),
                    None => format!(
                        "{ended}; the agent renews it as soon as control answers, no action is needed; the last attempt: {cause}"
                    ),
                }
            }
        };
        let expires = self.identity.as_ref().map(|identity| identity.expires);
        let shown = CertificateStatus { expires, problem: Some(problem.clone()) };
        if !self.shown.send_if_modified(|last| std::mem::replace(last, shown.clone()) != shown) {
            debug!(problem, "still no certificate");
        } else if !self.is_taken_back && expires.is_some_and(|expires| expires > now()) {
            warn!("{problem}");
        } else {
            error!("{problem}");
        }
    }

    /// Joins again if a new join token is given and no control server can be verified with the trusted CAs, although one
    /// answers: the operator replaced the authority, or the cluster. The pin in the token then proves the server.
    async fn join_unverified(&mut self) {
        let given = token::given(&self.options).ok().flatten();
        let Some(token) = given
            .filter(|token| Some(token) != self.refused.as_ref() && Some(token) != self.unneeded.as_ref())
        else {
            return;
        };
        let mut is_unverified = false;
        for server in self.control.servers().filter(|server| self.control.base(*server).scheme() == "https") {
            let request = self.control.client().get(self.control.url(server, "/v1/ca"));
            match request.timeout(PROBE_TIMEOUT).send().await {
                Ok(_) => {
                    self.unneeded = Some(token);
                    self.shown.send_modify(|shown| shown.problem = None);
                    return;
                }
                Err(error) => is_unverified |= chain(&error).contains(UNVERIFIED),
            }
        }
        if is_unverified && let Err(error) = self.join().await {
            self.complain(Some(&error.context(
                "no control server can be verified with the CA certificates of this node, and it cannot join again",
            )));
        }
    }

    /// Joins the cluster (obtains a certificate) with the current join token, unless there is none or it was
    /// rejected before. Returns true if the node has joined.
    async fn join(&mut self) -> anyhow::Result<bool> {
        let Some(token) = token::given(&self.options)?.filter(|token| Some(token) != self.refused.as_ref())
        else {
            return Ok(false);
        };
        // CAs named by the operator take precedence over the pin of the token.
        let trust = if self.authorities.is_empty() {
            Trust::Pin(token::pin(&token)?)
        } else {
            roots(self.authorities.clone())?
        };
        let client = client(trust, None)?;
        match self.sign_anywhere(&client, Credential::Token(&token)).await {
            Ok(signed) => {
                self.adopt(signed)?;
                info!(node = %self.place.node, "this node has joined; control has signed its certificate");
                Ok(true)
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::Refused { .. }) {
                    self.refused = Some(token);
                }
                Err(refusal.into())
            }
        }
    }

    async fn renew(&mut self) -> anyhow::Result<bool> {
        let client = self.control.client();
        let signed = self.sign_anywhere(&client, Credential::Connection).await;
        if let Err(Refusal::Refused { status: StatusCode::UNAUTHORIZED, .. }) = &signed {
            self.is_taken_back = true;
        }
        let signed = signed?;
        self.adopt(signed)?;
        debug!("the certificate of this node was renewed");
        Ok(true)
    }

    /// Renews the certificate, which has expired, by a request that its key signs. If that is not possible and there is a new
    /// join token, joins again. Returns true if the node has a new certificate.
    async fn renew_expired(&mut self) -> anyhow::Result<bool> {
        let is_due = self.expired_refusal.as_ref().is_none_or(|(at, _)| at.elapsed() >= REFUSED_RETRY);
        let Some(identity) = self.identity.clone().filter(|_| is_due) else { return self.join().await };
        // Without the expired certificate, which control would reject.
        let client = client(self.all_roots(&self.stored_authorities)?, None)?;
        match self.sign_anywhere(&client, Credential::Expired(&identity)).await {
            Ok(signed) => {
                self.adopt(signed)?;
                info!(expired = %identity.expires, "the expired certificate of this node was renewed");
                Ok(true)
            }
            Err(refusal) => {
                self.expired_refusal =
                    matches!(refusal, Refusal::Refused { .. }).then(|| (Instant::now(), chain(&refusal)));
                if self.join().await? { Ok(true) } else { Err(refusal.into()) }
            }
        }
    }

    /// Sends a certificate request to each control server in turn until one replies. Returns the new
    /// identity with the CA certificates, or the reason for the failure.
    async fn sign_anywhere(
        &self,
        client: &reqwest::Client,
        credential: Credential<'_>,
    ) -> Result<(Identity, String), Refusal> {
        let mut last = Refusal::Unusable(anyhow::anyhow!("no control server has an https:// URL"));
        for server in self.control.servers().filter(|server| self.control.base(*server).scheme() == "https") {
            let url = self.control.url(server, credential.path());
            let place = (&self.place.node, self.place.state_dir.as_path());
            match request::sign(client, url, place, credential).await {
                Ok(signed) => return Ok(signed),
                // Other servers have the same tokens.
                Err(refusal @ Refusal::Refused { .. }) => return Err(refusal),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }

    /// Activates a new certificate in the HTTP client, and saves it in the state directory.
    fn adopt(&mut self, (identity, authorities): (Identity, String)) -> anyhow::Result<()> {
        let client = self.client_for(Some(&identity), &authorities)?;
        match identity.save(&self.place.state_dir, &authorities) {
            Ok(()) => forget_next_key(&self.place.state_dir),
            Err(error) => {
                error!(%error, "cannot save the certificate of this node; after a restart the node has to \
                                join again");
            }
        }
        self.control.client.store(Arc::new(client));
        self.take(identity, authorities);
        Ok(())
    }

    fn take(&mut self, identity: Identity, authorities: String) {
        self.shown.send_replace(CertificateStatus { expires: Some(identity.expires), problem: None });
        if identity.expires > now() {
            self.settled.send_replace(true);
        }
        self.identity = Some(identity);
        (self.stored_authorities, self.expired_refusal) = (authorities, None);
        (self.is_taken_back, self.refused) = (false, None);
    }

    /// Creates an HTTP client that trusts the operator's CAs and the CA certificates in `stored`. An expired
    /// certificate in `identity` is not used, because servers would reject the connection with a less
    /// specific error.
    fn client_for(&self, identity: Option<&Identity>, stored: &str) -> anyhow::Result<reqwest::Client> {
        let lives = identity.filter(|identity| identity.expires > now());
        client(self.all_roots(stored)?, lives)
    }

    /// Returns the operator's CAs and the CA certificates in `stored`.
    fn all_roots(&self, stored: &str) -> anyhow::Result<Trust> {
        let mut authorities = self.authorities.clone();
        authorities.extend(certificates(stored.as_bytes()).context("cannot use the saved CA certificates")?);
        roots(authorities)
    }
}

/// Returns the time at which a certificate is to be renewed: two thirds of its lifetime plus a delay that
/// depends on the node name.
fn renewal(identity: &Identity, place: &IdentityLocation) -> Timestamp {
    let (issued, ends) = (identity.issued.unix_seconds(), identity.expires.unix_seconds());
    // Stable per node, but different between nodes.
    let spread = place.node.as_str().bytes().fold(0_i64, |all, byte| (all * 31 + i64::from(byte)) % 1000);
    let life = ends.saturating_sub(issued);
    let part = RENEW_PERCENT * 1000 + RENEW_SPREAD_PERCENT * spread;
    Timestamp::from_unix_seconds(issued.saturating_add(life.saturating_mul(part) / 100_000))
}
