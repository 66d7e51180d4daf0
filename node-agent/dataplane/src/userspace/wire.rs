//! PROXY protocol (HAProxy's specification, versions 1 and 2): a header that conveys the client address to
//! the target.

use std::net::{IpAddr, SocketAddr};

use model::kinds::service::{Protocol, ProxyProtocol};

/// First bytes of a version 2 header (PROXY protocol §2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Byte that encodes version 2 and the command PROXY.
const VERSION_2_PROXY: u8 = 0x21;
const FAMILY_INET: u8 = 0x10;
const FAMILY_INET6: u8 = 0x20;
const TRANSPORT_STREAM: u8 = 0x1;
const TRANSPORT_DATAGRAM: u8 = 0x2;

/// Encodes the header for a client and the address that it connected to. Both must be of the same family.
#[must_use]
pub fn header(
    version: ProxyProtocol,
    protocol: Protocol,
    client: SocketAddr,
    destination: SocketAddr,
) -> Vec<u8> {
    match version {
        ProxyProtocol::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (client.ip(), destination.ip());
            format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), destination.port()).into_bytes()
        }
        ProxyProtocol::V2 => {
            let mut addresses = Vec::new();
            for address in [client.ip(), destination.ip()] {
                match address {
                    IpAddr::V4(v4) => addresses.extend(v4.octets()),
                    IpAddr::V6(v6) => addresses.extend(v6.octets()),
                }
            }
            addresses.extend(client.port().to_be_bytes());
            addresses.extend(destination.port().to_be_bytes());
            let family = if client.is_ipv4() { FAMILY_INET } else { FAMILY_INET6 };
            let transport = match protocol {
                Protocol::Tcp => TRANSPORT_STREAM,
                Protocol::Udp | Protocol::Sctp => TRANSPORT_DATAGRAM,
            };
            let length =
                u16::try_from(addresses.len()).expect("two addresses and two ports are 36 bytes at most");
            let mut header = SIGNATURE.to_vec();
            header.extend([VERSION_2_PROXY, family | transport]);
            header.extend(length.to_be_bytes());
            header.extend(addresses);
            header
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_specification() {
        let [client, destination] = ["192.0.2.2:40000", "10.96.0.1:80"].map(|text| text.parse().unwrap());
        let v1 = header(ProxyProtocol::V1, Protocol::Tcp, client, destination);
        assert_eq!(String::from_utf8(v1).unwrap(), "PROXY TCP4 192.0.2.2 10.96.0.1 40000 80\r\n");
        let v2 = header(ProxyProtocol::V2, Protocol::Tcp, client, destination);
        assert_eq!(v2[..12], SIGNATURE);
        assert_eq!(v2[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 2, 10, 96, 0, 1, 0x9c, 0x40, 0, 80]);
        let [client, destination] = ["[2001:db8::2]:1", "[fd96::1]:2"].map(|text| text.parse().unwrap());
        let v2 = header(ProxyProtocol::V2, Protocol::Udp, client, destination);
        assert_eq!((v2[13], v2[15], v2.len()), (0x22, 36, 16 + 36));
    }
}
