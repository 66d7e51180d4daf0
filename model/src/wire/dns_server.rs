//! Reports of DNS servers about themselves, and the list of them that control servers return.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::dns_names::DnsNamesReport;
use crate::primitives::{
    name::Name,
    quantity::{Revision, Timestamp},
};

/// Interval at which a DNS server reports, in seconds.
pub const DNS_REPORT_INTERVAL_SECS: u64 = 5;
/// Maximum length of the version of a DNS server, in bytes.
pub const DNS_VERSION_BYTES_MAX: usize = 64;
/// Maximum length of the identifier of a process in a report, in bytes.
pub const DNS_INSTANCE_BYTES_MAX: usize = 64;
/// Maximum number of zones in a report.
pub const DNS_ZONES_REPORTED_MAX: usize = 100;
/// Maximum number of upstream servers in a report.
pub const DNS_UPSTREAMS_REPORTED_MAX: usize = 32;
/// Maximum number of busiest names in a report.
pub const DNS_NAMES_REPORTED_MAX: usize = 20;
/// Maximum length of a name in a report, in bytes: a name of 255 bytes in which every byte is written as `\DDD`.
pub const DNS_TEXT_BYTES_MAX: usize = 1024;

/// Report of a DNS server about itself. Replaces the previous report of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsServerReport {
    /// Version of the program, at most 64 bytes.
    #[schema(max_length = 64, example = "0.2.0")]
    pub version: String,
    /// Random identifier of the process, at most 64 bytes. Two processes that report with one name are recognized by it.
    /// Default: empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 64, example = "9f2c61d40a7be835")]
    pub instance: String,
    /// True while a control server sends the state to the DNS server.
    pub connected: bool,
    /// Revision of the state from which questions are answered. Absent before the first state; all questions fail then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Zones that the server answers with authority, the cluster zone first, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100, example = json!(["cluster.local", "example.org"]))]
    pub zones: Vec<String>,
    /// Upstream servers in the order in which they are tried, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub upstreams: Vec<DnsUpstream>,
    /// Responses of upstream servers in the cache.
    #[serde(default)]
    pub cache: DnsCacheSize,
    /// Numbers of questions in the last two minutes with the busiest names and those with the most failures, at most 20.
    #[serde(default)]
    pub names: DnsNamesReport,
}

/// Upstream server of a DNS server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsUpstream {
    /// Server as in `--upstream`, at most 1024 bytes.
    #[schema(max_length = 1024, example = "192.0.2.1:53")]
    pub server: String,
    /// Result of the last questions to the server.
    pub state: DnsUpstreamState,
}

/// State of an upstream server: `ok`, `failing` or `looping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum DnsUpstreamState {
    /// The server responded to the last question, or has not been asked yet.
    Ok,
    /// The server did not respond to the last question. After three such questions in a row, others are asked first.
    Failing,
    /// The server forwards questions back to the DNS server, and is not used.
    Looping,
}

/// Number of cached responses of upstream servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsCacheSize {
    /// Number of cached responses with records.
    pub positive: u64,
    /// Number of cached responses without records.
    pub negative: u64,
    /// Responses that were removed because the cache was full, since the start of the server.
    pub evicted: u64,
}

/// DNS servers that have reported to a control server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsServerList {
    /// Servers in the order of their names. A server that has been silent for an hour is left out.
    pub servers: Vec<DnsServerStatus>,
}

/// DNS server with its last report and its problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsServerStatus {
    /// Name of the server (`--name`).
    pub name: Name,
    /// Time of the last report to this control server.
    pub reported_at: Timestamp,
    /// Problems of the server, as sentences for people. Empty while it works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["upstream server 192.0.2.1:53 does not respond"]))]
    pub problems: Vec<String>,
    /// Last report of the server.
    pub report: DnsServerReport,
}
