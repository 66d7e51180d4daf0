//! Tokens of users and automation: format of the text, and the stored record. The text is returned once, at
//! creation; only its digest is stored.
//!
//! ```text
//! tgt_ID_SECRETCHECK     ID: 12 digits, no secret       SECRET: 256 random bits as 64 hexadecimal digits
//!                        CHECK: 8 digits of the SHA-256 of all preceding characters
//! ```
//! Secret scanners use the check digits to avoid false positives.

use std::collections::BTreeSet;

use ipnet::IpNet;
use model::primitives::{
    name::{Label, Name, Namespace},
    quantity::Timestamp,
    secret::Secret,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    roles::AGENT,
    secrets::{self, is_equal},
};
use crate::base::hex::hex;

/// Prefix of the keys under which the vault stores tokens.
pub(crate) const VAULT_PREFIX: &str = "tokens/";
/// Maximum number of tokens. The vault then still has space for other records.
pub(crate) const TOKENS_MAX: usize = 1000;
/// Maximum lifetime of a token with expiry, in seconds: ten years.
pub(crate) const LIFE_SECS_MAX: i64 = 10 * 366 * 86_400;
/// Prefix of the text of every token.
const PREFIX: &str = "tgt_";
/// Length of a token's id in hexadecimal digits.
const ID_LENGTH: usize = 12;
/// Length of a token's secret in hexadecimal digits.
const SECRET_LENGTH: usize = 64;
/// Length of a token's checksum in hexadecimal digits.
const CHECK_LENGTH: usize = 8;
/// Maximum number of role bindings of one token.
const BINDINGS_MAX: usize = 32;
/// Maximum number of elements in each list of a role binding.
const ENTRIES_MAX: usize = 256;

/// Binding of a token to a role, with optional restrictions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = TokenBinding)]
pub(crate) struct Binding {
    /// Name of the role.
    #[schema(value_type = String, max_length = 63, example = "operator")]
    pub(crate) role: Label,
    /// Namespaces that the binding is limited to; with a limit it excludes cluster-scoped objects. Default: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) namespaces: Option<BTreeSet<Namespace>>,
    /// AddressPools from which Services may have load balancer addresses. Services must then name one of
    /// these pools and cannot have external IPs. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) pools: Option<BTreeSet<Name>>,
    /// CIDRs that addresses in EndpointSets and Workloads must be in. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256, example = json!(["10.1.0.0/16"]))]
    pub(crate) endpoint_ranges: Option<BTreeSet<IpNet>>,
}

/// Token as stored in the vault, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenRecord {
    /// Name of the token, recorded as the author of its writes.
    pub(crate) name: Label,
    /// SHA-256 of the token's text, in lower-case hexadecimal.
    pub(crate) digest: String,
    /// Role bindings; the token has the permissions of all.
    pub(crate) bindings: Vec<Binding>,
    /// Time at which the token was created.
    pub(crate) created: Timestamp,
    /// Author of the request that created the token.
    pub(crate) created_by: String,
    /// Time at which the token expires; `None` if it never does.
    pub(crate) expires: Option<Timestamp>,
}

impl TokenRecord {
    /// Returns true if the token has not expired at time `now`.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Returns true if `text` is the secret text of this token.
    pub(crate) fn is(&self, text: &str) -> bool {
        is_equal(&digest(text), &self.digest)
    }
}

/// Creates the text of a new token from its id and secret.
pub(crate) fn mint(id: &str, secret: &[u8; 32]) -> Secret {
    let mut text = format!("{PREFIX}{id}_{}", hex(secret));
    let check = check(&text);
    text.push_str(&check);
    Secret::new(text)
}

/// Returns the id in the text of a token, or `None` if the text is malformed.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    let (id, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
    let is_form = id.len() == ID_LENGTH
        && rest.len() == SECRET_LENGTH + CHECK_LENGTH
        && is_digits(id)
        && is_digits(rest);
    let (body, found) = text.split_at_checked(text.len().checked_sub(CHECK_LENGTH)?)?;
    (is_form && check(body) == found).then_some(id)
}

/// Creates a token id from random bytes.
pub(crate) fn id(random: &[u8; 32]) -> String {
    hex(&random[..ID_LENGTH / 2])
}

/// Returns the digest under which the text of a token is stored.
pub(crate) fn digest(text: &str) -> String {
    secrets::digest(text.as_bytes())
}

fn check(text: &str) -> String {
    digest(text)[..CHECK_LENGTH].to_owned()
}

/// Checks the role bindings of a token, and returns the violations. The existence of the roles is not
/// checked.
pub(crate) fn check_bindings(bindings: &[Binding]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add =
        |pointer: String, code, message: String| violations.push(Violation::new(pointer, code, message));
    if bindings.is_empty() || bindings.len() > BINDINGS_MAX {
        let message = format!(
            "must be 1 to {BINDINGS_MAX} bindings: a token without bindings has no \
                               permissions"
        );
        add("/bindings".to_owned(), ViolationCode::Invalid, message);
    }
    for (index, binding) in bindings.iter().enumerate() {
        let Binding { role, namespaces, pools, endpoint_ranges } = binding;
        if role.as_str() == AGENT {
            let message = "must be another role: agents are authenticated by certificate".to_owned();
            add(format!("/bindings/{index}/role"), ViolationCode::Invalid, message);
        }
        let lists = [
            ("namespaces", namespaces.as_ref().map(BTreeSet::len)),
            ("pools", pools.as_ref().map(BTreeSet::len)),
            ("endpointRanges", endpoint_ranges.as_ref().map(BTreeSet::len)),
        ];
        for (field, length) in lists {
            if length.is_some_and(|length| length > ENTRIES_MAX) {
                let message = format!("must be at most {ENTRIES_MAX} entries");
                add(format!("/bindings/{index}/{field}"), ViolationCode::TooLong, message);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_token_says_its_id_and_one_wrong_digit_is_seen() {
        let id = id(&[0xab; 32]);
        let text = mint(&id, &[7; 32]);
        let text = text.reveal();
        assert_eq!(id_of(text), Some("abababababab"));
        for at in 0..text.len() {
            let mut wrong = text.to_owned();
            let other = if &text[at..=at] == "0" { "1" } else { "0" };
            wrong.replace_range(at..=at, other);
            assert_eq!(id_of(&wrong), None, "{wrong}");
        }
        for wrong in ["", "tgt_", "tgt__", "tgt_ä_ö", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(id_of(wrong), None, "{wrong}");
        }
    }
}
