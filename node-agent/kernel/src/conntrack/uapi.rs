//! Constants of the kernel's ctnetlink interface (`linux/netfilter/nfnetlink_conntrack.h`), with the
//! kernel's names where the kernel defines them.

#![allow(missing_docs, reason = "the kernel's names, documented by the kernel")]

pub const GET: u16 = 1;
pub const DELETE: u16 = 2;
pub const CTA_TUPLE_ORIG: u16 = 1;
pub const CTA_TUPLE_REPLY: u16 = 2;
pub const CTA_STATUS: u16 = 3;
pub const CTA_PROTOINFO: u16 = 4;
pub const CTA_COUNTERS: [u16; 2] = [9, 10];
pub const CTA_COUNTERS_PACKETS: u16 = 1;
pub const CTA_COUNTERS_BYTES: u16 = 2;
pub const CTA_PROTOINFO_TCP: u16 = 1;
pub const CTA_PROTOINFO_SCTP: u16 = 3;
/// State attribute within `CTA_PROTOINFO_TCP` and `CTA_PROTOINFO_SCTP`.
pub const CTA_PROTOINFO_STATE: u16 = 1;
pub const CTA_ID: u16 = 12;
pub const CTA_ZONE: u16 = 18;
pub const CTA_FILTER: u16 = 25;
pub const CTA_FILTER_ORIG_FLAGS: u16 = 1;
pub const CTA_TUPLE_IP: u16 = 1;
pub const CTA_TUPLE_PROTO: u16 = 2;
pub const CTA_IP_V4_SRC: u16 = 1;
pub const CTA_IP_V4_DST: u16 = 2;
pub const CTA_IP_V6_SRC: u16 = 3;
pub const CTA_IP_V6_DST: u16 = 4;
pub const CTA_PROTO_NUM: u16 = 1;
pub const CTA_PROTO_SRC_PORT: u16 = 2;
pub const CTA_PROTO_DST_PORT: u16 = 3;
/// Status bit of connections with packets in both directions (`IPS_SEEN_REPLY`).
pub const STATUS_SEEN_REPLY: u32 = 1 << 1;
/// Status bit of connections with destination NAT (`IPS_DST_NAT`).
pub const STATUS_DESTINATION_TRANSLATED: u32 = 1 << 5;
/// TCP state in which the client has sent SYN segments only (`TCP_CONNTRACK_SYN_SENT`).
pub const TCP_STATE_SYN_SENT: u8 = 1;
/// TCP states in which at least one direction is open: `TCP_CONNTRACK_ESTABLISHED`, `…_FIN_WAIT`,
/// `…_CLOSE_WAIT`.
pub const TCP_STATES_OPEN: std::ops::RangeInclusive<u8> = 3..=5;
/// State of an established SCTP association (`SCTP_CONNTRACK_ESTABLISHED`).
pub const SCTP_STATE_ESTABLISHED: u8 = 4;
/// Flags of a dump filter (`CTA_FILTER`), each of which selects one field of the original tuple for
/// comparison. This flag selects the destination address.
pub const FILTER_DESTINATION: u32 = 1 << 1;
pub const FILTER_PROTOCOL: u32 = 1 << 3;
pub const FILTER_DESTINATION_PORT: u32 = 1 << 5;
