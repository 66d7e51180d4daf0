//! TCP MD5 signature keys (RFC 2385) of an address or a network.

use std::{io, net::IpAddr, os::fd::BorrowedFd};

use ipnet::IpNet;
use nix::{errno::Errno, libc};

/// Maximum key length in bytes (`TCP_MD5SIG_MAXKEYLEN`, `linux/tcp.h`).
pub const MD5_KEY_BYTES_MAX: usize = 80;
/// Flag that makes the key apply to a network instead of an address (`TCP_MD5SIG_FLAG_PREFIX`,
/// `linux/tcp.h`).
const FLAG_PREFIX: u8 = 1;
/// Size of `sockaddr_storage` in the kernel, in bytes.
const ADDRESS_BYTES: usize = 128;

/// TCP MD5 signature key (RFC 2385) for connections with the peers in a network.
#[derive(Debug, Clone, Copy)]
pub struct TcpMd5<'a> {
    /// Network of the peers, or a single address.
    pub network: &'a IpNet,
    /// Secret key of at most [`MD5_KEY_BYTES_MAX`] bytes; an empty one removes the key of the network.
    pub key: &'a [u8],
}

/// Argument of the socket option (`struct tcp_md5sig`, `linux/tcp.h`).
#[repr(C, align(8))]
struct Signature {
    address: [u8; ADDRESS_BYTES],
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; MD5_KEY_BYTES_MAX],
}

impl TcpMd5<'_> {
    /// Sets or removes the key on a socket.
    ///
    /// # Errors
    /// Returns an I/O error if the key is too long, or if the kernel rejects it, for example because it does
    /// not support MD5 signatures. The error is `ENOENT` if there is no key to remove.
    #[allow(unsafe_code, reason = "no library in use has this option")]
    pub fn set(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let Self { network, key: bytes } = self;
        let mut key = [0; MD5_KEY_BYTES_MAX];
        key.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?.copy_from_slice(bytes);
        let is_whole = network.prefix_len() == network.max_prefix_len();
        let signature = Signature {
            address: storage(network.network()),
            flags: if is_whole { 0 } else { FLAG_PREFIX },
            prefix_length: if is_whole { 0 } else { network.prefix_len() },
            key_length: u16::try_from(bytes.len()).map_err(|_| Errno::EINVAL)?,
            interface: 0,
            key,
        };
        // Older kernels support only the option without prefixes.
        let option = if is_whole { libc::TCP_MD5SIG } else { libc::TCP_MD5SIG_EXT };
        // SAFETY: the value is a plain `struct tcp_md5sig` without padding, as the test of its layout shows.
        unsafe { super::set(socket, libc::IPPROTO_TCP, option, &signature) }
    }
}

/// Returns an address as `sockaddr_in` or `sockaddr_in6`, with port 0, padded to the size of
/// `sockaddr_storage`.
fn storage(address: IpAddr) -> [u8; ADDRESS_BYTES] {
    let mut storage = [0; ADDRESS_BYTES];
    let (family, at) = match address {
        // Offset after the port.
        IpAddr::V4(_) => (libc::AF_INET, 4),
        // Offset after the port and the flow information.
        IpAddr::V6(_) => (libc::AF_INET6, 8),
    };
    let family = u16::try_from(family).expect("address families are small numbers");
    storage[..2].copy_from_slice(&family.to_ne_bytes());
    match address {
        IpAddr::V4(v4) => storage[at..at + 4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => storage[at..at + 16].copy_from_slice(&v6.octets()),
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(size_of::<Signature>(), 216);
        assert_eq!(ADDRESS_BYTES + 1 + 1 + 2 + 4 + MD5_KEY_BYTES_MAX, 216, "no padding");
        assert_eq!(std::mem::offset_of!(Signature, key), 136);
        let v4 = storage("192.0.2.1".parse().unwrap());
        assert_eq!(v4[2..8], [0, 0, 192, 0, 2, 1]);
        let v6 = storage("2001:db8::1".parse().unwrap());
        assert_eq!((v6[8], v6[9], v6[23]), (0x20, 0x01, 1));
    }
}
