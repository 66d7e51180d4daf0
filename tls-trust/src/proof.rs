//! Message that an agent signs with the key of its expired certificate to renew it.

use sha2::{Digest as _, Sha256};

/// Start of the message. No other protocol that uses the key signs a message that starts with this text: TLS 1.3 starts with
/// spaces (RFC 8446, 4.4.3), and a CSR with the tag of a sequence.
const PURPOSE: &str = "tidegate: renewal of an expired certificate, version 1\n";

/// Returns the message that an agent signs to renew its expired certificate: the purpose, the time in Unix seconds, and the
/// SHA-256 hashes of the certificate (DER) and of the certificate signing request (PEM, as sent).
#[must_use]
pub fn expired_renewal_message(certificate: &[u8], csr: &str, unix_seconds: i64) -> Vec<u8> {
    let mut message = format!("{PURPOSE}{unix_seconds}\n").into_bytes();
    message.extend_from_slice(&Sha256::digest(certificate));
    message.extend_from_slice(&Sha256::digest(csr));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_covers_certificate_request_and_time() {
        let message = expired_renewal_message(b"certificate", "request", 1);
        assert_eq!(message.len(), PURPOSE.len() + 2 + 2 * 32);
        for other in [
            expired_renewal_message(b"Certificate", "request", 1),
            expired_renewal_message(b"certificate", "Request", 1),
            expired_renewal_message(b"certificate", "request", 11),
            expired_renewal_message(b"certificat", "erequest", 1),
        ] {
            assert_ne!(message, other);
        }
    }
}
