//! Codec of prefixes in UPDATE messages (RFC 4271 §4.3, RFC 4760 §5).

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::reader::Reader;
use crate::family::Family;

/// Error: the field does not consist of valid prefixes of its family (RFC 7606 §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NlriError;

/// Decodes a field that contains prefixes of one family. Bits after the prefix length have no meaning (RFC
/// 4271 §4.3) and are cleared.
pub(super) fn read(bytes: &[u8], family: Family) -> Result<Vec<IpNet>, NlriError> {
    let mut reader = Reader::new(bytes);
    let mut prefixes = Vec::new();
    while !reader.is_empty() {
        prefixes.push(prefix(&mut reader, family).ok_or(NlriError)?);
    }
    Ok(prefixes)
}

fn prefix(reader: &mut Reader<'_>, family: Family) -> Option<IpNet> {
    let bits = reader.u8()?;
    let bytes = reader.bytes(usize::from(bits).div_ceil(8))?;
    let net = match family {
        Family::Ipv4Unicast => IpNet::V4(Ipv4Net::new(Ipv4Addr::from(padded::<4>(bytes)?), bits).ok()?),
        Family::Ipv6Unicast => IpNet::V6(Ipv6Net::new(Ipv6Addr::from(padded::<16>(bytes)?), bits).ok()?),
    };
    Some(net.trunc())
}

/// Returns the bytes, padded with zeros to the length of an address; `None` if they are longer.
fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut address = [0; N];
    address.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(address)
}

/// Encodes a prefix as its length in bits and its significant bytes.
pub(super) fn write(out: &mut Vec<u8>, prefix: &IpNet) {
    let bits = prefix.prefix_len();
    out.push(bits);
    let used = usize::from(bits).div_ceil(8);
    match prefix.trunc() {
        IpNet::V4(net) => out.extend(net.addr().octets().iter().take(used)),
        IpNet::V6(net) => out.extend(net.addr().octets().iter().take(used)),
    }
}

/// Returns the number of routes of an unsupported family, assuming the usual prefix format. A field in a
/// different format counts as one route.
pub(super) fn count_foreign(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut count = 0;
    while !reader.is_empty() {
        let Some(bits) = reader.u8() else { return 1 };
        if reader.bytes(usize::from(bits).div_ceil(8)).is_none() {
            return 1;
        }
        count += 1;
    }
    count
}
