//! Login that has begun and not ended: its values are in a cookie of the browser, encrypted and authenticated, so that any
//! control server of the store can end it and no server keeps anything.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};
use model::primitives::{quantity::Timestamp, secret::Secret};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use store::{StoreError, VaultError};

use super::code_flow::PageView;
use crate::{
    base::{clock_and_random::Source, hex::hex},
    security::{
        cookies::{CookieKind, SameSite},
        vault::Vault,
    },
};

/// Key of the vault record with the key of the cookies.
const VAULT_KEY: &str = "oidc/flow-key";
/// Length of the key in bytes.
const KEY_BYTES: usize = 32;
/// Time in seconds that a user has to log in at the issuer: ten minutes.
pub(super) const LIFE_SECS: i64 = 600;
/// Purpose of the cookie, which is authenticated with it.
const PURPOSE: &[u8] = b"tidegate login";

/// Login that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoginFlow {
    /// Value that the response of the issuer must have (RFC 6749, 10.12).
    pub(super) state: Secret,
    /// Value that the ID token must have (OpenID Connect Core, 3.1.2.1).
    pub(super) nonce: Secret,
    /// Value whose hash the issuer has received, and which the exchange of the code proves (RFC 7636, 4.1).
    pub(super) verifier: Secret,
    /// View of the page that the browser returns to.
    pub(super) view: PageView,
    begun: Timestamp,
}

/// Key that encrypts and authenticates cookies. All control servers of a store have the same one.
pub(crate) struct FlowKey(LessSafeKey);

/// Cookies of logins.
pub(super) struct FlowCookies {
    key: FlowKey,
    kind: CookieKind,
}

impl LoginFlow {
    /// Begins a login with random values: 64 hexadecimal digits each, as RFC 7636, 4.1 permits for the verifier.
    pub(super) fn begin(view: PageView, source: &dyn Source) -> Self {
        let secret = || Secret::new(hex(&source.secret()));
        Self { state: secret(), nonce: secret(), verifier: secret(), view, begun: source.now() }
    }

    fn is_live(&self, now: Timestamp) -> bool {
        (0..LIFE_SECS).contains(&now.unix_seconds().saturating_sub(self.begun.unix_seconds()))
    }
}

impl FlowKey {
    /// Returns the key from the vault. If there is none, creates and stores one; of several servers that start at once, the
    /// first one's key is used by all.
    ///
    /// # Errors
    /// Returns an error if the vault cannot be read or written.
    pub(crate) async fn obtain(vault: &Vault, source: &dyn Source) -> Result<Self, StoreError> {
        loop {
            let stored = vault.get::<Secret>(VAULT_KEY).and_then(|(_, key)| Self::parse(key.reveal()));
            if let Some(key) = stored {
                return Ok(key);
            }
            let made = source.secret();
            let text = Secret::new(URL_SAFE_NO_PAD.encode(made));
            match vault.put(VAULT_KEY, vault.version(VAULT_KEY), &text).await {
                Ok(_) | Err(VaultError::Stale { .. }) => {}
                Err(VaultError::Unavailable(error)) => return Err(error),
                Err(VaultError::TooLarge { .. }) => {
                    tracing::warn!(
                        "cannot store the key of logins to the status page, because the vault is full: \
                         the server that begins a login must also end it"
                    );
                    return Ok(Self::of(&made));
                }
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; KEY_BYTES] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        Some(Self::of(&bytes))
    }

    fn of(bytes: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).expect("the algorithm has keys of 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts and authenticates `flow`. `nonce` must never be used twice.
    fn seal(&self, flow: &LoginFlow, nonce: [u8; NONCE_LEN]) -> String {
        let mut text = serde_json::to_vec(flow).expect("a login has string keys only");
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(unique, Aad::from(PURPOSE), &mut text).expect("the text is short");
        URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat())
    }

    fn open(&self, text: &str) -> Option<LoginFlow> {
        let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let text = self.0.open_in_place(nonce, Aad::from(PURPOSE), sealed).ok()?;
        serde_json::from_slice(text).ok()
    }
}

impl FlowCookies {
    /// Creates the cookies. If `is_secure`, browsers send them over TLS only.
    pub(super) fn new(key: FlowKey, is_secure: bool) -> Self {
        let kind = CookieKind {
            name: "tidegate-login",
            secure_name: "__Host-tidegate-login",
            // The issuer redirects the browser to the callback, which another site thus requests.
            same_site: SameSite::Lax,
            is_secure,
        };
        Self { key, kind }
    }

    /// Returns the `Set-Cookie` value of a login.
    pub(super) fn set(&self, flow: &LoginFlow, source: &dyn Source) -> HeaderValue {
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&source.secret()[..NONCE_LEN]);
        self.kind.set(&self.key.seal(flow, nonce), LIFE_SECS)
    }

    /// Returns the `Set-Cookie` value that deletes the cookie.
    pub(super) fn delete(&self) -> HeaderValue {
        self.kind.set("", 0)
    }

    /// Returns the login of a request. Returns `None` if the request has none that a control server has begun within the last
    /// ten minutes.
    pub(super) fn read(&self, headers: &HeaderMap, now: Timestamp) -> Option<LoginFlow> {
        self.key.open(self.kind.value_of(headers)?).filter(|flow| flow.is_live(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> LoginFlow {
        let secret = |text: &str| Secret::new(text.to_owned());
        LoginFlow {
            state: secret("s"),
            nonce: secret("n"),
            verifier: secret("v"),
            view: PageView::default(),
            begun: Timestamp::from_unix_seconds(1000),
        }
    }

    #[test]
    fn a_login_is_opened_unchanged_and_with_its_key_only() {
        let key = FlowKey::of(&[1; KEY_BYTES]);
        let text = key.seal(&flow(), [7; NONCE_LEN]);
        assert!(!text.contains('=') && text.is_ascii() && text.len() < 512, "{text}");
        assert_eq!(key.open(&text), Some(flow()));
        assert_eq!(FlowKey::of(&[2; KEY_BYTES]).open(&text), None);
        for place in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character has bits that belong to no byte.
            assert!(key.open(&changed) != Some(flow()) || place + 1 == text.len(), "{place}");
        }
        for bad in ["", "AAAA", "*", &text[1..], &text[..text.len() - 4]] {
            assert_eq!(key.open(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_login_ends_after_ten_minutes() {
        let live = |now: i64| flow().is_live(Timestamp::from_unix_seconds(now));
        assert!(live(1000) && live(1000 + LIFE_SECS - 1));
        assert!(!live(1000 + LIFE_SECS) && !live(999));
    }

    #[tokio::test]
    async fn servers_of_a_store_have_the_same_key() {
        let at = Timestamp::from_unix_seconds(1);
        let store = store::open("memory:", at).await.unwrap();
        let source = crate::base::clock_and_random::System;
        let text = {
            let vault = Vault::open(std::sync::Arc::clone(&store)).await.unwrap();
            FlowKey::obtain(&vault, &source).await.unwrap().seal(&flow(), [7; NONCE_LEN])
        };
        let vault = Vault::open(store).await.unwrap();
        assert_eq!(FlowKey::obtain(&vault, &source).await.unwrap().open(&text), Some(flow()));
        // A record that cannot be used is replaced.
        vault.put(VAULT_KEY, vault.version(VAULT_KEY), &"short").await.unwrap();
        assert_eq!(FlowKey::obtain(&vault, &source).await.unwrap().open(&text), None);
    }
}
