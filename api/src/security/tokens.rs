//! Tokens: what their text is made of, and what is kept of them. The text is shown once; only its digest is stored.
//!
//! ```text
//! tgt_ID_SECRETCHECK     ID: 12 digits, no secret       SECRET: 256 random bits as 64 hexadecimal digits
//!                        CHECK: 8 digits of the SHA-256 of all before it, so that scanners find what is really a token
//! ```

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

/// What begins the key of a token in the vault.
pub(crate) const VAULT_PREFIX: &str = "tokens/";
/// Tokens at once: the vault has room for other things besides.
pub(crate) const TOKENS_MAX: usize = 1000;
/// Longest life of a token that ends, in seconds: ten years.
pub(crate) const LIFE_SECS_MAX: i64 = 10 * 366 * 86_400;
/// What every token begins with.
const PREFIX: &str = "tgt_";
/// Digits of an id.
const ID_LENGTH: usize = 12;
/// Digits of a secret.
const SECRET_LENGTH: usize = 64;
/// Digits of the checksum.
const CHECK_LENGTH: usize = 8;
/// Bindings of one token.
const BINDINGS_MAX: usize = 32;
/// Entries of each list of a binding.
const ENTRIES_MAX: usize = 256;

/// What a token's holder is, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = TokenBinding)]
pub(crate) struct Binding {
    /// The role.
    #[schema(value_type = String, max_length = 63, example = "operator")]
    pub(crate) role: Label,
    /// Only in these namespaces, and to nothing outside of namespaces; everywhere when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) namespaces: Option<BTreeSet<Namespace>>,
    /// Services may have load balancer addresses of these pools, which they have to name, and no external IPs; any pool that
    /// takes them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub(crate) pools: Option<BTreeSet<Name>>,
    /// EndpointSets and Workloads may have addresses in these ranges; any when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256, example = json!(["10.1.0.0/16"]))]
    pub(crate) endpoint_ranges: Option<BTreeSet<IpNet>>,
}

/// What is stored of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Token {
    /// The author of what is done with it.
    pub(crate) name: Label,
    /// The SHA-256 of its text, in hexadecimal.
    pub(crate) digest: String,
    /// What its holder may do; the sum of all.
    pub(crate) bindings: Vec<Binding>,
    /// When it was made.
    pub(crate) created: Timestamp,
    /// By whom.
    pub(crate) created_by: String,
    /// When it ends; `None`: when it is revoked.
    pub(crate) expires: Option<Timestamp>,
}

impl Token {
    /// Whether it counts at a time.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether this is its text.
    pub(crate) fn is(&self, text: &str) -> bool {
        is_equal(&digest(text), &self.digest)
    }
}

/// A new token: its id, and its text, which nobody keeps.
pub(crate) fn mint(id: &str, secret: &[u8; 32]) -> Secret {
    let mut text = format!("{PREFIX}{id}_{}", hex(secret));
    let check = check(&text);
    text.push_str(&check);
    Secret::new(text)
}

/// The id of a token whose text has the right form.
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

/// An id, of random bytes.
pub(crate) fn id(random: &[u8; 32]) -> String {
    hex(&random[..ID_LENGTH / 2])
}

/// What is stored of a text.
pub(crate) fn digest(text: &str) -> String {
    secrets::digest(text.as_bytes())
}

fn check(text: &str) -> String {
    digest(text)[..CHECK_LENGTH].to_owned()
}

/// What is wrong with bindings, whatever roles there are.
pub(crate) fn check_bindings(bindings: &[Binding]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add =
        |pointer: String, code, message: String| violations.push(Violation::new(pointer, code, message));
    if bindings.is_empty() || bindings.len() > BINDINGS_MAX {
        let message = format!("must be 1 to {BINDINGS_MAX} bindings: a token without one may do nothing");
        add("/bindings".to_owned(), ViolationCode::Invalid, message);
    }
    for (index, binding) in bindings.iter().enumerate() {
        let Binding { role, namespaces, pools, endpoint_ranges } = binding;
        if role.as_str() == AGENT {
            let message =
                "must be another role: an agent proves which node it is by its certificate".to_owned();
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
