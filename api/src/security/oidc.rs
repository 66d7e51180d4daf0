//! Users of OpenID Connect: verification of ID tokens, and the roles of the user's groups.
//!
//! ```text
//! Bearer eyJ… ─▶ parse ─▶ algorithm, issuer ─▶ key of the issuer ─▶ signature ─▶ audience, times ─▶ user, groups ─▶ Access
//!                                                  ▲
//!        discovery, JWK Set (cached) ─▶ KeyCache ──┘
//! ```
//! The claims are used only after the signature has been verified; the issuer is compared before, so that tokens of others cause
//! no requests.

mod claims;
mod jwk;
mod key_cache;
mod token;

use std::{collections::BTreeSet, sync::Arc};

use model::primitives::quantity::Timestamp;

pub(crate) use self::token::is_json_web_token;
use self::{
    claims::OidcUser,
    key_cache::KeyCache,
    token::{IdToken, TokenFault},
};
use super::{Identity, access::Access, directory::Directory, tokens::Binding};
use crate::base::{
    config::oidc::OidcSettings,
    error::{Code, Problem},
};

/// Difference of the clocks of the issuer and this server that is tolerated, in seconds.
pub(crate) const LEEWAY_SECS: i64 = 30;
/// Advice for a rejected ID token.
const HINT: &str = "obtain another token from the issuer";

/// Verifier of the ID tokens of one issuer.
pub(crate) struct Verifier {
    settings: OidcSettings,
    keys: Arc<KeyCache>,
}

impl Verifier {
    /// Creates a verifier without a request: the keys are fetched for the first token. Returns a message if the HTTP client
    /// cannot be created.
    pub(crate) fn new(settings: OidcSettings) -> Result<Self, String> {
        let keys = Arc::new(KeyCache::new(settings.issuer.clone(), settings.roots.clone())?);
        Ok(Self { settings, keys })
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
        let OidcUser { name, groups, expires } = self.user(text, now).await.map_err(|fault| {
            tracing::debug!(%fault, "an ID token was rejected");
            Problem::new(Code::Unauthenticated, fault.to_string()).hint(HINT)
        })?;
        let bindings = self.bindings(&groups);
        let grants = bindings.iter().filter_map(|binding| directory.grant(binding)).collect();
        Ok(Access::of_user(Identity::User { name, expires }, grants))
    }

    async fn user(&self, text: &str, now: Timestamp) -> Result<OidcUser, TokenFault> {
        let token = IdToken::parse(text)?;
        token.claims.check_issuer(&self.settings.issuer)?;
        let keys = self.keys.of(&token, now).await?;
        if !keys.iter().any(|key| key.verifies(token.algorithm, token.signed, &token.signature)) {
            return Err(TokenFault::Signature);
        }
        token.claims.user(&self.settings, now)
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
