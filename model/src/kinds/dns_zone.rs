//! DnsZone: a zone of the DNS with static records, in which Services of some namespaces may have host names.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::dns_key::{DnsKey, DnsOperation},
    primitives::{domain_name::DomainName, name::Namespace},
};

/// Maximum number of records of a DnsZone: names with a type.
pub const DNS_RECORDS_MAX: usize = 1000;
/// Maximum number of values of one record.
pub const DNS_VALUES_MAX: usize = 32;
/// Maximum length of a text value in bytes.
pub const DNS_TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of namespaces that may have names in a DnsZone.
pub const DNS_NAMESPACES_MAX: usize = 256;
/// Maximum number of networks whose secondary name servers may transfer a DnsZone.
pub const DNS_TRANSFER_NETWORKS_MAX: usize = 64;
/// Maximum number of secondary name servers that are notified of changes of a DnsZone.
pub const DNS_NOTIFIED_MAX: usize = 16;
/// Maximum time in seconds for which resolvers may be told to cache a record or its absence: one day.
pub const DNS_TTL_MAX: u32 = 86_400;
/// Default time in seconds for which resolvers may cache a record.
pub const DNS_TTL_DEFAULT: u32 = 30;
/// Default time in seconds for which resolvers may cache that a record does not exist.
pub const DNS_NEGATIVE_TTL_DEFAULT: u32 = 5;
/// Port of DNS servers (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;
/// Label of the name server of a zone, below the zone.
pub const NAME_SERVER_LABEL: &str = "ns";

/// Desired state of a DnsZone: the zone that `tidegate-dns` answers, its static records, and the namespaces whose
/// Services may have host names in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsZoneSpec {
    /// Name of the zone, such as `example.org`. Only one DnsZone may have it. A name belongs to the DnsZone with the
    /// longest zone that contains it.
    #[schema(example = "example.org")]
    pub zone: DomainName,
    /// Time in seconds for which resolvers may cache records, from 0 to 86,400. Default: 30.
    #[serde(default = "ttl")]
    #[schema(minimum = 0, maximum = 86_400, default = 30)]
    pub ttl: u32,
    /// Time in seconds for which resolvers may cache that a record does not exist, from 0 to 86,400. Also applies to
    /// host names without an address in service. Default: 5.
    #[serde(default = "negative_ttl")]
    #[schema(minimum = 0, maximum = 86_400, default = 5)]
    pub negative_ttl: u32,
    /// Namespaces whose Services (`spec.hostnames`), Gateways and routes may have host names in the zone, at most 256.
    /// Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(max_items = 256)]
    pub allowed_namespaces: BTreeSet<Namespace>,
    /// Clients that get answers from the zone. Default: External.
    #[serde(default, skip_serializing_if = "DnsVisibility::is_external")]
    pub visibility: DnsVisibility,
    /// Transfer of the zone to secondary name servers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<DnsTransfer>,
    /// Keys of programs that transfer the zone or change its static records (TSIG, RFC 8945), at most 16. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub keys: Vec<DnsKey>,
    /// Static records, at most 1000, each with a different name or type. A name with a static `A`, `AAAA` or `CNAME`
    /// record is not available to Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub records: Vec<DnsRecord>,
}

const fn ttl() -> u32 {
    DNS_TTL_DEFAULT
}

const fn negative_ttl() -> u32 {
    DNS_NEGATIVE_TTL_DEFAULT
}

impl DnsZoneSpec {
    /// Returns true if a namespace may have names in the zone.
    #[must_use]
    pub fn allows(&self, namespace: &Namespace) -> bool {
        self.allowed_namespaces.contains(namespace)
    }

    /// Returns true if a key of the zone permits an operation.
    #[must_use]
    pub fn permits(&self, key: &str, operation: DnsOperation) -> bool {
        self.keys.iter().any(|known| known.name.as_str() == key && known.operations.contains(&operation))
    }

    /// Returns the spec without the secrets of its keys, for responses.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        Self { keys: self.keys.iter().map(DnsKey::without_secret).collect(), ..self.clone() }
    }

    /// Returns the name of the name server of the zone.
    #[must_use]
    pub fn name_server(&self) -> String {
        format!("{NAME_SERVER_LABEL}.{}", self.zone)
    }
}

/// Clients that get answers from a DnsZone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum DnsVisibility {
    /// All clients of the DNS servers.
    #[default]
    External,
    /// Clients of the cluster only: those in the client networks of the DNS servers (`--client-network`).
    Cluster,
}

impl DnsVisibility {
    /// True if all clients get answers.
    #[must_use]
    pub const fn is_external(&self) -> bool {
        match self {
            Self::External => true,
            Self::Cluster => false,
        }
    }
}

/// Transfer of a zone to secondary name servers (RFC 5936): those in the networks of `allow`, and those with a key that
/// permits `Transfer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsTransfer {
    /// Networks of the secondary name servers that may transfer the zone over TCP without a key, at most 64, such as
    /// `192.0.2.53/32`. Required unless a key permits `Transfer`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 64)]
    pub allow: Vec<IpNet>,
    /// Secondary name servers that each DNS server notifies of changes (RFC 1996), at most 16: addresses with or
    /// without a port, such as `192.0.2.53` or `[2001:db8::53]:5353`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub notify: Vec<String>,
    /// Name of the key in `keys` with which notifications are signed (TSIG), which must permit `Transfer`. Default: no
    /// signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DomainName>, example = "secondary.example.org")]
    pub notify_key: Option<DomainName>,
}

impl DnsTransfer {
    /// Returns the addresses of the name servers that are notified. Entries that cannot be parsed, which a newer
    /// server may have admitted, are left out.
    pub fn notified(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.notify.iter().filter_map(|text| parse_server(text))
    }
}

/// Parses the address of a DNS server with or without a port. Returns `None` if it is malformed or has port 0.
#[must_use]
pub fn parse_server(text: &str) -> Option<SocketAddr> {
    let bare = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DNS_PORT));
    text.parse().ok().or_else(bare).filter(|server: &SocketAddr| server.port() != 0)
}

/// Static records of one name and type in a DnsZone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnsRecord {
    /// Full name, in the zone or equal to it, such as `www.example.org`. Wildcard names are rejected.
    pub name: DomainName,
    /// Type of the values.
    #[serde(rename = "type")]
    pub record_type: DnsRecordType,
    /// Time in seconds for which resolvers may cache the records, from 0 to 86,400. Default: `ttl` of the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 86_400)]
    pub ttl: Option<u32>,
    /// Values, from 1 to 32, in the form of the type: an address (`A`, `AAAA`), a name (`CNAME`, exactly one), a text
    /// of 1 to 1024 printable ASCII characters (`TXT`), `PRIORITY WEIGHT PORT NAME` (`SRV`) or `PREFERENCE NAME`
    /// (`MX`).
    #[schema(min_items = 1, max_items = 32)]
    pub values: Vec<String>,
}

/// Type of static records: `A`, `AAAA`, `CNAME`, `TXT`, `SRV` or `MX`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema, strum::Display,
)]
pub enum DnsRecordType {
    /// IPv4 address (RFC 1035).
    A,
    /// IPv6 address (RFC 3596).
    #[serde(rename = "AAAA")]
    #[strum(serialize = "AAAA")]
    Aaaa,
    /// Name of which the record is an alias (RFC 1035). Excludes other records at the name.
    #[serde(rename = "CNAME")]
    #[strum(serialize = "CNAME")]
    Cname,
    /// Text (RFC 1035).
    #[serde(rename = "TXT")]
    #[strum(serialize = "TXT")]
    Txt,
    /// Host and port of a service (RFC 2782).
    #[serde(rename = "SRV")]
    #[strum(serialize = "SRV")]
    Srv,
    /// Mail server (RFC 1035).
    #[serde(rename = "MX")]
    #[strum(serialize = "MX")]
    Mx,
}

impl DnsRecordType {
    /// True if a name with a static record of this type is not available to Services: an address or an alias.
    #[must_use]
    pub const fn excludes_hostnames(self) -> bool {
        match self {
            Self::A | Self::Aaaa | Self::Cname => true,
            Self::Txt | Self::Srv | Self::Mx => false,
        }
    }
}

/// Parsed value of a static record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsRecordValue {
    /// IPv4 address.
    A(Ipv4Addr),
    /// IPv6 address.
    Aaaa(Ipv6Addr),
    /// Target of an alias.
    Cname(DomainName),
    /// Text.
    Txt(String),
    /// Host and port of a service.
    Srv {
        /// Preference among the records, lowest first.
        priority: u16,
        /// Share of the clients among the records with the same priority.
        weight: u16,
        /// Port on the target.
        port: u16,
        /// Name of the host.
        target: DomainName,
    },
    /// Mail server.
    Mx {
        /// Preference among the records, lowest first.
        preference: u16,
        /// Name of the mail server.
        exchange: DomainName,
    },
}

impl DnsRecordValue {
    /// Parses a value of a record type.
    ///
    /// # Errors
    /// Returns the expected form if the value does not have it.
    pub fn parse(record_type: DnsRecordType, text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u16>().ok();
        match (record_type, &words[..]) {
            (DnsRecordType::A, _) => text
                .parse()
                .map(Self::A)
                .map_err(|_| format!("must be an IPv4 address such as 192.0.2.1, not `{text}`")),
            (DnsRecordType::Aaaa, _) => text
                .parse()
                .map(Self::Aaaa)
                .map_err(|_| format!("must be an IPv6 address such as 2001:db8::1, not `{text}`")),
            (DnsRecordType::Cname, _) => name(text).map(Self::Cname),
            (DnsRecordType::Txt, _) => {
                let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
                if is_printable && (1..=DNS_TEXT_BYTES_MAX).contains(&text.len()) {
                    return Ok(Self::Txt(text.to_owned()));
                }
                Err(format!("must have 1 to {DNS_TEXT_BYTES_MAX} printable ASCII characters"))
            }
            (DnsRecordType::Srv, [priority, weight, port, target]) => {
                let (Some(priority), Some(weight), Some(port)) =
                    (number(priority), number(weight), number(port))
                else {
                    return Err(
                        "must begin with three numbers up to 65535: priority, weight and port".to_owned()
                    );
                };
                Ok(Self::Srv { priority, weight, port, target: name(target)? })
            }
            (DnsRecordType::Srv, _) => {
                Err("must be `PRIORITY WEIGHT PORT NAME`, such as `0 100 443 www.example.org`".to_owned())
            }
            (DnsRecordType::Mx, [preference, exchange]) => {
                let preference =
                    number(preference).ok_or("must begin with a preference from 0 to 65535".to_owned())?;
                Ok(Self::Mx { preference, exchange: name(exchange)? })
            }
            (DnsRecordType::Mx, _) => {
                Err("must be `PREFERENCE NAME`, such as `10 mail.example.org`".to_owned())
            }
        }
    }
}

/// Parses the name in a value, with or without the final dot.
fn name(text: &str) -> Result<DomainName, String> {
    DomainName::parse(text.strip_suffix('.').unwrap_or(text)).map_err(|error| error.to_string())
}
