//! Names of addresses: reverse names (RFC 1035 §3.5, RFC 3596 §2.5) and addresses as one label.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of labels of a complete reverse name of an IPv6 address, without `ip6.arpa`.
const NIBBLES: usize = 32;

/// Returns the address of a complete reverse name, given by its labels; `None` for other names.
pub(super) fn address_of(labels: &[String]) -> Option<IpAddr> {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels[..] {
        [d, c, b, a, "in-addr", "arpa"] => {
            let octet = |text: &str| {
                let is_plain = text == "0" || !text.starts_with('0');
                text.parse::<u8>().ok().filter(|_| is_plain && !text.starts_with('+'))
            };
            Some(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?).into())
        }
        [ref nibbles @ .., "ip6", "arpa"] if nibbles.len() == NIBBLES => {
            let mut bits = 0_u128;
            for nibble in nibbles.iter().rev() {
                let digit = u8::from_str_radix(nibble, 16).ok().filter(|_| nibble.len() == 1)?;
                bits = bits << 4 | u128::from(digit);
            }
            Some(Ipv6Addr::from_bits(bits).into())
        }
        _ => None,
    }
}

/// Returns the reverse zone of an address on which a negative answer about it is based: that of its /24 or /64
/// network.
pub(super) fn zone_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles =
                address.octets().into_iter().take(8).rev().flat_map(|octet| [octet & 0xf, octet >> 4]);
            let labels: String = nibbles.map(|nibble| format!("{nibble:x}.")).collect();
            format!("{labels}ip6.arpa")
        }
    }
}

/// Returns an address as one label: `10-1-2-3`, `2001-db8--1`.
pub(super) fn label_of(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// Parses an address from one label, as returned by [`label_of`]; `None` if the label is another spelling of an
/// address, or none.
pub(super) fn parse_label(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse::<Ipv4Addr>().ok().map(IpAddr::from);
    let address = v4.or_else(|| label.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::from))?;
    (label_of(address) == label).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::dns::{DnsQuestion, RecordType};

    fn parsed(name: &str) -> Option<IpAddr> {
        address_of(&DnsQuestion::new(name, RecordType::Ptr).labels)
    }

    #[test]
    fn reverse_names_are_parsed_strictly() {
        assert_eq!(parsed("10.0.96.10.in-addr.arpa"), Some("10.96.0.10".parse().unwrap()));
        let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(parsed(v6), Some("2001:db8::1".parse().unwrap()));
        for other in
            ["0.96.10.in-addr.arpa", "01.0.96.10.in-addr.arpa", "256.0.96.10.in-addr.arpa", "1.ip6.arpa"]
        {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[test]
    fn labels_of_addresses_can_be_parsed_again() {
        for text in ["10.1.2.3", "2001:db8::1", "::1", "fd00:96::"] {
            let address = text.parse().unwrap();
            assert_eq!(parse_label(&label_of(address)), Some(address), "{text}");
        }
        assert_eq!(parse_label("10-1-2"), None);
        assert_eq!(zone_of("2001:db8::1".parse().unwrap()), "0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa");
    }
}
