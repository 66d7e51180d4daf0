//! Keys of BFD between pairs of nodes: agreement by X25519 (RFC 7748) between the two nodes, and derivation by
//! HKDF with SHA-256 (RFC 5869). Does no I/O.
//!
//! Only the two nodes can compute the keys, so no node can send packets to a second one as a third. A session has
//! two keys, one for each direction, which depend on the names, the public keys and the addresses of both nodes:
//!
//! - A packet that an attacker returns to its sender is not accepted there.
//! - A packet of one session is not accepted by another session of the same nodes.
//! - A node that reports the public key of another node as its own does not get keys of that node.

use std::{fmt, net::IpAddr};

use bfd::{Algorithm, Key, Secret};
use hkdf::Hkdf;
use model::primitives::{name::Name, public_key::PublicKey};
use sha2::Sha256;
use x25519_dalek::StaticSecret;

use crate::ownership::owners::Pair;

/// Auth Key ID (RFC 5880 §4.4) of keys of a pair of nodes. Differs from that of the key of all nodes.
const KEY_ID: u8 = 2;
/// Length of a secret in bytes (RFC 5880 §4.4).
const SECRET_BYTES: usize = 20;
/// Salt of the derivation. Keys for another purpose or of another derivation need another label.
const LABEL: &[u8] = b"tidegate bfd pair key v1";

/// Private key of this node and its name.
#[derive(Clone)]
pub struct PeerIdentity {
    node: Name,
    secret: StaticSecret,
    public: PublicKey,
}

/// Error: the public key of the other node is one of the few for which the agreement has the same result with every
/// private key (RFC 7748 §6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeakPublicKey;

/// One of the two nodes of a session, as far as the keys depend on it.
struct End<'a> {
    node: &'a Name,
    public: &'a PublicKey,
    address: IpAddr,
}

impl PeerIdentity {
    /// Creates the identity of the node with this name. `secret` must be random.
    #[must_use]
    pub fn new(node: Name, secret: [u8; 32]) -> Self {
        let secret = StaticSecret::from(secret);
        let public = PublicKey::new(x25519_dalek::PublicKey::from(&secret).to_bytes());
        Self { node, secret, public }
    }

    /// Returns the public key of this node.
    #[must_use]
    pub const fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns the key of the session with another node over a pair of addresses.
    ///
    /// # Errors
    /// Returns [`WeakPublicKey`] if everybody could compute the key.
    pub fn session_key(&self, node: &Name, public: &PublicKey, pair: Pair) -> Result<Key, WeakPublicKey> {
        let agreed = self.secret.diffie_hellman(&x25519_dalek::PublicKey::from(*public.bytes()));
        if !agreed.was_contributory() {
            return Err(WeakPublicKey);
        }
        let derivation = Hkdf::<Sha256>::new(Some(LABEL), agreed.as_bytes());
        let own = End { node: &self.node, public: &self.public, address: pair.local };
        let other = End { node, public, address: pair.peer };
        Ok(Key {
            id: KEY_ID,
            algorithm: Algorithm::MeticulousKeyedSha1,
            transmit: secret(&derivation, &own, &other),
            receive: secret(&derivation, &other, &own),
        })
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, secret: _, public } = self;
        f.debug_struct("PeerIdentity").field("node", node).field("public", public).finish_non_exhaustive()
    }
}

/// Returns the secret of the packets that `sender` sends to `receiver`.
fn secret(derivation: &Hkdf<Sha256>, sender: &End<'_>, receiver: &End<'_>) -> Secret {
    let mut info = Vec::new();
    for End { node, public, address } in [sender, receiver] {
        let node = node.as_str().as_bytes();
        // Names have at most 253 bytes. All other parts have a fixed length.
        info.push(u8::try_from(node.len()).expect("a name has at most 253 bytes"));
        info.extend_from_slice(node);
        info.extend_from_slice(public.bytes());
        info.extend_from_slice(&octets(*address));
    }
    let mut bytes = [0; SECRET_BYTES];
    derivation.expand(&info, &mut bytes).expect("HKDF has output for 255 digests");
    Secret::new(&bytes).expect("a BFD secret has up to 20 bytes")
}

/// Returns the bytes of an address, of IPv4 addresses in the IPv4-mapped form (RFC 4291 §2.5.5.2).
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "192.0.2.1";
    const OTHER: &str = "192.0.2.2";

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn identity(node: &str, secret: u8) -> PeerIdentity {
        PeerIdentity::new(name(node), [secret; 32])
    }

    fn pair(local: &str, peer: &str) -> Pair {
        Pair { local: local.parse().unwrap(), peer: peer.parse().unwrap() }
    }

    fn key(of: &PeerIdentity, with: &PeerIdentity, pair: Pair) -> Key {
        of.session_key(&with.node, &with.public, pair).unwrap()
    }

    #[test]
    fn both_ends_agree_and_each_direction_has_a_secret_of_its_own() {
        let (a, b) = (identity("a", 1), identity("b", 2));
        let ours = key(&a, &b, pair(ONE, OTHER));
        let theirs = key(&b, &a, pair(OTHER, ONE));
        assert_eq!((&ours.transmit, &ours.receive), (&theirs.receive, &theirs.transmit));
        assert_ne!(ours.transmit, ours.receive);
        assert_eq!((ours.id, ours.algorithm), (theirs.id, theirs.algorithm));
    }

    #[test]
    fn names_keys_and_addresses_make_other_secrets() {
        let (a, b) = (identity("a", 1), identity("b", 2));
        let ours = key(&a, &b, pair(ONE, OTHER));
        let all = [
            key(&identity("c", 1), &b, pair(ONE, OTHER)),
            key(&a, &identity("c", 2), pair(ONE, OTHER)),
            key(&a, &identity("b", 3), pair(ONE, OTHER)),
            key(&identity("a", 3), &b, pair(ONE, OTHER)),
            key(&a, &b, pair(ONE, "192.0.2.3")),
            key(&a, &b, pair("192.0.2.3", OTHER)),
            key(&a, &b, pair("2001:db8::1", "2001:db8::2")),
        ];
        let secrets: Vec<_> =
            all.iter().chain([&ours]).flat_map(|key| [&key.transmit, &key.receive]).collect();
        for (at, secret) in secrets.iter().enumerate() {
            assert!(!secrets[..at].contains(secret), "{at}");
        }
        // The border between two names is a part of the derivation.
        let (ab, c) = (identity("ab", 1), identity("c", 2));
        let (a, bc) = (identity("a", 1), identity("bc", 2));
        assert_ne!(key(&ab, &c, pair(ONE, OTHER)), key(&a, &bc, pair(ONE, OTHER)));
    }

    /// A third node has the public keys of both nodes and a private key of its own.
    #[test]
    fn a_third_node_cannot_compute_the_key_under_any_name() {
        let (a, b) = (identity("a", 1), identity("b", 2));
        let (ours, theirs) = (key(&a, &b, pair(ONE, OTHER)), key(&b, &a, pair(OTHER, ONE)));
        for third in ["a", "b", "c"].map(|node| identity(node, 3)) {
            for with in [&a, &b] {
                for pair in [pair(ONE, OTHER), pair(OTHER, ONE)] {
                    let Key { transmit, receive, .. } = key(&third, with, pair);
                    for secret in [&ours.transmit, &ours.receive, &theirs.transmit, &theirs.receive] {
                        assert!(secret != &transmit && secret != &receive);
                    }
                }
            }
        }
    }

    /// Public keys of low order: 0, 1, and a point of order 8.
    #[test]
    fn a_public_key_with_a_known_result_is_refused() {
        let mut one = [0; 32];
        one[0] = 1;
        let order_8 = [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
            0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ];
        for bytes in [[0; 32], one, order_8] {
            let outcome = identity("a", 1).session_key(&name("b"), &PublicKey::new(bytes), pair(ONE, OTHER));
            assert_eq!(outcome, Err(WeakPublicKey));
        }
    }

    /// Agents of different versions compute the same key. The values are those of another implementation of both
    /// RFCs.
    #[test]
    fn the_derivation_is_the_same_in_every_version() {
        let (a, b) = (identity("a", 1), identity("b", 2));
        assert_eq!(a.public_key().to_string(), "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=");
        let key = key(&a, &b, pair(ONE, OTHER));
        let secret = |hex: &str| {
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            Secret::new(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(key.transmit, secret("901073cc918356179a3719a21679741c1386cf45"));
        assert_eq!(key.receive, secret("bde6eb092fa275272d28b0945efed892889ebdb7"));
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let shown = format!(
            "{:?} {:?}",
            identity("a", 7),
            key(&identity("a", 7), &identity("b", 2), pair(ONE, OTHER))
        );
        assert!(!shown.contains("7, 7") && shown.contains("Secret(…)"), "{shown}");
    }
}
