//! Discovery document of an issuer (OpenID Connect Discovery, 3).

use reqwest::Url;
use serde::Deserialize;

use crate::base::config::oidc::is_private;

/// Path of the discovery document below the issuer.
pub(super) const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
/// Scopes that are requested at a login if the issuer supports them, besides `openid`: the claims with name and groups may
/// depend on them.
const SCOPES: [&str; 3] = ["groups", "profile", "email"];

/// Fields of the discovery document that are used.
#[derive(Debug, Deserialize)]
pub(super) struct Discovery {
    /// Issuer of the document.
    pub(super) issuer: String,
    /// URL of the keys.
    pub(super) jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
}

/// Method by which a client proves its secret in a token request (OpenID Connect Core, 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretMethod {
    /// HTTP Basic authentication: `client_secret_basic`.
    Basic,
    /// Fields of the form: `client_secret_post`.
    Post,
}

/// Properties of an issuer that a login by the authorization code flow needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuerEndpoints {
    /// URL to which a browser is sent to log in.
    pub(super) authorization: Url,
    /// URL at which a code is exchanged for tokens.
    pub(super) token: Url,
    /// Scopes to request, separated by spaces.
    pub(super) scope: String,
    /// Method for clients with a secret.
    pub(super) secret_method: SecretMethod,
    /// True if every response of the authorization endpoint has the parameter `iss` (RFC 9207).
    pub(super) sends_issuer: bool,
}

impl Discovery {
    /// Returns the endpoints, or `None` unless the issuer has both endpoints at `https` URLs.
    pub(super) fn endpoints(&self) -> Option<IssuerEndpoints> {
        let private = |url: &Option<String>| Url::parse(url.as_ref()?).ok().filter(is_private);
        let has = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_some_and(|list| list.iter().any(|supported| supported == name))
        };
        let is_supported = |scope: &&str| has(&self.scopes_supported, scope);
        let scopes = ["openid"].into_iter().chain(SCOPES.into_iter().filter(is_supported));
        // Without the list, an issuer supports HTTP Basic authentication.
        let methods = &self.token_endpoint_auth_methods_supported;
        let is_post_only = has(methods, "client_secret_post") && !has(methods, "client_secret_basic");
        Some(IssuerEndpoints {
            authorization: private(&self.authorization_endpoint)?,
            token: private(&self.token_endpoint)?,
            scope: scopes.collect::<Vec<_>>().join(" "),
            secret_method: if is_post_only { SecretMethod::Post } else { SecretMethod::Basic },
            sends_issuer: self.authorization_response_iss_parameter_supported == Some(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn changed_document(changed: &Value) -> Discovery {
        let mut document = json!({
            "issuer": "https://id.example.org", "jwks_uri": "https://id.example.org/jwks",
            "authorization_endpoint": "https://id.example.org/auth?x=1", "token_endpoint": "https://id.example.org/token",
        });
        for (field, value) in changed.as_object().unwrap() {
            document[field] = value.clone();
        }
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn endpoints_are_used_over_tls_only() {
        let found = changed_document(&json!({})).endpoints().unwrap();
        assert_eq!((found.scope.as_str(), found.secret_method), ("openid", SecretMethod::Basic));
        assert!(!found.sends_issuer);
        for bad in [
            json!({ "authorization_endpoint": null }),
            json!({ "authorization_endpoint": "http://id.example.org/auth" }),
            json!({ "authorization_endpoint": "javascript:alert(1)" }),
            json!({ "token_endpoint": "http://192.0.2.1/token" }),
            json!({ "token_endpoint": "/token" }),
        ] {
            assert_eq!(changed_document(&bad).endpoints(), None, "{bad}");
        }
    }

    #[test]
    fn scopes_and_the_method_of_the_secret_are_those_that_the_issuer_supports() {
        let of = |scopes: Value, methods: Value| {
            let changed =
                json!({ "scopes_supported": scopes, "token_endpoint_auth_methods_supported": methods });
            let found = changed_document(&changed).endpoints().unwrap();
            (found.scope, found.secret_method)
        };
        let scopes = json!(["openid", "offline_access", "email", "groups"]);
        assert_eq!(of(scopes, json!(null)), ("openid groups email".to_owned(), SecretMethod::Basic));
        let post = json!(["client_secret_post", "none"]);
        assert_eq!(of(json!(null), post).1, SecretMethod::Post);
        let both = json!(["client_secret_post", "client_secret_basic"]);
        assert_eq!(of(json!([]), both), ("openid".to_owned(), SecretMethod::Basic));
    }
}
