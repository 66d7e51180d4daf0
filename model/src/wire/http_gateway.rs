//! Reports of gateways about themselves, and the list of them that control servers return. A gateway is a process of
//! `tidegate-gateway`; the object Gateway describes listeners that such processes serve.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    http_object_key::HttpObjectKey,
    name::Name,
    quantity::{Revision, Timestamp},
};

/// Interval at which a gateway reports, in seconds.
pub const GATEWAY_REPORT_INTERVAL_SECS: u64 = 5;
/// Maximum length of the version of a gateway, in bytes.
pub const GATEWAY_VERSION_BYTES_MAX: usize = 64;
/// Maximum number of Gateways that a report names as served.
pub const GATEWAYS_SERVED_MAX: usize = 1_000;
/// Maximum number of sockets in a report.
pub const GATEWAY_SOCKETS_MAX: usize = 1_000;
/// Maximum length of the error of a socket, in bytes.
pub const GATEWAY_ERROR_BYTES_MAX: usize = 256;
/// Maximum number of Certificates that a report names as missing.
pub const GATEWAY_CERTIFICATES_MISSING_MAX: usize = 100;
/// Maximum number of status codes in a report: all codes from 100 to 599.
pub const GATEWAY_CODES_MAX: usize = 500;

/// Report of a gateway about itself. Replaces the previous report of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGatewayReport {
    /// Version of the program, at most 64 bytes.
    #[schema(max_length = 64, example = "0.2.0")]
    pub version: String,
    /// Start time of the process (RFC 3339, UTC). Of two processes with one name, the one that started later reports.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// True in the last report of a process that stops. The gateway is removed from the list.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopping: bool,
    /// True while a control server sends the state to the gateway.
    pub connected: bool,
    /// Revision of the state from which requests are decided. Absent before the first state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Gateways that the process serves (`--serve`), as `namespace/name`, at most 1,000. Empty if it serves all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["shop/edge"]))]
    pub serves: Vec<HttpObjectKey>,
    /// Listening sockets that are open or could not be opened, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub sockets: Vec<GatewaySocket>,
    /// Number of Certificates of listeners that are loaded with their private keys.
    #[serde(default)]
    pub certificates: usize,
    /// Certificates of listeners whose private keys are not loaded, as `namespace/name`, at most 100. Connections that need
    /// one of them are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 100, example = json!(["shop/www"]))]
    pub certificates_missing: Vec<HttpObjectKey>,
    /// Number of open connections of clients.
    #[serde(default)]
    pub connections: u64,
    /// Requests of about the last minute by status code.
    #[serde(default)]
    pub requests: GatewayRequests,
}

/// Listening socket of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySocket {
    /// Address and port of the socket.
    #[schema(value_type = String, example = "0.0.0.0:443")]
    pub address: SocketAddr,
    /// Reason for which the socket could not be opened, at most 256 bytes. Absent if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, example = "Address already in use (os error 98)")]
    pub error: Option<String>,
}

/// Numbers of requests of a gateway in a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRequests {
    /// Length of the time, in seconds.
    pub seconds: u64,
    /// Numbers of requests by the status codes of their responses, at most 500.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 500)]
    pub codes: Vec<GatewayCodeCount>,
}

/// Number of requests with one status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayCodeCount {
    /// Status code of the responses.
    #[schema(minimum = 100, maximum = 599, example = 200)]
    pub code: u16,
    /// Number of requests with the code.
    pub count: u64,
}

/// Gateways that have reported to a control server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGatewayList {
    /// Gateways in the order of their names. A gateway that has been silent for an hour is left out.
    pub gateways: Vec<HttpGatewayStatus>,
}

/// Gateway with its last report and its problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGatewayStatus {
    /// Name of the gateway (`--name`).
    pub name: Name,
    /// Time of the last report to this control server.
    pub reported_at: Timestamp,
    /// Problems of the gateway, as sentences for people. Empty while it works.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["cannot listen on 0.0.0.0:80: Address already in use"]))]
    pub problems: Vec<String>,
    /// Last report of the gateway.
    pub report: HttpGatewayReport,
}

// Serde determines the signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl GatewayRequests {
    /// Returns the number of requests whose status codes are in a range.
    #[must_use]
    pub fn count(&self, codes: impl std::ops::RangeBounds<u16>) -> u64 {
        self.codes.iter().filter(|one| codes.contains(&one.code)).map(|one| one.count).sum()
    }
}
