//! One order of a certificate at an ACME server.
//!
//! ```text
//! account (vault, or created) ─▶ order ─▶ challenges ─▶ commit, so that gateways answer ─▶ ready ─▶ finalize ─▶ commit
//! ```
//! The account and its key are in the vault. The private key of the certificate is created here, and leaves this process
//! only with the certificate in the object. After a restart or with a new leader, an order begins anew: the ACME server
//! returns the pending order of the same account and names, or a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use model::{
    admission::admit::Operation,
    http::{
        CertificateFacts, HttpObjectKey, certified_key, chain, is_issued, renewal_in_window, renewal_time,
        validate_certificate,
    },
    kinds::certificate::{AcmeSettings, CertificateSpec, ExternalAccount, IssuanceRecord},
    primitives::{hostname_pattern::HostnamePattern, name::Namespace, quantity::Timestamp, secret::Secret},
};
use sha2::{Digest as _, Sha256};
use store::VaultError;
use tokio::time::sleep;

use super::{super::leader_task::write, connection::AcmeConnection};
use crate::{base::hex::hex, context::server_state::ServerState};

/// Prefix of the keys of vault records with accounts at ACME servers.
const ACCOUNTS: &str = "acme/accounts/";
/// Time in which gateways receive the answers to challenges.
const SETTLE: Duration = Duration::from_secs(2);
/// Maximum time for the verification of the DNS names, and for the certificate.
const PATIENCE: Duration = Duration::from_mins(3);
/// Number of times an order is begun anew at once after a failure that is not an answer about the order.
const TRANSIENT_MAX: u32 = 5;
/// Delay before an order is begun anew after such a failure.
const TRANSIENT_PAUSE: Duration = Duration::from_secs(1);
/// Problem type of a request that an ACME server rejects because of its nonce.
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
/// Problem type of a request with an account that the ACME server does not know.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Certificate to order.
pub(super) struct OrderJob {
    pub(super) app: Arc<ServerState>,
    /// Connection, or the reason for which no order is possible.
    pub(super) connection: Result<AcmeConnection, String>,
    pub(super) key: HttpObjectKey,
    pub(super) settings: AcmeSettings,
    /// State before the order.
    pub(super) record: IssuanceRecord,
}

/// Issued certificate.
pub(super) struct IssuedCertificate {
    pub(super) certificate: String,
    pub(super) private_key: Secret,
    /// Time of the renewal.
    pub(super) renew_at: Timestamp,
}

/// Reason for which an order failed.
enum OrderFailure {
    /// The failure does not depend on the order.
    Transient(String),
    /// The ACME server or this server rejected the order.
    Final(String),
}

impl From<Error> for OrderFailure {
    fn from(error: Error) -> Self {
        let is_transient =
            matches!(&error, Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE));
        let reason = error.to_string();
        if is_transient { Self::Transient(reason) } else { Self::Final(reason) }
    }
}

impl OrderJob {
    /// Orders the certificate.
    ///
    /// # Errors
    /// Returns the reason if the order fails. It contains no secret.
    pub(super) async fn run(&self) -> Result<IssuedCertificate, String> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.attempt().await {
                Ok(issued) => return Ok(issued),
                Err(OrderFailure::Transient(reason)) if attempts < TRANSIENT_MAX => {
                    tracing::debug!(certificate = %self.key, reason, "an order begins anew");
                    sleep(TRANSIENT_PAUSE).await;
                }
                Err(OrderFailure::Transient(reason) | OrderFailure::Final(reason)) => return Err(reason),
            }
        }
    }

    async fn attempt(&self) -> Result<IssuedCertificate, OrderFailure> {
        let connection = self.connection.clone().map_err(OrderFailure::Final)?;
        let account = self.account(&connection).await?;
        let names = self.settings.dns_names.iter();
        let names: Vec<_> = names.map(|name| Identifier::Dns(name.as_str().to_owned())).collect();
        let mut order = match account.new_order(&NewOrder::new(&names)).await {
            Ok(order) => order,
            Err(error) => return Err(self.without_account(error).await),
        };
        if matches!(order.state().status, OrderStatus::Pending) {
            let challenges = challenges(&mut order).await?;
            self.publish(challenges).await?;
            sleep(SETTLE).await;
            begin_verification(&mut order).await?;
        }
        let patience = RetryPolicy::new().timeout(PATIENCE);
        if !matches!(order.state().status, OrderStatus::Ready) {
            match order.poll_ready(&patience).await {
                Ok(OrderStatus::Ready) => {}
                Ok(_) => return Err(OrderFailure::Final(refusal(&mut order).await)),
                Err(error) => return Err(error.into()),
            }
        }
        let private_key = Secret::new(order.finalize().await?);
        let certificate = order.poll_certificate(&patience).await?;
        self.check(&certificate, &private_key).map_err(OrderFailure::Final)?;
        let renew_at = self.renewal(&account, &certificate).await.map_err(OrderFailure::Final)?;
        Ok(IssuedCertificate { certificate, private_key, renew_at })
    }

    /// Returns the account of the settings, which is created with the first order.
    async fn account(&self, connection: &AcmeConnection) -> Result<Account, OrderFailure> {
        let AcmeSettings { directory, contacts, external_account, dns_names: _ } = &self.settings;
        let key = account_key(&self.key.namespace, directory, external_account.as_ref());
        let builder = || Account::builder_with_http(Box::new(connection.clone()));
        let vault = &self.app.vault;
        if let Some((_, credentials)) = vault.get::<AccountCredentials>(&key) {
            return Ok(builder().from_credentials(credentials).await?);
        }
        let external =
            external_account.as_ref().map(external_key).transpose().map_err(OrderFailure::Final)?;
        let contacts: Vec<_> = contacts.iter().map(|address| format!("mailto:{address}")).collect();
        let contact: Vec<_> = contacts.iter().map(String::as_str).collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder().create(&new, directory.clone(), external.as_ref()).await?;
        match vault.put(&key, vault.version(&key), &credentials).await {
            Ok(_) => Ok(account),
            // Another order has created an account at the same time.
            Err(VaultError::Stale { .. }) => {
                Err(OrderFailure::Transient("another order created the account".to_owned()))
            }
            Err(error @ (VaultError::TooLarge { .. } | VaultError::Unavailable(_))) => {
                Err(OrderFailure::Final(format!("the account cannot be stored: {error}")))
            }
        }
    }

    /// Returns the failure of a first request. If the ACME server does not know the account, for example because its operator
    /// has deleted it, the account is removed from the vault, so that the next attempt creates another one.
    async fn without_account(&self, error: Error) -> OrderFailure {
        let is_unknown =
            matches!(&error, Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT));
        if !is_unknown {
            return error.into();
        }
        let AcmeSettings { directory, external_account, .. } = &self.settings;
        let key = account_key(&self.key.namespace, directory, external_account.as_ref());
        let vault = &self.app.vault;
        match vault.remove(&key, vault.version(&key)).await {
            Ok(()) => OrderFailure::Transient(error.to_string()),
            Err(_) => OrderFailure::Final(error.to_string()),
        }
    }

    /// Checks a new certificate. One with other names would be ordered again at once.
    fn check(&self, certificate: &str, private_key: &Secret) -> Result<(), String> {
        certified_key(certificate, private_key)
            .map_err(|problem| format!("the new private key {problem}"))?;
        let spec = CertificateSpec {
            certificate: certificate.to_owned(),
            private_key: Some(private_key.clone()),
            acme: None,
            issuance: None,
        };
        let mut violations = Vec::new();
        validate_certificate(&spec, &mut violations);
        if let Some(violation) = violations.first() {
            return Err(format!("the certificate of the ACME server {}", violation.message));
        }
        let has_names = is_issued(&spec, &self.settings);
        has_names.then_some(()).ok_or_else(|| "the certificate has other DNS names than the order".to_owned())
    }

    /// Stores the answers to challenges, so that the gateways receive them.
    async fn publish(&self, challenges: BTreeMap<String, String>) -> Result<(), OrderFailure> {
        let record = IssuanceRecord { challenges, ..self.record.clone() };
        let written = write(&self.app, vec![self.operation(record, None)]).await;
        written
            .map_err(|error| OrderFailure::Transient(format!("the challenges cannot be stored: {error:?}")))
    }

    /// Returns the operation that stores the result of this order, if the settings are still the same.
    pub(super) fn operation(&self, record: IssuanceRecord, issued: Option<(String, Secret)>) -> Operation {
        let settings = Box::new(self.settings.clone());
        Operation::SetIssuance { certificate: self.key.clone(), settings, record, issued }
    }

    /// Returns the time of the renewal of a certificate: in the window that the ACME server suggests (RFC 9773), or at two
    /// thirds of its validity.
    async fn renewal(&self, account: &Account, pem: &str) -> Result<Timestamp, String> {
        let facts = CertificateFacts::read(pem)?;
        let random = random(&self.app);
        let chain = chain(pem)?;
        let first = chain.first().ok_or("the certificate is empty")?;
        let Ok(id) = CertificateIdentifier::try_from(first) else { return Ok(renewal_time(&facts, random)) };
        match account.renewal_info(&id).await {
            Ok((info, _)) => {
                let window = [info.suggested_window.start, info.suggested_window.end];
                let [start, end] = window.map(|time| Timestamp::from_unix_seconds(time.unix_timestamp()));
                Ok(renewal_in_window(start, end, random))
            }
            Err(error) => {
                tracing::debug!(%error, certificate = %self.key, "the ACME server suggests no time of renewal");
                Ok(renewal_time(&facts, random))
            }
        }
    }
}

/// Returns the key of the vault record of an account. Each namespace has accounts of its own, because ACME servers issue
/// certificates for names that the same account has verified before without another challenge. The key does not depend on the
/// contacts, which may change.
fn account_key(namespace: &Namespace, directory: &str, external: Option<&ExternalAccount>) -> String {
    let external = external.map(|external| external.key_id.as_str()).unwrap_or_default();
    let digest = Sha256::digest(format!("{namespace}\n{directory}\n{external}").as_bytes());
    format!("{ACCOUNTS}{}", hex(&digest[..16]))
}

fn external_key(external: &ExternalAccount) -> Result<ExternalAccountKey, String> {
    let key = external.key.as_ref().map(Secret::reveal).unwrap_or_default();
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(key.trim_end_matches('='));
    let bytes = bytes.map_err(|_| "externalAccount.key is not base64url".to_owned())?;
    Ok(ExternalAccountKey::new(external.key_id.clone(), &bytes))
}

/// Returns the answers to the HTTP-01 challenges of the DNS names that are not verified yet, by token.
async fn challenges(order: &mut Order) -> Result<BTreeMap<String, String>, OrderFailure> {
    let mut answers = BTreeMap::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let challenge = authorization
            .challenge(ChallengeType::Http01)
            .ok_or_else(|| OrderFailure::Final("the ACME server offers no HTTP-01 challenge".to_owned()))?;
        answers.insert(challenge.token.clone(), challenge.key_authorization().as_str().to_owned());
    }
    Ok(answers)
}

/// Tells the ACME server to verify the DNS names.
async fn begin_verification(order: &mut Order) -> Result<(), OrderFailure> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut challenge) = authorization.challenge(ChallengeType::Http01)
        {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

/// Returns the reasons for which an ACME server could not verify the DNS names.
async fn refusal(order: &mut Order) -> String {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let name = state.identifier().to_string();
        let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(errors.map(|error| format!("{name}: {}", error.detail.clone().unwrap_or_default())));
    }
    if reasons.is_empty() {
        "the ACME server declared the order invalid".to_owned()
    } else {
        reasons.join("; ")
    }
}

/// Returns the DNS names of settings as text for logs.
pub(super) fn names_of(settings: &AcmeSettings) -> String {
    settings.dns_names.iter().map(HostnamePattern::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns a random number.
pub(super) fn random(app: &ServerState) -> u64 {
    app.source.draw().seed
}
