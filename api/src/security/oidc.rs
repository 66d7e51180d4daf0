//! Users of OpenID Connect: verification of ID tokens, and the roles of the user's groups.
//!
//! ```text
//! Bearer eyJ… ─▶ parse ─▶ algorithm, issuer ─▶ key of the issuer ─▶ signature ─▶ audience, times ─▶ user, groups ─▶ Access
//!                                                  ▲
//!        discovery, JWK Set (cached) ─▶ KeyCache ──┘
//! ```
//! The claims are used only after the signature has been verified; the issuer is compared before, so that tokens of others cause
//! no requests. The module `code_flow` obtains ID tokens for browsers that log in to the status page.

mod claims;
mod code_flow;
mod discovery;
mod flow_cookie;
mod jwk;
mod key_cache;
mod token;
mod token_request;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use model::primitives::quantity::Timestamp;

use self::{
    claims::{Claims, OidcUser},
    code_flow::{CodeFlow, MatchedCode},
    flow_cookie::LoginFlow,
    key_cache::KeyCache,
    token::{IdToken, TokenFault},
};
pub(crate) use self::{
    code_flow::{CodeResponse, LoginFault, LoginStart, PageView},
    flow_cookie::FlowKey,
    token::is_json_web_token,
};
use super::{Identity, access::Access, directory::Directory, sessions::SessionUser, tokens::Binding};
use crate::base::{
    clock_and_random::Source,
    config::oidc::{OidcPageSettings, OidcSettings},
    error::{Code, Problem},
    outgoing,
};

/// Maximum duration of one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Difference of the clocks of the issuer and this server that is tolerated, in seconds.
pub(crate) const LEEWAY_SECS: i64 = 30;
/// Advice for a rejected ID token.
const HINT: &str = "obtain another token from the issuer";

/// Verifier of the ID tokens of one issuer.
pub(crate) struct Verifier {
    settings: OidcSettings,
    keys: Arc<KeyCache>,
    /// Login to the status page; `None` if it is not configured.
    page: Option<CodeFlow>,
}

/// Login to the status page by OpenID Connect.
#[derive(Clone, Copy)]
pub(crate) struct PageLogin<'a> {
    verifier: &'a Verifier,
    flow: &'a CodeFlow,
}

/// End of a login to the status page.
#[derive(Debug)]
pub(crate) struct LoginEnd {
    /// View that the browser returns to; `None` if no login had begun.
    pub(crate) view: Option<PageView>,
    /// User, or the reason why the login has failed.
    pub(crate) user: Result<SessionUser, LoginFault>,
}

impl Verifier {
    /// Creates a verifier without a request: the keys are fetched for the first token. `key` seals the cookies of logins to
    /// the status page. Returns a message if the HTTP client cannot be created.
    pub(crate) fn new(settings: OidcSettings, key: Option<FlowKey>) -> Result<Self, String> {
        let client = outgoing::client(settings.roots.clone(), TIMEOUT)?;
        let keys = Arc::new(KeyCache::new(settings.issuer.clone(), client.clone()));
        let page = settings.page.clone().zip(key);
        let page = page.map(|(page, key)| CodeFlow::new(page, key, client));
        Ok(Self { settings, keys, page })
    }

    /// Returns the login to the status page; `None` if it is not configured.
    pub(crate) fn page(&self) -> Option<PageLogin<'_>> {
        Some(PageLogin { verifier: self, flow: self.page.as_ref()? })
    }

    /// Returns the issuer and the client of the accepted ID tokens.
    pub(crate) fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    /// Returns the permissions of the user to whom an ID token was issued.
    ///
    /// # Errors
    /// Returns a problem with status 401 and the reason if the token is not valid at time `now`.
    pub(crate) async fn access(
        &self,
        text: &str,
        directory: &Directory,
        now: Timestamp,
    ) -> Result<Access, Problem> {
        let user = self.user(text, &self.settings.client_id, now).await;
        let OidcUser { name, groups, expires } = user.map(|(user, _)| user).map_err(|fault| {
            tracing::debug!(%fault, "an ID token was rejected");
            Problem::new(Code::Unauthenticated, fault.to_string()).hint(HINT)
        })?;
        let bindings = self.bindings(&groups);
        let grants = bindings.iter().filter_map(|binding| directory.grant(binding)).collect();
        Ok(Access::of_user(Identity::User { name, expires }, grants))
    }

    /// Verifies an ID token that must be issued to `client_id`, and returns the user and all claims.
    async fn user(
        &self,
        text: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<(OidcUser, Claims), TokenFault> {
        let token = IdToken::parse(text)?;
        token.claims.check_issuer(&self.settings.issuer)?;
        let keys = self.keys.of(&token, now).await?;
        if !keys.iter().any(|key| key.verifies(token.algorithm, token.signed, &token.signature)) {
            return Err(TokenFault::Signature);
        }
        let user = token.claims.user(&self.settings, client_id, now)?;
        Ok((user, token.claims))
    }

    /// Returns the roles of a user in groups, each once.
    fn bindings(&self, groups: &BTreeSet<String>) -> Vec<Binding> {
        let mut bindings: Vec<Binding> = Vec::new();
        for role in self.settings.group_roles.iter().filter(|role| groups.contains(&role.group)) {
            let binding = Binding {
                role: role.role.clone(),
                namespaces: role.namespaces(),
                pools: None,
                endpoint_ranges: None,
            };
            if !bindings.contains(&binding) {
                bindings.push(binding);
            }
        }
        bindings
    }
}

impl PageLogin<'_> {
    /// Returns the settings of the login.
    pub(crate) fn settings(&self) -> &OidcPageSettings {
        self.flow.settings()
    }

    /// Begins a login, after which the browser returns to `view`. Waits if the endpoints of the issuer have to be fetched.
    pub(crate) async fn begin(&self, view: PageView, source: &dyn Source) -> Result<LoginStart, LoginFault> {
        let endpoints = self.verifier.keys.endpoints(source.now()).await.ok_or(LoginFault::Unreachable)?;
        Ok(self.flow.begin(&endpoints, view, source))
    }

    /// Ends the login that the browser with these headers has begun.
    pub(crate) async fn finish(
        &self,
        headers: &HeaderMap,
        response: &CodeResponse,
        now: Timestamp,
    ) -> LoginEnd {
        let Some(flow) = self.flow.flow(headers, now) else {
            return LoginEnd { view: None, user: Err(LoginFault::Expired) };
        };
        let user = self.user(&flow, response, now).await;
        LoginEnd { view: Some(flow.view), user }
    }

    /// Returns the `Set-Cookie` value that deletes the cookie of a login.
    pub(crate) fn no_cookie(&self) -> HeaderValue {
        self.flow.no_cookie()
    }

    async fn user(
        &self,
        flow: &LoginFlow,
        response: &CodeResponse,
        now: Timestamp,
    ) -> Result<SessionUser, LoginFault> {
        let Verifier { settings, keys, page: _ } = self.verifier;
        let issuer = (settings.issuer.as_str(), keys.endpoints(now).await);
        let MatchedCode { id_token, nonce } = self.flow.redeem(issuer, flow, response).await?;
        let verified = self.verifier.user(id_token.reveal(), &self.flow.settings().client_id, now).await;
        let verified = verified.and_then(|(user, claims)| claims.check_nonce(nonce.reveal()).map(|()| user));
        let OidcUser { name, groups, expires } = verified.map_err(|fault| {
            tracing::warn!(%fault, "the ID token of a login to the status page was rejected");
            LoginFault::InvalidToken
        })?;
        let bindings = self.verifier.bindings(&groups);
        if bindings.is_empty() {
            tracing::info!(user = name, "a user without a role was not logged in to the status page");
            return Err(LoginFault::NoRole);
        }
        Ok(SessionUser { name, expires, bindings })
    }
}
