//! BGP peer passwords from Secrets: references, validation, and handling of missing ones. Does no I/O.
//!
//! Invariants: a session that has a password is never attempted without it; passwords are never logged or
//! displayed.

use std::collections::{BTreeMap, BTreeSet};

use model::primitives::secret::Secret;
use serde_json::{Value, json};

use super::{Finding, Id, Severity};
use crate::json::text;

/// Maximum number of Secrets, each of which is polled every few seconds. Peers can share them.
pub const SECRETS_MAX: usize = 64;
/// Secret type required by MetalLB; a BGPPeer cannot refer to a Secret of another type.
const TYPE: &str = "kubernetes.io/basic-auth";
/// Key of the password in the Secret.
pub const ENTRY: &str = "password";
/// Field of a BGPPeer that refers to the Secret.
const FIELD: &str = "spec.passwordSecret";

/// Secret as read from the cluster.
#[derive(Clone)]
pub struct SecretValue {
    /// Type of the Secret, such as `kubernetes.io/basic-auth`.
    pub of_type: String,
    /// Value of the Secret's `password` key, not validated yet.
    pub password: Vec<u8>,
}

/// Last known state of a Secret with a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordState {
    /// The password was read from the Secret; contains the password.
    Password(Secret),
    /// The Secret no longer exists or is invalid. Contains the password last read, which stays in use, and
    /// the reason.
    Last(Secret, String),
    /// No password is known; contains the reason.
    Nothing(String),
}

/// State of each referenced Secret, by its namespace and name.
pub type Passwords = BTreeMap<Id, PasswordState>;

/// Returns the new state of a Secret's password from the known state and the result of reading the Secret. A
/// known password stays in use if the Secret cannot be read, was deleted, or has become invalid.
#[must_use]
pub fn judge(known: Option<&PasswordState>, read: Result<Option<SecretValue>, String>) -> PasswordState {
    let known = known.and_then(|known| match known {
        PasswordState::Password(password) | PasswordState::Last(password, _) => Some(password.clone()),
        PasswordState::Nothing(_) => None,
    });
    let why = match (read, known) {
        (Ok(Some(read)), known) => match password(read) {
            Ok(password) => return PasswordState::Password(password),
            Err(why) => (why, known),
        },
        (Ok(None), known) => ("does not exist".to_owned(), known),
        // An unreachable API server is no statement about the Secret.
        (Err(_), Some(known)) => return PasswordState::Password(known),
        (Err(cause), None) => (format!("cannot be read: {cause}"), None),
    };
    match why {
        (why, Some(known)) => PasswordState::Last(known, why),
        (why, None) => PasswordState::Nothing(why),
    }
}

fn password(read: SecretValue) -> Result<Secret, String> {
    let SecretValue { of_type, password } = read;
    if of_type != TYPE {
        return Err(format!("must be of type {TYPE}, but is of type `{of_type}`"));
    }
    let text = String::from_utf8(password).map_err(|_| format!("must contain text in `{ENTRY}`"))?;
    if text.is_empty() { Err(format!("has no `{ENTRY}`")) } else { Ok(Secret::new(text)) }
}

/// Returns the Secrets that BGPPeers refer to and may use, at most [`SECRETS_MAX`].
#[must_use]
pub fn named<'a>(peers: impl Iterator<Item = &'a Value>) -> BTreeSet<Id> {
    let all: BTreeSet<Id> = peers.filter_map(|peer| of(peer)?.ok()).collect();
    all.into_iter().take(SECRETS_MAX).collect()
}

/// Returns the Secret that a BGPPeer refers to, or the reason for which it must not be used. Secrets of other
/// namespaces are not permitted.
fn of(peer: &Value) -> Option<Result<Id, String>> {
    let name = text(peer, "/spec/passwordSecret/name");
    if name.is_empty() {
        return None;
    }
    let (own, wanted) = (text(peer, "/metadata/namespace"), text(peer, "/spec/passwordSecret/namespace"));
    if !wanted.is_empty() && wanted != own {
        return Some(Err(format!("Secrets are only read in the namespace of the BGPPeer, {own}")));
    }
    Some(Ok(Id { namespace: own, name }))
}

/// Inserts the password from a Secret into a BGPPeer. If no password is known, the BGPPeer stays unchanged,
/// and is translated to a disabled peer.
#[must_use]
pub fn resolve(passwords: Option<&Passwords>, peer: &mut Value) -> Option<Finding> {
    let named = of(peer)?;
    let none = |why: &str| {
        let message = format!(
            "{why}: the peer is disabled, because a protected session is not attempted without \
                     protection"
        );
        Some(Finding { severity: Severity::NotSupported, field: FIELD.to_owned(), message })
    };
    let Some(passwords) = passwords else {
        return none("Secrets are not read without --password-secrets");
    };
    let id = match named {
        Ok(id) => id,
        Err(why) => return none(&why),
    };
    let (password, finding) = match passwords.get(&id) {
        Some(PasswordState::Password(password)) => (password, None),
        Some(PasswordState::Last(password, why)) => {
            let message = format!("Secret {} {why}; its previous password stays in use", id.name);
            let finding = Finding { severity: Severity::Approximated, field: FIELD.to_owned(), message };
            (password, Some(finding))
        }
        Some(PasswordState::Nothing(why)) => return none(&format!("Secret {} {why}", id.name)),
        None => return none(&format!("Secret {} is not read: the limit is {SECRETS_MAX}", id.name)),
    };
    let spec = peer.get_mut("spec").and_then(Value::as_object_mut)?;
    spec.remove("passwordSecret");
    spec.insert(ENTRY.to_owned(), json!(password.reveal()));
    finding
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]

    use super::*;

    fn secret(of_type: &str, password: &[u8]) -> SecretValue {
        SecretValue { of_type: of_type.to_owned(), password: password.to_vec() }
    }

    fn why(held: &PasswordState) -> &str {
        match held {
            PasswordState::Nothing(why) | PasswordState::Last(_, why) => why,
            PasswordState::Password(_) => panic!("there is a password"),
        }
    }

    #[test]
    fn a_secret_of_the_right_type_has_a_password_and_others_say_why_not() {
        let good = judge(None, Ok(Some(secret(TYPE, b"hush"))));
        assert_eq!(good, PasswordState::Password(Secret::new("hush".to_owned())));
        let bad = [
            (secret("Opaque", b"hush"), "of type kubernetes.io/basic-auth"),
            (secret(TYPE, b""), "has no `password`"),
            (secret(TYPE, b"\xff"), "contain text in"),
        ];
        for (read, expected) in bad {
            let held = judge(None, Ok(Some(read.clone())));
            assert!(why(&held).contains(expected) && matches!(held, PasswordState::Nothing(_)), "{held:?}");
            let held = judge(Some(&good), Ok(Some(read)));
            assert!(matches!(held, PasswordState::Last(..)), "a known password stays in use: {held:?}");
        }
        assert!(why(&judge(Some(&good), Ok(None))).contains("does not exist"));
        assert_eq!(judge(Some(&good), Err("away".to_owned())), good);
        assert_eq!(why(&judge(None, Err("away".to_owned()))), "cannot be read: away");
        assert!(!format!("{good:?}").contains("hush"));
    }

    #[test]
    fn a_peer_gets_the_password_of_its_own_namespace_only() {
        let peer = |secret: Value| json!({ "metadata": { "namespace": "metallb-system" }, "spec": { "passwordSecret": secret } });
        let id = Id { namespace: "metallb-system".to_owned(), name: "tor".to_owned() };
        let held = PasswordState::Password(Secret::new("hush".to_owned()));
        let passwords = Passwords::from([(id.clone(), held)]);
        let mut own = peer(json!({ "name": "tor" }));
        assert_eq!(resolve(Some(&passwords), &mut own), None);
        assert_eq!(own["spec"], json!({ "password": "hush" }));
        for (passwords, secret, expected) in [
            (None, json!({ "name": "tor" }), "--password-secrets"),
            (Some(&passwords), json!({ "name": "other" }), "limit is 64"),
            (Some(&passwords), json!({ "name": "tor", "namespace": "shop" }), "namespace of the BGPPeer"),
        ] {
            let mut document = peer(secret);
            let finding = resolve(passwords, &mut document).unwrap();
            assert!(finding.message.contains(expected), "{finding:?}");
            assert_eq!(finding.severity, Severity::NotSupported);
            assert!(document["spec"]["password"].is_null());
        }
        let peers = [peer(json!({ "name": "tor" })), peer(json!({ "name": "x", "namespace": "shop" }))];
        assert_eq!(named(peers.iter()), BTreeSet::from([id]));
    }
}
