//! Health check of a Service: protocol, timing and expected responses.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{name::Name, quantity::Port};

/// Maximum length of the expected text in a response, in bytes.
pub const EXPECT_BYTES_MAX: usize = 4096;
/// Maximum length of the datagram of a UDP check in bytes.
pub const SEND_BYTES_MAX: usize = 1024;
/// Maximum size of the CA certificates of a check in bytes of PEM.
pub const CA_BYTES_MAX: usize = 64 << 10;

/// Active health check of the endpoints of a Service.
///
/// Each endpoint is checked by the agent of its Node. Endpoints without a Node, or whose Node has no live agent,
/// are checked by up to three other nodes. A check only connects to the address of the endpoint, follows no
/// redirects, and reads a response of limited size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Protocol of the check, with the result that counts as success: `Tcp` (the connection is accepted),
    /// `Http` (the response has an expected status), `Https` (the same over TLS), `Grpc`
    /// (`grpc.health.v1.Health/Check` returns SERVING) or `Udp` (a datagram is answered).
    #[serde(rename = "type")]
    pub check_type: HealthCheckType,
    /// Port to check, from 1 to 65,535. Required if a Service port has a different transport protocol than
    /// the check, such as UDP for an HTTP check. Default: target port of each Service port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Time between two checks in milliseconds, from 100 to 3,600,000. Each check starts up to 10 % earlier, at
    /// random, so that checks are spread over time. Default: 5000.
    #[serde(default = "HealthCheck::interval_ms_default")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 5000)]
    pub interval_ms: u32,
    /// Time in milliseconds after which an unfinished check counts as a failure, from 10 to 60,000, at most
    /// `intervalMs`. Default: 2000.
    #[serde(default = "HealthCheck::timeout_ms_default")]
    #[schema(minimum = 10, maximum = 60_000, default = 2000)]
    pub timeout_ms: u32,
    /// Number of consecutive successes before an unhealthy endpoint becomes healthy, from 1 to 100. A new endpoint
    /// is in service before its first check. Default: 2.
    #[serde(default = "HealthCheck::rise_default")]
    #[schema(minimum = 1, maximum = 100, default = 2)]
    pub rise: u8,
    /// Number of consecutive failures before an endpoint becomes unhealthy, from 1 to 100. An unhealthy endpoint
    /// receives no new connections; its established ones follow `removalPolicy`. Default: 3.
    #[serde(default = "HealthCheck::fall_default")]
    #[schema(minimum = 1, maximum = 100, default = 3)]
    pub fall: u8,
    /// Time in milliseconds for which failures of a new endpoint are ignored, from 0 to 3,600,000. The time
    /// ends early at the first success. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 3_600_000, default = 0)]
    pub start_delay_ms: u32,
    /// Minimum share of healthy endpoints of a port in percent, from 0 to 100. If fewer are healthy, all
    /// endpoints receive connections, because so many failures more likely have a common cause outside the
    /// endpoints. Default: 0 (never).
    #[serde(default, skip_serializing_if = "is_none_percent")]
    #[schema(minimum = 0, maximum = 100, default = 0)]
    pub panic_threshold: u8,
    /// Time in seconds in which the weight of a recovered endpoint increases from a tenth to its full value, from
    /// 0 to 3600. Without effect on new endpoints, and with schedulers that ignore weights. Default: 0 (full
    /// weight at once).
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 3600, default = 0)]
    pub slow_start_seconds: u32,
    /// True if failed client connections also count as check failures. An endpoint that refuses `fall`
    /// consecutive connections within one interval becomes unhealthy at once, until checks succeed again.
    /// Only nodes in userspace mode observe client connections; nodes in other modes report a warning.
    /// Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub passive: bool,
    /// Request of the check. Only allowed with types `Http` and `Https`. Default: `GET /` with any status
    /// from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// TLS settings of the check. Only allowed with type `Https`, and with type `Grpc` if `grpc.tls` is true.
    /// Default: the certificate must be valid for `http.host` or the address of the endpoint, and signed by a
    /// CA that the machine of the agent trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsCheck>,
    /// Request of the check. Only allowed with type `Grpc`. Default: health of the whole server, without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// Datagrams of the check. Required with type `Udp` and not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpCheck>,
}

impl HealthCheck {
    const fn interval_ms_default() -> u32 {
        5000
    }
    const fn timeout_ms_default() -> u32 {
        2000
    }
    const fn rise_default() -> u8 {
        2
    }
    const fn fall_default() -> u8 {
        3
    }
}

// Serde determines the signatures.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_none_percent(number: &u8) -> bool {
    *number == 0
}

/// Protocol of a health check, with the result that counts as success: `Tcp` (the connection is accepted),
/// `Http` (the response has an expected status), `Https` (the same over TLS), `Grpc`
/// (`grpc.health.v1.Health/Check` returns SERVING) or `Udp` (a datagram is answered).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HealthCheckType {
    /// The endpoint accepts a TCP connection.
    Tcp,
    /// The HTTP response has an expected status.
    Http,
    /// The response over TLS has an expected status.
    Https,
    /// The gRPC health check (`grpc.health.v1.Health/Check`) returns SERVING.
    Grpc,
    /// The endpoint answers a datagram.
    Udp,
}

/// Request and expected response of an HTTP check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpCheck {
    /// HTTP method: `GET`, `HEAD` or `OPTIONS`. Default: `GET`.
    #[serde(default)]
    pub method: HttpMethod,
    /// Absolute path with optional query, at most 2048 bytes of printable ASCII without spaces, such as
    /// `/healthz`. Default: `/`.
    #[serde(default = "HttpCheck::path_default")]
    #[schema(default = "/", max_length = 2048)]
    pub path: String,
    /// Value of the `Host` header, such as `www.example.com`. The check connects to the address of the
    /// endpoint regardless of this value. Default: address and port of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// Status codes that count as success, each from 100 to 599. Redirects are not followed; their status
    /// counts. Default: 200 to 399.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub expect_status: BTreeSet<u16>,
    /// Text that the first 64 KiB of the response body must contain, from 1 to 4096 bytes. Not allowed with
    /// method `HEAD`. Default: any body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub expect_body: Option<String>,
}

impl HttpCheck {
    fn path_default() -> String {
        "/".to_owned()
    }
}

impl Default for HttpCheck {
    fn default() -> Self {
        Self {
            method: HttpMethod::Get,
            path: Self::path_default(),
            host: None,
            expect_status: BTreeSet::new(),
            expect_body: None,
        }
    }
}

/// HTTP method of a check: `GET`, `HEAD` or `OPTIONS`. Methods that may change data are not available.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// Check by a GET request.
    #[default]
    Get,
    /// Check by a HEAD request, whose response has no body.
    Head,
    /// Check by an OPTIONS request.
    Options,
}

/// TLS settings of a health check of type `Https`, or `Grpc` with TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsCheck {
    /// Server name for SNI and for the verification of the certificate. Default: `http.host`, or the address
    /// of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<Name>,
    /// Trusted CA certificates in PEM, at most 65,536 bytes. Not allowed with `insecureSkipVerify`. Default:
    /// the CA certificates that the machine of the agent trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub ca: Option<String>,
    /// True if the check accepts any certificate without verification. Default: false.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// Request of a gRPC health check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcCheck {
    /// Name of the gRPC service to check, from 1 to 255 bytes. Default: the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub service: Option<String>,
    /// True if the check uses TLS and verifies the certificate according to `healthCheck.tls`. Default: false
    /// (plaintext).
    #[serde(default)]
    pub tls: bool,
}

/// Datagram of a UDP check and the expected response. An ICMP error and a timeout count as failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UdpCheck {
    /// Payload of the datagram, from 1 to 1024 bytes.
    #[schema(min_length = 1, max_length = 1024)]
    pub send: String,
    /// Text that the response must contain, from 1 to 4096 bytes. Default: any response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub expect: Option<String>,
}
