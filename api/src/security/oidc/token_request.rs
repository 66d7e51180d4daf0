//! Exchange of an authorization code for an ID token (OpenID Connect Core, 3.1.3).

use model::primitives::secret::Secret;
use reqwest::{Client, header};
use serde::Deserialize;

use super::{
    discovery::{IssuerEndpoints, SecretMethod},
    key_cache::BODY_BYTES_MAX,
};
use crate::base::{config::oidc::OidcPageSettings, outgoing};

/// Maximum length of an error code of an issuer in the log, in characters.
const CODE_LENGTH_MAX: usize = 64;

/// Reason why a code was not exchanged, for the log. No part of the code or of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExchangeError {
    /// No response, or a failure of the issuer.
    Unreachable(String),
    /// The issuer rejects the code or the client.
    Rejected(String),
}

/// Fields of a token response that are used.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: Secret,
}

/// Error response of an issuer (RFC 6749, 5.2).
#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
}

/// Exchanges a code, and returns the ID token, which the caller must verify.
pub(super) async fn exchange(
    client: &Client,
    endpoints: &IssuerEndpoints,
    page: &OidcPageSettings,
    (code, verifier): (&str, &Secret),
) -> Result<Secret, ExchangeError> {
    let redirect_uri = page.redirect_uri();
    let mut fields = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &redirect_uri),
        ("code_verifier", verifier.reveal()),
    ];
    let mut request = client.post(endpoints.token.clone());
    match (&page.client_secret, endpoints.secret_method) {
        (None, _) => fields.push(("client_id", &page.client_id)),
        (Some(secret), SecretMethod::Post) => {
            fields.extend([("client_id", page.client_id.as_str()), ("client_secret", secret.reveal())]);
        }
        (Some(secret), SecretMethod::Basic) => {
            request = request.basic_auth(encoded(&page.client_id), Some(encoded(secret.reveal())));
        }
    }
    let request = request
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json")
        .body(outgoing::encode_form(&fields));
    let unreachable = ExchangeError::Unreachable;
    let response = request.send().await.map_err(outgoing::failure).map_err(unreachable)?;
    let status = response.status();
    let body = outgoing::body(response, BODY_BYTES_MAX).await.map_err(unreachable)?;
    if status.is_success() {
        let parsed = serde_json::from_slice(&body);
        return parsed
            .map(|TokenResponse { id_token }| id_token)
            .map_err(|_| ExchangeError::Rejected("the response has no ID token".to_owned()));
    }
    let code = serde_json::from_slice(&body).map(|TokenErrorResponse { error }| printable(&error));
    let reason = format!("status {} {}", status.as_u16(), code.unwrap_or_default());
    let reason = reason.trim_end().to_owned();
    Err(if status.is_client_error() { ExchangeError::Rejected(reason) } else { unreachable(reason) })
}

/// Encodes client id and secret for HTTP Basic authentication (RFC 6749, 2.3.1).
fn encoded(text: &str) -> String {
    outgoing::encode_form(&[(text, "")]).trim_end_matches('=').to_owned()
}

/// Returns an error code of an issuer for the log: at most 64 characters that can be displayed.
pub(super) fn printable(code: &str) -> String {
    code.chars().filter(char::is_ascii_graphic).take(CODE_LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_secrets_are_encoded_like_forms() {
        assert_eq!(encoded("tidegate"), "tidegate");
        assert_eq!(encoded("a b+c%:d=ü"), "a+b%2Bc%25%3Ad%3D%C3%BC");
    }

    #[test]
    fn error_codes_are_short_and_on_one_line() {
        assert_eq!(printable("invalid_grant"), "invalid_grant");
        assert_eq!(printable("a\nb\u{1b}[31m"), "ab[31m");
        assert_eq!(printable(&"x".repeat(100)).len(), CODE_LENGTH_MAX);
    }
}
