//! Questions, records and answers, independent of their encoding in DNS messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Question for the records of one type at one name (RFC 1035 §4.1.2), of class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuestion {
    /// Labels of the name from left to right, in lower case. Empty for the root.
    pub labels: Vec<String>,
    /// Type of the wanted records.
    pub record_type: RecordType,
}

impl DnsQuestion {
    /// Creates a question from a name in text form, with or without the final dot.
    #[must_use]
    pub fn new(name: &str, record_type: RecordType) -> Self {
        let labels = name.split('.').filter(|label| !label.is_empty());
        Self { labels: labels.map(str::to_ascii_lowercase).collect(), record_type }
    }
}

/// Type of DNS records (RFC 1035 §3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordType {
    /// IPv4 address.
    A,
    /// IPv6 address (RFC 3596).
    Aaaa,
    /// Canonical name of an alias.
    Cname,
    /// Name server of a zone.
    Ns,
    /// Name that belongs to an address.
    Ptr,
    /// Start of authority of a zone.
    Soa,
    /// Port and host of a service (RFC 2782).
    Srv,
    /// Text.
    Txt,
    /// Mail server.
    Mx,
    /// All types; answered by RFC 8482.
    Any,
    /// Type of which no zone has records.
    Other,
}

/// DNS record of class IN.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Name of the record in lower case, without the final dot.
    pub owner: String,
    /// Time in seconds for which resolvers may cache the record.
    pub ttl: u32,
    /// Type and value of the record.
    pub data: RecordData,
}

/// Type and value of a DNS record. Names are in lower case, without the final dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordData {
    /// IPv4 address.
    A(Ipv4Addr),
    /// IPv6 address.
    Aaaa(Ipv6Addr),
    /// Canonical name.
    Cname(String),
    /// Name of a name server.
    Ns(String),
    /// Name that belongs to an address.
    Ptr(String),
    /// Host and port of a service.
    Srv {
        /// Preference among the records, lowest first. Always 0 in the cluster zone.
        priority: u16,
        /// Share of the clients among the records with the same priority.
        weight: u16,
        /// Port of the service on the target.
        port: u16,
        /// Name of the host.
        target: String,
    },
    /// Start of authority.
    Soa {
        /// Primary name server of the zone.
        primary: String,
        /// Mailbox of the person in charge, as a name.
        mailbox: String,
        /// Version of the zone: for the cluster zone the revision of the state modulo 2^32, for the zone of a DnsZone
        /// the number of [`Zone::with_external_serial`](super::Zone::with_external_serial).
        serial: u32,
        /// Time in seconds for which resolvers may cache that a record does not exist (RFC 2308).
        minimum: u32,
    },
    /// Mail server.
    Mx {
        /// Preference among the mail servers, lowest first.
        preference: u16,
        /// Name of the mail server.
        exchange: String,
    },
    /// Text; sent in strings of at most 255 bytes.
    Txt(String),
    /// Answer to a question for all types (RFC 8482).
    AnyRefused,
}

/// Result code of an answer (RFC 1035 §4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseCode {
    /// The name exists. The answer is empty if it has no records of the type.
    NoError,
    /// The name does not exist, and no name below it.
    NxDomain,
}

/// Authoritative answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Result code.
    pub code: ResponseCode,
    /// Records of the answer section.
    pub answers: Vec<Record>,
    /// Records of the authority section: the start of authority if the answer is negative.
    pub authority: Vec<Record>,
    /// Records of the additional section: the addresses of SRV targets and name servers.
    pub additional: Vec<Record>,
    /// Name outside of the zone at which an alias in `answers` ends. A resolver must look up its records.
    pub chase: Option<String>,
}

/// Result of a question to the cluster zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The name is in the cluster zone, in a reverse zone of the cluster or in the zone of a DnsZone.
    Own(Answer),
    /// The name is outside of all zones; another server may know it.
    Foreign,
    /// The name is in no zone that the client may see.
    Refused,
    /// The name is the host name of a Service, and it is not known yet which addresses are announced.
    Unknown,
}

/// Words for the types of records.
const TYPE_WORDS: [(RecordType, &str); 10] = [
    (RecordType::A, "A"),
    (RecordType::Aaaa, "AAAA"),
    (RecordType::Cname, "CNAME"),
    (RecordType::Ns, "NS"),
    (RecordType::Ptr, "PTR"),
    (RecordType::Soa, "SOA"),
    (RecordType::Srv, "SRV"),
    (RecordType::Txt, "TXT"),
    (RecordType::Mx, "MX"),
    (RecordType::Any, "ANY"),
];

impl RecordType {
    /// Returns the type with a name, in any case of letters, such as `AAAA`; `None` for other types.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let found = TYPE_WORDS.into_iter().find(|(_, known)| known.eq_ignore_ascii_case(word));
        found.map(|(record_type, _)| record_type)
    }

    /// Name of the type, such as `AAAA`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        TYPE_WORDS.into_iter().find(|(known, _)| *known == self).map_or("OTHER", |(_, word)| word)
    }
}

impl RecordData {
    /// Returns the address of an address record.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        if let Self::A(address) = self {
            Some(IpAddr::V4(*address))
        } else if let Self::Aaaa(address) = self {
            Some(IpAddr::V6(*address))
        } else {
            None
        }
    }

    /// Returns type and value in the presentation format (RFC 1035 §5.1). Names are complete and have no final dot. The
    /// times of secondary servers are left out of a start of authority.
    #[must_use]
    pub fn to_presentation(&self) -> (&'static str, String) {
        match self {
            Self::A(address) => ("A", address.to_string()),
            Self::Aaaa(address) => ("AAAA", address.to_string()),
            Self::Cname(name) => ("CNAME", name.clone()),
            Self::Ns(name) => ("NS", name.clone()),
            Self::Ptr(name) => ("PTR", name.clone()),
            Self::Srv { priority, weight, port, target } => {
                ("SRV", format!("{priority} {weight} {port} {target}"))
            }
            Self::Soa { primary, mailbox, serial, minimum } => {
                ("SOA", format!("{primary} {mailbox} {serial} {minimum}"))
            }
            Self::Mx { preference, exchange } => ("MX", format!("{preference} {exchange}")),
            Self::Txt(text) => ("TXT", format!("{text:?}")),
            Self::AnyRefused => ("HINFO", "\"RFC8482\"".to_owned()),
        }
    }
}
