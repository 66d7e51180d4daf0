//! Keys and endpoints of the issuer: discovery (OpenID Connect Discovery, 4), download with limits, and cache.
//!
//! Both are fetched together. The keys are fetched for the first token, for a token with an unknown key, and again after ten minutes. Fetches are at
//! least ten seconds apart. If a fetch fails, the known keys stay in use.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use model::primitives::quantity::Timestamp;
use reqwest::{Client, Url};
use tokio::sync::Mutex;

use super::{
    discovery::{DISCOVERY_PATH, Discovery, IssuerEndpoints},
    jwk::{self, PublicKey},
    token::{IdToken, TokenFault},
};
use crate::base::{config::oidc::is_private, outgoing};

/// Maximum size of a response in bytes.
pub(super) const BODY_BYTES_MAX: usize = 256 * 1024;
/// Minimum time in seconds between two fetches.
const PAUSE_SECS: i64 = 10;
/// Age in seconds after which the keys are fetched again, so that keys that the issuer has withdrawn are forgotten.
const AGE_SECS: i64 = 600;
/// Keys and endpoints with the time of their fetch.
#[derive(Debug)]
struct FetchedKeys {
    keys: Vec<Arc<PublicKey>>,
    /// Endpoints of the issuer; `None` if it has none for logins of browsers.
    endpoints: Option<Arc<IssuerEndpoints>>,
    at: Timestamp,
}

/// Age of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAge {
    /// Fetched within ten minutes, or no fetch may begin now.
    Fresh,
    /// Fetched earlier. A fetch is due.
    Old,
    /// Fetched earlier, and no fetch was attempted since, because no token has arrived.
    Unused,
}

/// Cache of the keys and endpoints of one issuer.
pub(super) struct KeyCache {
    issuer: String,
    client: Client,
    fetched: ArcSwapOption<FetchedKeys>,
    /// Time of the last attempt. The lock is held during a fetch, so that there is one at a time.
    attempt: Mutex<Option<Timestamp>>,
}

impl KeyCache {
    /// Creates an empty cache of an issuer, which is requested with `client`.
    pub(super) fn new(issuer: String, client: Client) -> Self {
        Self { issuer, client, fetched: ArcSwapOption::empty(), attempt: Mutex::new(None) }
    }

    /// Returns the endpoints of the issuer, or `None` if it has none for logins of browsers or was never reached. Waits if
    /// they have to be fetched.
    pub(super) async fn endpoints(self: &Arc<Self>, now: Timestamp) -> Option<Arc<IssuerEndpoints>> {
        match (self.fetched.load().is_some(), self.age(now)) {
            (true, KeyAge::Fresh) => {}
            (true, KeyAge::Old) => self.refresh_in_background(now),
            (false, _) | (true, KeyAge::Unused) => self.refresh(now).await,
        }
        self.fetched.load().as_ref().and_then(|fetched| fetched.endpoints.clone())
    }

    /// Returns the keys that may have signed a token; at least one.
    pub(super) async fn of(
        self: &Arc<Self>,
        token: &IdToken<'_>,
        now: Timestamp,
    ) -> Result<Vec<Arc<PublicKey>>, TokenFault> {
        let known = self.known(token);
        if !known.is_empty() {
            return match self.age(now) {
                KeyAge::Fresh => Ok(known),
                KeyAge::Old => {
                    self.refresh_in_background(now);
                    Ok(known)
                }
                KeyAge::Unused => {
                    self.refresh(now).await;
                    let known = self.known(token);
                    if known.is_empty() { Err(TokenFault::UnknownKey) } else { Ok(known) }
                }
            };
        }
        self.refresh(now).await;
        let known = self.known(token);
        if !known.is_empty() {
            return Ok(known);
        }
        Err(if self.fetched.load().is_some() { TokenFault::UnknownKey } else { TokenFault::NoKeys })
    }

    fn age(&self, now: Timestamp) -> KeyAge {
        let is_old = self.fetched.load().as_ref().is_some_and(|fetched| elapsed(fetched.at, now) >= AGE_SECS);
        // Another request that fetches the keys holds the lock.
        let Some(last) = self.attempt.try_lock().ok().and_then(|last| *last) else { return KeyAge::Fresh };
        match elapsed(last, now) {
            _ if !is_old || !is_due(Some(last), now) => KeyAge::Fresh,
            since if since < AGE_SECS + PAUSE_SECS => KeyAge::Old,
            _ => KeyAge::Unused,
        }
    }

    /// Returns the known keys with the id and the algorithm of a token. A token without the id of a key fits every key of the
    /// algorithm.
    fn known(&self, token: &IdToken<'_>) -> Vec<Arc<PublicKey>> {
        let fetched = self.fetched.load();
        let all = fetched.iter().flat_map(|fetched| &fetched.keys);
        let is_meant = |key: &&Arc<PublicKey>| {
            key.algorithm() == token.algorithm && (token.key_id.is_none() || key.id == token.key_id)
        };
        all.filter(is_meant).cloned().collect()
    }

    /// Fetches keys and endpoints, and does not let the caller wait.
    fn refresh_in_background(self: &Arc<Self>, now: Timestamp) {
        let cache = Arc::clone(self);
        tokio::spawn(async move { cache.refresh(now).await });
    }

    /// Fetches the keys, unless an attempt was made in the last ten seconds. Waits for a fetch that is under way.
    async fn refresh(&self, now: Timestamp) {
        let mut last = self.attempt.lock().await;
        if !is_due(*last, now) {
            return;
        }
        *last = Some(now);
        match self.fetch().await {
            Ok((keys, endpoints)) => {
                tracing::debug!(issuer = self.issuer, keys = keys.len(), "fetched the keys of the issuer");
                let keys = keys.into_iter().map(Arc::new).collect();
                let endpoints = endpoints.map(Arc::new);
                self.fetched.store(Some(Arc::new(FetchedKeys { keys, endpoints, at: now })));
            }
            Err(error) => {
                let has_keys = self.fetched.load().is_some();
                tracing::warn!(issuer = self.issuer, error, has_keys, "cannot fetch the keys of the issuer");
            }
        }
    }

    async fn fetch(&self) -> Result<(Vec<PublicKey>, Option<IssuerEndpoints>), String> {
        let url = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| error.to_string())?;
        let body = self.get(url).await?;
        let discovery: Discovery = serde_json::from_slice(&body)
            .map_err(|error| format!("the discovery document is malformed: {error}"))?;
        if discovery.issuer != self.issuer {
            return Err(
                "the discovery document is of another issuer: --oidc-issuer must be exactly the same"
                    .to_owned(),
            );
        }
        let jwks_uri = Url::parse(&discovery.jwks_uri).ok().filter(is_private);
        let jwks_uri =
            jwks_uri.ok_or_else(|| "`jwks_uri` of the discovery document is no https:// URL".to_owned())?;
        let body = self.get(jwks_uri).await?;
        let keys = jwk::parse_set(&body).ok_or_else(|| "the issuer publishes no usable key".to_owned())?;
        Ok((keys, discovery.endpoints()))
    }

    async fn get(&self, url: Url) -> Result<Vec<u8>, String> {
        let path = url.path().to_owned();
        let failed = |message| format!("{path}: {message}");
        let response = self.client.get(url).send().await.map_err(outgoing::failure).map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{path}: status {}", response.status().as_u16()));
        }
        outgoing::body(response, BODY_BYTES_MAX).await.map_err(failed)
    }
}

/// Returns true if a fetch may begin. A clock that was set back does not prevent fetches.
fn is_due(last: Option<Timestamp>, now: Timestamp) -> bool {
    last.is_none_or(|last| !(0..PAUSE_SECS).contains(&elapsed(last, now)))
}

fn elapsed(since: Timestamp, now: Timestamp) -> i64 {
    now.unix_seconds().saturating_sub(since.unix_seconds())
}
