//! The health check of a Service: what is spoken to its endpoints, how often, and what the answers lead to.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{name::Name, quantity::Port};

/// Longest text that an answer is searched for, in bytes.
pub const EXPECT_BYTES_MAX: usize = 4096;
/// Longest datagram of a UDP check, in bytes.
pub const SEND_BYTES_MAX: usize = 1024;
/// Longest certificate authority of a check, in bytes of PEM.
pub const CA_BYTES_MAX: usize = 64 << 10;

/// How the agents find out whether an endpoint works.
///
/// An endpoint is checked by its own Node or, where it has none with an agent, by a few Nodes that all agree upon. A check
/// connects to the endpoint's own address and no other, follows no redirect, and reads a bounded answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// What is spoken to the endpoint.
    #[serde(rename = "type")]
    pub check_type: HealthCheckType,
    /// The port to check; the target port when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Time between checks, in milliseconds, 100–3,600,000; each one comes up to a tenth of it earlier, so that checks spread.
    #[serde(default = "HealthCheck::interval_ms_default")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 5000)]
    pub interval_ms: u32,
    /// Time an answer may take, in milliseconds, 10–60,000 and not more than the interval.
    #[serde(default = "HealthCheck::timeout_ms_default")]
    #[schema(minimum = 10, maximum = 60_000, default = 2000)]
    pub timeout_ms: u32,
    /// Good answers in a row before an endpoint counts as healthy, 1–100.
    #[serde(default = "HealthCheck::rise_default")]
    #[schema(minimum = 1, maximum = 100, default = 2)]
    pub rise: u8,
    /// Bad answers in a row before an endpoint counts as unhealthy, 1–100.
    #[serde(default = "HealthCheck::fall_default")]
    #[schema(minimum = 1, maximum = 100, default = 3)]
    pub fall: u8,
    /// Time after an endpoint appeared in which bad answers do not count, in milliseconds, 0–3,600,000; the first good
    /// answer ends it.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 3_600_000, default = 0)]
    pub start_delay_ms: u32,
    /// While fewer than this share of a port's endpoints are healthy, in percent, 0–100, all of them are used: something
    /// else than the endpoints is then the likelier fault. 0: never.
    #[serde(default, skip_serializing_if = "is_none_percent")]
    #[schema(minimum = 0, maximum = 100, default = 0)]
    pub panic_threshold: u8,
    /// Time in which the share of an endpoint that became healthy again grows to its whole, in seconds, 0–3600.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 3600, default = 0)]
    pub slow_start_seconds: u32,
    /// Count what clients' connections meet as well: an endpoint that refuses `fall` connections in a row within one interval
    /// is unhealthy at once, until the checks find it healthy again. Seen by the relay of userspace mode on the nodes that check
    /// the endpoint; Nodes in other modes warn that they see none of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub passive: bool,
    /// The request of HTTP and HTTPS checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// The TLS of HTTPS checks, and of gRPC checks over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsCheck>,
    /// The request of gRPC checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// The datagrams of UDP checks; UDP checks need it.
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

// The signatures are those that serde calls.
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

/// What a health check speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HealthCheckType {
    /// A connection is accepted.
    Tcp,
    /// A request is answered with an expected status.
    Http,
    /// The same over TLS.
    Https,
    /// The gRPC health protocol (`grpc.health.v1.Health/Check`) answers SERVING.
    Grpc,
    /// A datagram is answered.
    Udp,
}

/// The request of an HTTP check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpCheck {
    /// The method.
    #[serde(default)]
    pub method: HttpMethod,
    /// Absolute path, with query if wanted.
    #[serde(default = "HttpCheck::path_default")]
    #[schema(default = "/", max_length = 2048)]
    pub path: String,
    /// The `Host` header; the endpoint's address when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// Status codes that count as good; 200–399 when left out. Redirects are answers, they are never followed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub expect_status: BTreeSet<u16>,
    /// What the first 64 KiB of the body must hold.
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

/// The method of an HTTP check; none that may change anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// The resource.
    #[default]
    Get,
    /// Its headers only.
    Head,
    /// What may be done with it.
    Options,
}

/// The TLS of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsCheck {
    /// The name that is asked for (SNI) and that the certificate must have; `http.host` when left out, and else the
    /// endpoint's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<Name>,
    /// The certificates that are trusted, in PEM, instead of those of the agent's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub ca: Option<String>,
    /// Take any certificate.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// The request of a gRPC check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcCheck {
    /// The service that is asked about; the server as a whole when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub service: Option<String>,
    /// Speak TLS.
    #[serde(default)]
    pub tls: bool,
}

/// The datagrams of a UDP check. An ICMP error is a bad answer, and so is silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UdpCheck {
    /// What is sent.
    #[schema(min_length = 1, max_length = 1024)]
    pub send: String,
    /// What the answer must hold; any answer is good when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub expect: Option<String>,
}
