//! Joins, renews, and joins again; whatever happens, the agent goes on with what it has.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use model::primitives::{quantity::Timestamp, secret::Secret};
use reqwest::StatusCode;
use rustls_pki_types::CertificateDer;
use tls_trust::{Trust, certificates};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    EnrolOptions, Place, Shown,
    client::{client, read_ca_file, roots},
    identity::Identity,
    request::{self, Refusal},
    token,
};
use crate::{backoff::Backoff, clock::wall_clock as now, control::Control, entropy, feed::chain};

/// Waits between attempts.
const RETRY_FLOOR: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// Time between two looks for another join token, and the longest sleep: clocks are set, and machines sleep.
const LOOK: Duration = Duration::from_secs(5);
/// Renewal is due after this part of a certificate's life, and a little later on some nodes, so that a cluster that was
/// started at once does not renew at once.
const RENEW_PERCENT: i64 = 66;
const RENEW_SPREAD_PERCENT: i64 = 6;

/// Keeps the certificate of a node.
#[derive(Debug)]
pub struct Kept {
    /// How it is going.
    pub shown: watch::Receiver<Shown>,
    settled: watch::Receiver<bool>,
}

impl Kept {
    /// Waits until it is known whether there is a certificate: before that, control would refuse everything.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut settled = self.settled.clone();
        async move {
            // A keeper that has ended settles nothing any longer.
            let _gone = settled.wait_for(|settled| *settled).await;
        }
    }
}

struct Keeper {
    control: Arc<Control>,
    place: Place,
    options: EnrolOptions,
    /// What the operator gave.
    authorities: Vec<CertificateDer<'static>>,
    identity: Option<Identity>,
    /// Whether control has said that the certificate does not count any longer.
    is_taken_back: bool,
    /// A token that control refused is not tried again.
    refused: Option<Secret>,
    shown: watch::Sender<Shown>,
    settled: watch::Sender<bool>,
}

/// Loads what is kept, gives the ways to control their client, and looks after it until told to stop.
///
/// # Errors
/// A file that the operator names, or what is kept, cannot be used.
pub fn start(
    control: Arc<Control>,
    place: Place,
    options: EnrolOptions,
    stop: CancellationToken,
) -> anyhow::Result<Kept> {
    let (shown, shown_to) = watch::channel(Shown::default());
    let (settled, is_settled) = watch::channel(false);
    let kept = Kept { shown: shown_to, settled: is_settled };
    if !control.urls.iter().any(|url| url.scheme() == "https") {
        settled.send_replace(true);
        return Ok(kept);
    }
    let authorities = options.ca_file.as_deref().map(read_ca_file).transpose()?.unwrap_or_default();
    let mut keeper = Keeper {
        control,
        place,
        options,
        authorities,
        identity: None,
        is_taken_back: false,
        refused: None,
        shown,
        settled,
    };
    // What cannot be read is as good as nothing: the agent serves what it holds, and joins again.
    let kept_there = Identity::load(&keeper.place.state_dir, &keeper.place.node).unwrap_or_else(|error| {
        error!(error = chain(error.as_ref()), "the certificate of this node in --state-dir cannot be used");
        None
    });
    let stored = kept_there.as_ref().map(|(_, authorities)| authorities.as_str()).unwrap_or_default();
    let client = keeper.client_for(kept_there.as_ref().map(|(identity, _)| identity), stored)?;
    keeper.control.client.store(Arc::new(client));
    if let Some((identity, _)) = kept_there {
        keeper.take(identity);
    }
    tokio::spawn(async move { stop.run_until_cancelled(keeper.run()).await });
    Ok(kept)
}

impl Keeper {
    async fn run(&mut self) {
        let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CAP);
        loop {
            let now = now();
            let wait = match &self.identity {
                Some(identity) if now < renewal(identity, &self.place) => {
                    let left = renewal(identity, &self.place).unix_seconds() - now.unix_seconds();
                    Duration::from_secs(u64::try_from(left).unwrap_or_default()).min(LOOK)
                }
                Some(identity) if now < identity.expires && !self.is_taken_back => {
                    let renewed = self.renew().await;
                    self.note(renewed, &mut backoff)
                }
                Some(_) | None => {
                    let joined = self.join().await;
                    self.note(joined, &mut backoff)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Says what came of an attempt, and how long to wait until the next.
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
                // Only while control is away does waiting for a certificate help.
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

    /// Logs what is wrong, the same only once in a row, and shows it.
    fn complain(&self, cause: Option<&anyhow::Error>) {
        let node = &self.place.node;
        let advice = format!(
            "make a join token for node {node} (`tidegate node join-token {node}`) and put it into --join-token-file"
        );
        let cause = cause.map(|error| chain(error.as_ref())).unwrap_or_default();
        let problem = match &self.identity {
            None if cause.is_empty() => format!("this node has no certificate; {advice}"),
            None => format!("this node cannot join: {cause}; if the token was used or has ended, {advice}"),
            Some(_) if self.is_taken_back => {
                let ended = format!("the certificate of this node was taken back; {advice}");
                if cause.is_empty() { ended } else { format!("{ended}; the last attempt: {cause}") }
            }
            Some(identity) if identity.expires > now() => {
                format!(
                    "the certificate of this node ends {} and cannot be renewed: {cause}",
                    identity.expires
                )
            }
            Some(identity) => {
                let ended = format!("the certificate of this node has ended {}; {advice}", identity.expires);
                if cause.is_empty() { ended } else { format!("{ended}; the last attempt: {cause}") }
            }
        };
        let expires = self.identity.as_ref().map(|identity| identity.expires);
        let shown = Shown { expires, problem: Some(problem.clone()) };
        if !self.shown.send_if_modified(|last| std::mem::replace(last, shown.clone()) != shown) {
            debug!(problem, "still no certificate");
        } else if !self.is_taken_back && expires.is_some_and(|expires| expires > now()) {
            warn!("{problem}");
        } else {
            error!("{problem}");
        }
    }

    /// Joins, if there is a token that was not refused; whether it did.
    async fn join(&mut self) -> anyhow::Result<bool> {
        let Some(token) = token::given(&self.options)?.filter(|token| Some(token) != self.refused.as_ref())
        else {
            return Ok(false);
        };
        // What the operator says of authorities goes before what a token says.
        let trust = if self.authorities.is_empty() {
            Trust::Pin(token::pin(&token)?)
        } else {
            roots(self.authorities.clone())?
        };
        let client = client(trust, None)?;
        match self.sign_anywhere(&client, "/v1/enrol", Some(&token)).await {
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
        let signed = self.sign_anywhere(&client, "/v1/renew", None).await;
        if let Err(Refusal::Refused { status: StatusCode::UNAUTHORIZED, .. }) = &signed {
            self.is_taken_back = true;
        }
        let signed = signed?;
        self.adopt(signed)?;
        debug!("the certificate of this node was renewed");
        Ok(true)
    }

    /// Asks one server after the other, until one answers.
    async fn sign_anywhere(
        &self,
        client: &reqwest::Client,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<(Identity, String), Refusal> {
        let mut last =
            Refusal::Unusable(anyhow::anyhow!("no control server has a URL that begins with https://"));
        for server in self.control.servers().filter(|server| self.control.base(*server).scheme() == "https") {
            match request::sign(client, self.control.url(server, path), &self.place.node, token).await {
                Ok(signed) => return Ok(signed),
                // Another server has the same tokens.
                Err(refusal @ Refusal::Refused { .. }) => return Err(refusal),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }

    /// Puts a new certificate in force, and keeps it.
    fn adopt(&mut self, (identity, authorities): (Identity, String)) -> anyhow::Result<()> {
        let client = self.client_for(Some(&identity), &authorities)?;
        if let Err(error) = identity.save(&self.place.state_dir, &authorities) {
            error!(%error, "the certificate of this node cannot be saved; after a restart the node has to join again");
        }
        self.control.client.store(Arc::new(client));
        self.take(identity);
        Ok(())
    }

    fn take(&mut self, identity: Identity) {
        self.shown.send_replace(Shown { expires: Some(identity.expires), problem: None });
        if identity.expires > now() {
            self.settled.send_replace(true);
        }
        self.identity = Some(identity);
        (self.is_taken_back, self.refused) = (false, None);
    }

    /// A certificate that has ended is not shown: servers would refuse the connection, and say less.
    fn client_for(&self, identity: Option<&Identity>, stored: &str) -> anyhow::Result<reqwest::Client> {
        let mut authorities = self.authorities.clone();
        authorities.extend(certificates(stored.as_bytes()).context("the saved authorities cannot be used")?);
        let lives = identity.filter(|identity| identity.expires > now());
        client(roots(authorities)?, lives)
    }
}

/// When a certificate is renewed.
fn renewal(identity: &Identity, place: &Place) -> Timestamp {
    let (issued, ends) = (identity.issued.unix_seconds(), identity.expires.unix_seconds());
    // The same for a node each time, and different between nodes.
    let spread = place.node.as_str().bytes().fold(0_i64, |all, byte| (all * 31 + i64::from(byte)) % 1000);
    let life = ends.saturating_sub(issued);
    let part = RENEW_PERCENT * 1000 + RENEW_SPREAD_PERCENT * spread;
    Timestamp::from_unix_seconds(issued.saturating_add(life.saturating_mul(part) / 100_000))
}
