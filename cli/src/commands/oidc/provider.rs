//! Requests to the issuer: discovery, device authorization and tokens.

use std::time::Duration;

use client::{Url, http::WebClient};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::{output::Terminal, terminal::clean};

/// Grant type of the device authorization (RFC 8628, 3.4).
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Scopes that are requested if the issuer supports them, besides `openid`. `offline_access` obtains a refresh token.
const SCOPES: [&str; 4] = ["offline_access", "groups", "profile", "email"];
/// Pause between two token requests in seconds if the issuer gives none (RFC 8628, 3.2).
const INTERVAL_SECS_DEFAULT: u64 = 5;
/// Maximum pause between two token requests in seconds.
const INTERVAL_SECS_MAX: u64 = 60;
/// Maximum time in seconds to wait for the user.
const WAIT_SECS_MAX: u64 = 1800;

/// Failure of a request to the issuer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    /// No usable response.
    #[error("{0}")]
    Unusable(String),
    /// Rejection with an error code (RFC 6749, 5.2).
    #[error("the issuer rejects the request: {code}{}", description.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Rejected {
        /// Error code, such as `access_denied`.
        code: String,
        /// Description of the error.
        description: Option<String>,
    },
    /// The issuer offers no device authorization.
    #[error("the issuer offers no device authorization (RFC 8628)")]
    NoDevices,
    /// The user has not confirmed the code in time.
    #[error("the code was not confirmed in time")]
    TooLate,
    /// The text for the user cannot be printed.
    #[error("cannot write the output")]
    Output,
}

/// Discovery document (OpenID Connect Discovery, 3).
#[derive(Debug, Deserialize)]
struct ProviderDocument {
    issuer: String,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Response to a device authorization request (RFC 8628, 3.2).
#[derive(Debug, Deserialize)]
struct DeviceCode {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Response with an error code.
#[derive(Debug, Deserialize)]
struct ErrorResponse {
    error: String,
    error_description: Option<String>,
}

/// Tokens of a user.
#[derive(Debug, Deserialize)]
pub(super) struct IssuedTokens {
    /// ID token, the bearer token of requests to control servers.
    pub(super) id_token: String,
    /// Token that obtains further ID tokens.
    pub(super) refresh_token: Option<String>,
}

/// Issuer and client.
#[derive(Debug)]
pub(super) struct Provider {
    /// URL of token requests.
    pub(super) token_endpoint: Url,
    device_endpoint: Option<Url>,
    client_id: String,
    scope: String,
}

impl Provider {
    /// Reads the discovery document of an issuer.
    pub(super) async fn discover(
        web: &WebClient,
        issuer: &str,
        client_id: &str,
    ) -> Result<Self, ProviderError> {
        let unusable = |message: String| ProviderError::Unusable(message);
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| unusable(error.to_string()))?;
        let document: ProviderDocument = decode(web.get(&url).await.map_err(unusable)?)?;
        if document.issuer != issuer {
            return Err(unusable("the discovery document is of another issuer".to_owned()));
        }
        let is_supported =
            |scope: &&str| document.scopes_supported.iter().any(|supported| supported == scope);
        let scopes = ["openid"].into_iter().chain(SCOPES.into_iter().filter(is_supported));
        let parse = |url: &String| Url::parse(url).map_err(|error| unusable(error.to_string()));
        Ok(Self {
            token_endpoint: parse(&document.token_endpoint)?,
            device_endpoint: document.device_authorization_endpoint.as_ref().map(parse).transpose()?,
            client_id: client_id.to_owned(),
            scope: scopes.collect::<Vec<_>>().join(" "),
        })
    }

    /// Prints the address and the code for the user, and waits until the user has confirmed the code.
    pub(super) async fn authorize_device(
        &self,
        web: &WebClient,
        terminal: &mut Terminal,
    ) -> Result<IssuedTokens, ProviderError> {
        let endpoint = self.device_endpoint.as_ref().ok_or(ProviderError::NoDevices)?;
        let fields = [("client_id", self.client_id.as_str()), ("scope", &self.scope)];
        let sent = web.post_form(endpoint, &fields).await;
        let device: DeviceCode = decode(sent.map_err(ProviderError::Unusable)?)?;
        let place = device.verification_uri_complete.as_ref().unwrap_or(&device.verification_uri);
        let text = format!("open {} and confirm the code {}", clean(place), clean(&device.user_code));
        terminal.note(&text);
        terminal.flush().map_err(|_| ProviderError::Output)?;
        let fields = [
            ("grant_type", DEVICE_GRANT),
            ("client_id", &self.client_id),
            ("device_code", &device.device_code),
        ];
        let deadline = Instant::now() + Duration::from_secs(device.expires_in.min(WAIT_SECS_MAX));
        let mut pause_secs = device.interval.unwrap_or(INTERVAL_SECS_DEFAULT).clamp(1, INTERVAL_SECS_MAX);
        while Instant::now() < deadline {
            sleep(Duration::from_secs(pause_secs)).await;
            match request_tokens(web, &self.token_endpoint, &fields).await {
                Ok(tokens) => return Ok(tokens),
                Err(ProviderError::Rejected { code, .. }) if code == "authorization_pending" => {}
                Err(ProviderError::Rejected { code, .. }) if code == "slow_down" => {
                    pause_secs = (pause_secs + INTERVAL_SECS_DEFAULT).min(INTERVAL_SECS_MAX);
                }
                Err(ProviderError::Rejected { code, .. }) if code == "expired_token" => break,
                Err(error) => return Err(error),
            }
        }
        Err(ProviderError::TooLate)
    }
}

/// Sends a token request and returns the tokens.
pub(super) async fn request_tokens(
    web: &WebClient,
    endpoint: &Url,
    fields: &[(&str, &str)],
) -> Result<IssuedTokens, ProviderError> {
    let sent = web.post_form(endpoint, fields).await;
    decode(sent.map_err(ProviderError::Unusable)?)
}

/// Parses a response. Messages contain no part of it, because it may contain tokens.
fn decode<T: DeserializeOwned>((status, body): (u16, Vec<u8>)) -> Result<T, ProviderError> {
    if status == 200 {
        let parsed = serde_json::from_slice(&body);
        return parsed
            .map_err(|_| ProviderError::Unusable("the issuer sent an unexpected response".to_owned()));
    }
    match serde_json::from_slice(&body) {
        Ok(ErrorResponse { error, error_description }) => {
            Err(ProviderError::Rejected { code: error, description: error_description })
        }
        Err(_) => Err(ProviderError::Unusable(format!("the issuer responded with status {status}"))),
    }
}
