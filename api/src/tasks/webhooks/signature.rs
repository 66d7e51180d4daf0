//! Signature of a webhook request: HMAC with SHA-256 over id, time and body (Standard Webhooks, symmetric signatures).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Returns the value of the header `webhook-signature`. `sent` is the time of the request in Unix seconds.
pub(super) fn sign(key: &[u8], id: &str, sent: i64, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(format!("{id}.{sent}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value was computed by the Python module `hmac`.
    #[test]
    fn the_signature_covers_id_time_and_body() {
        let key: Vec<u8> = (0..32).collect();
        let signature = sign(&key, "msg_1", 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signature.as_deref(), Some("v1,AMaOha7DUT/0J0JMycRuYOBSvbx3WtwLd2khXXbaVj4="));
    }
}
