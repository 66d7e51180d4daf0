//! Names and Ethernet addresses of attachments, derived from their identities. Does no I/O.

use attach_socket::AttachmentKey;
use kernel::links::Mac;
use sha2::{Digest as _, Sha256};

/// Prefix of the names of interfaces that lead to workloads.
const PREFIX: &str = "tg";
/// Number of characters after the prefix: with it, the longest name of an interface has 13 characters.
const HASH_CHARACTERS: usize = 11;
/// Digits of Base32 in lower case (RFC 4648 §6).
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Ethernet address of the interfaces on the node. All have the same one, so that a workload that moves to another node
/// finds its gateway at the same address.
pub const HOST_MAC: Mac = Mac([0xee; 6]);

/// Returns the name of the interface on the node. A new process and a removal without a record derive the same name.
#[must_use]
pub fn host_interface(key: &AttachmentKey) -> String {
    format!("{PREFIX}{}", id(key))
}

/// Returns the identifier of an attachment: 11 characters, which are a valid label.
#[must_use]
pub fn id(key: &AttachmentKey) -> String {
    let bits = digest(key);
    // Five bits a digit; the hash has far more than the 55 bits that are needed.
    let digit = |index: usize| {
        let start = index * 5;
        let word = u16::from_be_bytes([bits[start / 8], bits[start / 8 + 1]]);
        let value = (word >> (11 - start % 8)) & 31;
        char::from(DIGITS[usize::from(value)])
    };
    (0..HASH_CHARACTERS).map(digit).collect()
}

/// Returns true if an interface with this name leads to a workload.
#[must_use]
pub fn is_host_interface(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|hash| {
        hash.len() == HASH_CHARACTERS && hash.bytes().all(|digit| DIGITS.contains(&digit))
    })
}

/// Returns the Ethernet address of the interface inside of the network namespace: locally administered and unicast.
#[must_use]
pub fn workload_mac(key: &AttachmentKey) -> Mac {
    let bits = digest(key);
    Mac([0x02, bits[27], bits[28], bits[29], bits[30], bits[31]])
}

/// Parses an Ethernet address in text form, such as `02:00:00:00:00:01`.
#[must_use]
pub fn parse_mac(text: &str) -> Option<Mac> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok().map(Mac)
}

fn digest(key: &AttachmentKey) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(key.container_id.as_bytes());
    hasher.update([0]);
    hasher.update(key.interface.as_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_container_and_interface_and_are_recognized() {
        let key = |container_id: &str, interface: &str| AttachmentKey {
            container_id: container_id.to_owned(),
            interface: interface.to_owned(),
        };
        let names = [key("a", "eth0"), key("a", "eth1"), key("b", "eth0")].map(|key| host_interface(&key));
        assert_ne!(names[0], names[1]);
        assert_ne!(names[0], names[2]);
        for name in &names {
            assert!(name.len() == 13 && is_host_interface(name), "{name}");
        }
        for other in ["tg-vx", "tg-ipip", "tg", "eth0", "tgaaaaaaaaaa", "tgaaaaaaaaaa1"] {
            assert!(!is_host_interface(other), "{other}");
        }
        let mac = workload_mac(&key("a", "eth0"));
        assert!(mac.is_unicast() && parse_mac(&mac.to_string()) == Some(mac));
        assert_eq!(parse_mac("02:00:00:00:00"), None);
    }
}
