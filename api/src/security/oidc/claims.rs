//! Claims of ID tokens (OpenID Connect Core, 2 and 3.1.3.7).

use std::collections::BTreeSet;

use model::primitives::{quantity::Timestamp, text::is_display_control};
use serde_json::{Map, Value};

use super::{LEEWAY_SECS, token::TokenFault};
use crate::base::config::oidc::OidcSettings;

/// Maximum length of a user's name in characters.
const NAME_LENGTH_MAX: usize = 200;
/// Maximum number of groups of a user. Further ones are ignored.
const GROUPS_MAX: usize = 1000;
/// Maximum time in Unix seconds that a claim may have: the year 9999.
const SECS_MAX: i64 = 253_402_300_799;
/// Claim with an e-mail address, which needs the claim [`EMAIL_VERIFIED`] to be a name.
const EMAIL: &str = "email";
/// Claim that is true if the issuer has verified the e-mail address.
const EMAIL_VERIFIED: &str = "email_verified";

/// Claims of an ID token.
#[derive(Debug)]
pub(super) struct Claims(pub(super) Map<String, Value>);

/// User to whom a valid ID token was issued.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OidcUser {
    /// Name of the user: 1 to 200 characters that can be displayed.
    pub(super) name: String,
    /// Groups of the user.
    pub(super) groups: BTreeSet<String>,
    /// Time after which the token is not valid, with the tolerance for clocks.
    pub(super) expires: Timestamp,
}

impl Claims {
    /// Returns a fault if the token is from another issuer.
    pub(super) fn check_issuer(&self, issuer: &str) -> Result<(), TokenFault> {
        let is_own = self.0.get("iss").and_then(Value::as_str) == Some(issuer);
        if is_own { Ok(()) } else { Err(TokenFault::Issuer(issuer.to_owned())) }
    }

    /// Returns a fault unless the token was issued in the login with this nonce.
    pub(super) fn check_nonce(&self, nonce: &str) -> Result<(), TokenFault> {
        let is_own = self.0.get("nonce").and_then(Value::as_str) == Some(nonce);
        if is_own { Ok(()) } else { Err(TokenFault::Nonce) }
    }

    /// Checks audience and times, and returns the user. `client_id` is the client that the token must be issued to.
    pub(super) fn user(
        &self,
        settings: &OidcSettings,
        client_id: &str,
        now: Timestamp,
    ) -> Result<OidcUser, TokenFault> {
        self.check_audience(client_id)?;
        let expires = self.check_times(now)?;
        let name = self.name(&settings.username_claim)?;
        let groups = match self.0.get(&settings.groups_claim) {
            None | Some(Value::Null) => BTreeSet::new(),
            Some(Value::String(group)) => [group.clone()].into(),
            Some(Value::Array(groups)) => {
                groups.iter().take(GROUPS_MAX).filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                return Err(TokenFault::Claim(settings.groups_claim.clone()));
            }
        };
        Ok(OidcUser { name, groups, expires })
    }

    fn check_audience(&self, client_id: &str) -> Result<(), TokenFault> {
        let is_own = match self.0.get("aud") {
            Some(Value::String(audience)) => audience == client_id,
            Some(Value::Array(audiences)) => {
                audiences.iter().any(|audience| audience.as_str() == Some(client_id))
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
        };
        // The authorized party is another client if that one requested the token.
        let is_authorized = self.0.get("azp").is_none_or(|party| party.as_str() == Some(client_id));
        if is_own && is_authorized { Ok(()) } else { Err(TokenFault::Audience) }
    }

    /// Returns the time at which the token ends.
    fn check_times(&self, now: Timestamp) -> Result<Timestamp, TokenFault> {
        let now = now.unix_seconds();
        let ends = self.time("exp")?.ok_or_else(|| TokenFault::Claim("exp".to_owned()))?;
        let ends = ends.saturating_add(LEEWAY_SECS);
        if now >= ends {
            return Err(TokenFault::Expired);
        }
        for claim in ["nbf", "iat"] {
            let begins = self.time(claim)?;
            if begins.is_some_and(|begins| begins > now.saturating_add(LEEWAY_SECS)) {
                return Err(TokenFault::NotYet);
            }
        }
        Ok(Timestamp::from_unix_seconds(ends))
    }

    /// Returns a time in Unix seconds, rounded down; `None` if the token does not have the claim.
    fn time(&self, claim: &str) -> Result<Option<i64>, TokenFault> {
        let Some(value) = self.0.get(claim) else { return Ok(None) };
        let whole = || value.as_i64().filter(|secs| (0..=SECS_MAX).contains(secs));
        let rounded = || {
            let secs = value.as_f64().filter(|secs| (0.0..=SECS_MAX as f64).contains(secs))?;
            Some(secs as i64)
        };
        let secs = whole().or_else(rounded);
        secs.map(Some).ok_or_else(|| TokenFault::Claim(claim.to_owned()))
    }

    fn name(&self, claim: &str) -> Result<String, TokenFault> {
        let name = self.0.get(claim).and_then(Value::as_str).unwrap_or_default();
        let is_usable = (1..=NAME_LENGTH_MAX).contains(&name.chars().count())
            && !name.chars().any(is_display_control)
            && name.trim() == name;
        if !is_usable {
            return Err(TokenFault::Claim(claim.to_owned()));
        }
        if claim == EMAIL && self.0.get(EMAIL_VERIFIED) != Some(&Value::Bool(true)) {
            return Err(TokenFault::EmailNotVerified);
        }
        Ok(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_795_251_600;

    fn settings(username_claim: &str) -> OidcSettings {
        OidcSettings {
            issuer: "https://id.example.org".to_owned(),
            client_id: "tidegate".to_owned(),
            roots: RootCertStore::empty(),
            username_claim: username_claim.to_owned(),
            groups_claim: "groups".to_owned(),
            group_roles: Vec::new(),
            page: None,
        }
    }

    /// Returns the result of valid claims after some of them were replaced. Null removes one.
    fn with(username_claim: &str, changed: &Value) -> Result<OidcUser, TokenFault> {
        let mut claims = json!({ "iss": "https://id.example.org", "aud": "tidegate", "sub": "kim", "exp": NOW + 60,
                                 "iat": NOW, "groups": ["ops", 7, "web"] });
        for (claim, value) in changed.as_object().unwrap() {
            claims[claim] = value.clone();
        }
        let mut claims = claims.as_object().unwrap().clone();
        claims.retain(|_, value| !value.is_null());
        Claims(claims).user(&settings(username_claim), "tidegate", Timestamp::from_unix_seconds(NOW))
    }

    #[test]
    fn a_user_has_a_name_and_groups() {
        let user = with("sub", &json!({})).unwrap();
        assert_eq!((user.name.as_str(), user.expires.unix_seconds()), ("kim", NOW + 60 + LEEWAY_SECS));
        assert_eq!(user.groups, ["ops", "web"].map(str::to_owned).into());
        assert_eq!(with("sub", &json!({ "groups": "ops" })).unwrap().groups.len(), 1);
        assert!(with("sub", &json!({ "groups": null })).unwrap().groups.is_empty());
        assert_eq!(
            with("sub", &json!({ "groups": { "a": 1 } })),
            Err(TokenFault::Claim("groups".to_owned()))
        );
        for bad in [
            json!(""),
            json!(null),
            json!(7),
            json!("a\nb"),
            json!("a\u{202e}"),
            json!(" a"),
            json!("x".repeat(201)),
        ] {
            assert_eq!(
                with("sub", &json!({ "sub": bad })),
                Err(TokenFault::Claim("sub".to_owned())),
                "{bad}"
            );
        }
        let email = |verified: Value| {
            with("email", &json!({ "email": "kim@example.org", "email_verified": verified }))
        };
        assert_eq!(email(json!(true)).unwrap().name, "kim@example.org");
        for other in [json!(false), json!(null), json!("true")] {
            assert_eq!(email(other), Err(TokenFault::EmailNotVerified));
        }
    }

    #[test]
    fn audience_and_times_are_checked_with_a_small_tolerance() {
        for (changed, fault) in [
            (json!({ "aud": "other" }), TokenFault::Audience),
            (json!({ "aud": null }), TokenFault::Audience),
            (json!({ "aud": ["other", 7] }), TokenFault::Audience),
            (json!({ "aud": ["other", "tidegate"], "azp": "other" }), TokenFault::Audience),
            (json!({ "azp": 7 }), TokenFault::Audience),
            (json!({ "exp": NOW - LEEWAY_SECS }), TokenFault::Expired),
            (json!({ "exp": null }), TokenFault::Claim("exp".to_owned())),
            (json!({ "exp": "2999" }), TokenFault::Claim("exp".to_owned())),
            (json!({ "exp": -1 }), TokenFault::Claim("exp".to_owned())),
            (json!({ "exp": 1e300 }), TokenFault::Claim("exp".to_owned())),
            (json!({ "nbf": NOW + LEEWAY_SECS + 1 }), TokenFault::NotYet),
            (json!({ "iat": NOW + LEEWAY_SECS + 1 }), TokenFault::NotYet),
        ] {
            assert_eq!(with("sub", &changed), Err(fault), "{changed}");
        }
        for good in [
            json!({ "aud": ["other", "tidegate"], "azp": "tidegate" }),
            json!({ "exp": NOW - LEEWAY_SECS + 1 }),
            json!({ "exp": 1_795_251_660.5 }),
            json!({ "nbf": NOW + LEEWAY_SECS }),
            json!({ "iat": null }),
        ] {
            assert!(with("sub", &good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_nonce_must_be_there_and_equal() {
        let of =
            |nonce: Value| Claims(json!({ "nonce": nonce }).as_object().unwrap().clone()).check_nonce("n");
        assert_eq!(of(json!("n")), Ok(()));
        for other in [json!("N"), json!(""), json!(null), json!(["n"])] {
            assert_eq!(of(other.clone()), Err(TokenFault::Nonce), "{other}");
        }
    }

    #[test]
    fn the_issuer_is_compared_exactly() {
        let of = |issuer: Value| Claims(json!({ "iss": issuer }).as_object().unwrap().clone());
        assert!(of(json!("https://id.example.org")).check_issuer("https://id.example.org").is_ok());
        for other in
            [json!("https://id.example.org/"), json!("https://ID.example.org"), json!(null), json!([])]
        {
            assert!(of(other.clone()).check_issuer("https://id.example.org").is_err(), "{other}");
        }
    }
}
