//! Route table in MRT format (RFC 6396 §4.3), the bulk import format of some daemons.

use std::net::Ipv4Addr;

const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;

/// Builds an MRT table with a host route to each of the addresses, originated by the AS `asn`.
pub(super) fn table(addresses: impl Iterator<Item = Ipv4Addr>, asn: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let collector = [192, 0, 2, 254];
    // The collector, no view name, and one peer: type "4-octet AS, IPv4", identifier, address, AS.
    let peers = [&collector[..], &[0, 0, 0, 1, 2], &collector, &collector, &asn.to_be_bytes()].concat();
    record(&mut file, PEER_INDEX_TABLE, &peers);
    let attributes = [
        // ORIGIN: IGP.
        &[0x40, 1, 1, 0][..],
        // AS_PATH: empty.
        &[0x40, 2, 0],
        // NEXT_HOP: self.
        &[0x40, 3, 4, 0, 0, 0, 0],
    ]
    .concat();
    for (sequence, address) in (0_u32..).zip(addresses) {
        let length = u16::try_from(attributes.len()).unwrap_or(u16::MAX).to_be_bytes();
        let entry = [
            &sequence.to_be_bytes()[..],
            &[32],
            &address.octets(),
            // One entry, of the first peer, with timestamp 0.
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &length,
            &attributes,
        ];
        record(&mut file, RIB_IPV4_UNICAST, &entry.concat());
    }
    file
}

fn record(file: &mut Vec<u8>, subtype: u16, body: &[u8]) {
    file.extend([0; 4]);
    file.extend(TABLE_DUMP_V2.to_be_bytes());
    file.extend(subtype.to_be_bytes());
    file.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    file.extend(body);
}
