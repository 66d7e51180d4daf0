//! Public keys of an issuer: JSON Web Keys (RFC 7517, RFC 8037), and verification of signatures with them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

use super::token::SigningAlgorithm;

/// Maximum number of keys of an issuer. Further ones are ignored.
const KEYS_MAX: usize = 64;
/// Length of a coordinate of P-256 and of a public key of Ed25519, in bytes.
const COORDINATE_BYTES: usize = 32;
/// First byte of an uncompressed point of an elliptic curve (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// JSON Web Key as the issuer publishes it.
#[derive(Debug, Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// JSON Web Key Set.
#[derive(Debug, Deserialize)]
struct JwkSet {
    keys: Vec<Value>,
}

/// Public key with the one algorithm that it is used with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    /// Id of the key.
    pub(super) id: Option<String>,
    material: KeyMaterial,
}

/// Material of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Returns the algorithm of the signatures that the key verifies.
    pub(super) fn algorithm(&self) -> SigningAlgorithm {
        match self.material {
            KeyMaterial::Rsa { .. } => SigningAlgorithm::Rs256,
            KeyMaterial::P256(_) => SigningAlgorithm::Es256,
            KeyMaterial::Ed25519(_) => SigningAlgorithm::Ed25519,
        }
    }

    /// Returns true if the key verifies a signature of this algorithm. RSA keys must have 2048 to 8192 bits.
    pub(super) fn verifies(&self, algorithm: SigningAlgorithm, signed: &[u8], signature: &[u8]) -> bool {
        if algorithm != self.algorithm() {
            return false;
        }
        let verified = match &self.material {
            KeyMaterial::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature),
            KeyMaterial::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            KeyMaterial::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(signed, signature),
        };
        verified.is_ok()
    }
}

/// Parses a JSON Web Key Set. Keys of other types and for other uses are left out. Returns `None` if the set is malformed or has
/// no usable key.
pub(super) fn parse_set(body: &[u8]) -> Option<Vec<PublicKey>> {
    let JwkSet { keys } = serde_json::from_slice(body).ok()?;
    let keys: Vec<_> = keys.into_iter().take(KEYS_MAX).filter_map(public_key).collect();
    (!keys.is_empty()).then_some(keys)
}

fn public_key(value: Value) -> Option<PublicKey> {
    let Jwk { kty, kid, usage, alg, crv, n, e, x, y } = serde_json::from_value(value).ok()?;
    if usage.is_some_and(|usage| usage != "sig") {
        return None;
    }
    let decode = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
    let coordinate = |text| decode(text).filter(|bytes| bytes.len() == COORDINATE_BYTES);
    let material = match (kty.as_str(), crv.as_deref()) {
        ("RSA", _) => {
            let number = |text| {
                let bytes = decode(text)?;
                let begin = bytes.iter().position(|byte| *byte != 0)?;
                Some(bytes[begin..].to_vec())
            };
            KeyMaterial::Rsa { modulus: number(n)?, exponent: number(e)? }
        }
        ("EC", Some("P-256")) => {
            KeyMaterial::P256([vec![UNCOMPRESSED], coordinate(x)?, coordinate(y)?].concat())
        }
        ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(coordinate(x)?),
        _ => return None,
    };
    let key = PublicKey { id: kid, material };
    let is_meant = alg.is_none_or(|name| SigningAlgorithm::parse(&name) == Some(key.algorithm()));
    is_meant.then_some(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Public key and signature of RFC 8037, A.2 and A.4.
    #[test]
    fn a_key_verifies_signatures_of_its_own_algorithm_only() {
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
        let keys = parse_set(json!({ "keys": [key] }).to_string().as_bytes()).unwrap();
        let [key] = &keys[..] else { panic!("{keys:?}") };
        let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature =
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(key.verifies(SigningAlgorithm::Ed25519, signed, &signature));
        assert!(!key.verifies(SigningAlgorithm::Es256, signed, &signature));
        assert!(!key.verifies(SigningAlgorithm::Ed25519, &signed[1..], &signature));
        assert!(!key.verifies(SigningAlgorithm::Ed25519, signed, &[]));
        signature[0] ^= 1;
        assert!(!key.verifies(SigningAlgorithm::Ed25519, signed, &signature));
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let own = json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "use": "sig", "alg": "EdDSA" });
        let changed = |field: &str, value: &str| {
            let mut key = own.clone();
            key[field] = value.into();
            key
        };
        for other in [
            changed("use", "enc"),
            changed("alg", "RS256"),
            changed("crv", "X25519"),
            changed("kty", "oct"),
            changed("x", "AAAA"),
            changed("x", "*"),
            json!({ "kty": "oct", "k": "AAAA", "alg": "HS256" }),
            json!({ "kty": "RSA", "n": "AAAA", "e": "AQAB" }),
            json!(7),
        ] {
            let both = json!({ "keys": [other, own] }).to_string();
            assert_eq!(parse_set(both.as_bytes()).unwrap().len(), 1, "{both}");
        }
        for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":{}}"#] {
            assert_eq!(parse_set(bad.as_bytes()), None);
        }
    }
}
