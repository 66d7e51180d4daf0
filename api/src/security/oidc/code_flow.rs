//! Login to the status page: authorization code flow (OpenID Connect Core, 3.1) with PKCE (RFC 7636).
//!
//! ```text
//! browser ── GET /v1/session/oidc ──▶ begin: state, nonce, verifier in a sealed cookie
//!         ◀── redirect ──┘
//!         ── authorization endpoint of the issuer: the user logs in ──┐
//!         ◀── redirect with code and state ──────────────────────────┘
//!         ── GET /v1/session/oidc/callback ──▶ finish: state = cookie ─▶ code + verifier ─▶ ID token ─▶ nonce, user
//!         ◀── redirect to the view, session cookie ──┘
//! ```
//! The redirect URI is that of the settings, never that of a request. The browser returns to a view of the page, which is a
//! fragment of the page's own address, so that no value leads to another site.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};
use model::primitives::{quantity::Timestamp, secret::Secret};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::{
    discovery::IssuerEndpoints,
    flow_cookie::{FlowCookies, FlowKey, LoginFlow},
    token_request::{ExchangeError, exchange, printable},
};
use crate::{
    base::{clock_and_random::Source, config::oidc::OidcPageSettings, outgoing},
    security::secrets::is_equal,
};

/// Maximum number of codes that are exchanged at once. Each occupies a connection to the issuer for some seconds at most.
const EXCHANGES_MAX: usize = 16;
/// Maximum length of a view in bytes.
const VIEW_BYTES_MAX: usize = 1024;

/// View of the status page: the part of its address after `#`, which begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PageView(String);

impl Default for PageView {
    fn default() -> Self {
        Self("/".to_owned())
    }
}

impl PageView {
    /// Returns the address of the view, relative to this server.
    pub(crate) fn location(&self) -> String {
        format!("/#{}", self.0)
    }
}

impl TryFrom<String> for PageView {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        // Characters of a fragment (RFC 3986, 3.5).
        let is_fragment = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte);
        if text.starts_with('/') && text.len() <= VIEW_BYTES_MAX && text.bytes().all(is_fragment) {
            return Ok(Self(text));
        }
        Err("must begin with / and have at most 1024 characters of a URL fragment")
    }
}

impl From<PageView> for String {
    fn from(PageView(text): PageView) -> Self {
        text
    }
}

/// Reason why a login has failed. The page has a sentence with a remedy for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginFault {
    /// No login of this browser has begun in the last ten minutes.
    Expired,
    /// The response belongs to another login.
    Mismatch,
    /// The user or the issuer has refused the login.
    Denied,
    /// The issuer reports another error, or rejects the code or the client.
    Rejected,
    /// The ID token is not valid.
    InvalidToken,
    /// The issuer cannot be reached, or offers no login for browsers.
    Unreachable,
    /// No group of the user has a role.
    NoRole,
    /// Too many logins have failed or are in progress.
    TooMany,
}

impl LoginFault {
    /// All faults.
    #[cfg(test)]
    const ALL: [Self; 8] = [
        Self::Expired,
        Self::Mismatch,
        Self::Denied,
        Self::Rejected,
        Self::InvalidToken,
        Self::Unreachable,
        Self::NoRole,
        Self::TooMany,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Mismatch => "mismatch",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::InvalidToken => "invalidToken",
            Self::Unreachable => "unreachable",
            Self::NoRole => "noRole",
            Self::TooMany => "tooMany",
        }
    }

    /// Returns the address of the sign-in view with the reason, relative to this server. A later login returns to `view`.
    pub(crate) fn location(self, view: Option<&PageView>) -> String {
        let PageView(view) = view.cloned().unwrap_or_default();
        format!("/#/login?{}", outgoing::encode_form(&[("fault", self.name()), ("view", &view)]))
    }
}

/// Response of the issuer by way of the browser (RFC 6749, 4.1.2; RFC 9207).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CodeResponse {
    /// Authorization code.
    code: Option<Secret>,
    /// Value of the login that has begun.
    state: Option<Secret>,
    /// Issuer of the response.
    iss: Option<String>,
    /// Error code of a failed login.
    error: Option<String>,
}

/// Login that a browser begins.
#[derive(Debug)]
pub(crate) struct LoginStart {
    /// URL at the issuer.
    pub(crate) location: String,
    /// Value of `Set-Cookie`.
    pub(crate) cookie: HeaderValue,
}

/// Code that belongs to a login of the browser.
pub(super) struct MatchedCode {
    /// ID token of the issuer, which is not verified yet.
    pub(super) id_token: Secret,
    /// Nonce that the ID token must have.
    pub(super) nonce: Secret,
}

/// Login of browsers at one issuer.
pub(super) struct CodeFlow {
    settings: OidcPageSettings,
    cookies: FlowCookies,
    client: Client,
    exchanges: Semaphore,
}

impl CodeFlow {
    /// Creates the flow of a client. The issuer is requested with `client`.
    pub(super) fn new(settings: OidcPageSettings, key: FlowKey, client: Client) -> Self {
        let cookies = FlowCookies::new(key, settings.is_secure());
        Self { settings, cookies, client, exchanges: Semaphore::new(EXCHANGES_MAX) }
    }

    /// Returns the settings of the client.
    pub(super) fn settings(&self) -> &OidcPageSettings {
        &self.settings
    }

    /// Begins a login, after which the browser returns to `view`.
    pub(super) fn begin(
        &self,
        endpoints: &IssuerEndpoints,
        view: PageView,
        source: &dyn Source,
    ) -> LoginStart {
        let flow = LoginFlow::begin(view, source);
        let mut location = endpoints.authorization.clone();
        // The endpoint may have a query of its own (RFC 6749, 3.1).
        location.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", &self.settings.redirect_uri()),
            ("scope", &endpoints.scope),
            ("state", flow.state.reveal()),
            ("nonce", flow.nonce.reveal()),
            ("code_challenge", &challenge(&flow.verifier)),
            ("code_challenge_method", "S256"),
        ]);
        LoginStart { location: location.into(), cookie: self.cookies.set(&flow, source) }
    }

    /// Returns the login of a browser that has begun.
    pub(super) fn flow(&self, headers: &HeaderMap, now: Timestamp) -> Option<LoginFlow> {
        self.cookies.read(headers, now)
    }

    /// Returns the `Set-Cookie` value that deletes the cookie of a login.
    pub(super) fn no_cookie(&self) -> HeaderValue {
        self.cookies.delete()
    }

    /// Checks that the response of the issuer belongs to a login, and exchanges its code.
    pub(super) async fn redeem(
        &self,
        (issuer, endpoints): (&str, Option<Arc<IssuerEndpoints>>),
        flow: &LoginFlow,
        response: &CodeResponse,
    ) -> Result<MatchedCode, LoginFault> {
        let CodeResponse { code, state, iss, error } = response;
        let is_own = state.as_ref().is_some_and(|state| is_equal(state.reveal(), flow.state.reveal()));
        let endpoints = endpoints.ok_or(LoginFault::Unreachable)?;
        let is_issuer = match iss {
            Some(iss) => iss == issuer,
            None => !endpoints.sends_issuer,
        };
        if !(is_own && is_issuer) {
            return Err(LoginFault::Mismatch);
        }
        if let Some(error) = error {
            tracing::info!(error = printable(error), "the issuer has refused a login to the status page");
            return Err(if error == "access_denied" { LoginFault::Denied } else { LoginFault::Rejected });
        }
        let code = code.as_ref().ok_or(LoginFault::Mismatch)?;
        let _permit = self.exchanges.try_acquire().map_err(|_| LoginFault::TooMany)?;
        let exchanged =
            exchange(&self.client, &endpoints, &self.settings, (code.reveal(), &flow.verifier)).await;
        let nonce = flow.nonce.clone();
        match exchanged {
            Ok(id_token) => Ok(MatchedCode { id_token, nonce }),
            Err(ExchangeError::Unreachable(reason)) => {
                tracing::warn!(issuer, reason, "cannot exchange the code of a login to the status page");
                Err(LoginFault::Unreachable)
            }
            Err(ExchangeError::Rejected(reason)) => {
                tracing::warn!(issuer, reason, "the issuer rejects the code of a login to the status page");
                Err(LoginFault::Rejected)
            }
        }
    }
}

/// Returns the code challenge of a verifier by the method S256 (RFC 7636, 4.2).
fn challenge(verifier: &Secret) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.reveal()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> Result<PageView, &'static str> {
        PageView::try_from(text.to_owned())
    }

    #[test]
    fn a_view_is_always_part_of_this_page() {
        let location = |text: &str| view(text).unwrap().location();
        assert_eq!(location("/services/default/web?tab=events"), "/#/services/default/web?tab=events");
        assert_eq!(location("//evil.example"), "/#//evil.example");
        let long = format!("/{}", "x".repeat(VIEW_BYTES_MAX));
        for bad in [
            "",
            "services",
            "https://evil.example",
            "\\evil.example",
            "/\\evil.example",
            "/a\r\nSet-Cookie: x=1",
            "/#x",
            "/ü",
            "/<script>",
            &long,
        ] {
            assert!(view(bad).is_err(), "{bad}");
        }
    }

    /// Verifier and challenge of RFC 7636, Appendix B.
    #[test]
    fn the_challenge_is_that_of_the_specification() {
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        assert_eq!(challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn the_page_has_a_sentence_for_each_fault() {
        let page = include_str!("../../../../web/parts/login-model.js");
        for fault in LoginFault::ALL {
            assert!(page.contains(&format!("  {}: '", fault.name())), "{fault:?}");
        }
        let location = LoginFault::TooMany.location(Some(&view("/nodes?x=1").unwrap()));
        assert_eq!(location, "/#/login?fault=tooMany&view=%2Fnodes%3Fx%3D1");
        assert_eq!(LoginFault::Denied.location(None), "/#/login?fault=denied&view=%2F");
    }
}
