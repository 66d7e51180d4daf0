//! Public key of an agent (X25519, RFC 7748), from which pairs of nodes derive the keys of their BFD sessions.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

/// Length of a public key in bytes (RFC 7748 §5).
pub const PUBLIC_KEY_BYTES: usize = 32;

/// Public key of an agent (X25519, RFC 7748). Text form: base64 with padding, 44 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; PUBLIC_KEY_BYTES]);

/// Error: a text is not base64 of 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the base64 form of {PUBLIC_KEY_BYTES} bytes")]
pub struct PublicKeyError;

impl PublicKey {
    /// Creates a public key from its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; PUBLIC_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl TryFrom<String> for PublicKey {
    type Error = PublicKeyError;

    fn try_from(text: String) -> Result<Self, PublicKeyError> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| PublicKeyError)?;
        bytes.try_into().map(Self).map_err(|_| PublicKeyError)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_the_base64_form_of_32_bytes() {
        let key = PublicKey::new([7; 32]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, r#""BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=""#);
        assert_eq!(serde_json::from_str::<PublicKey>(&text).unwrap(), key);
        let short = BASE64_STANDARD.encode([7; 31]);
        let long = BASE64_STANDARD.encode([7; 33]);
        // Without padding, with other bits behind the last byte, in the alphabet of URLs.
        let others = [
            &text[1..44],
            "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd=",
            "-_cHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        ];
        for bad in [short.as_str(), &long, "", "key"].into_iter().chain(others) {
            assert_eq!(PublicKey::try_from(bad.to_owned()), Err(PublicKeyError), "{bad}");
        }
    }
}
