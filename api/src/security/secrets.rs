//! Hashing and constant-time comparison of secrets.

use crate::base::hex::hex;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest in lower-case hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Compares two texts in a time that does not depend on their contents if the lengths are equal.
pub(crate) fn is_equal(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard_and_compare_whole() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), abc);
        assert!(is_equal(abc, abc));
        for other in ["", &abc[1..], &format!("{abc}0"), &abc.replace('d', "e")] {
            assert!(!is_equal(abc, other), "{other}");
        }
    }
}
