//! What becomes of one packet, step by step, from what should be and from what the kernel holds.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{quantity::Port, service::Protocol};

/// Steps of one trace.
pub const STEPS_MAX: usize = 256;

/// The first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Packet {
    /// Where it comes from.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Where it goes.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port.
    pub port: Port,
}

/// What a node's kernel would do with a packet, as read back from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Traced {
    /// The steps, in order.
    #[schema(max_items = 256)]
    pub steps: Vec<TraceStep>,
    /// What becomes of it in the end, in the words of the desired state's trace, so that both can be compared.
    #[schema(max_length = 1024)]
    pub fate: String,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceStep {
    /// Where: a hook and chain, a virtual server, a listener.
    #[schema(max_length = 256)]
    pub place: String,
    /// The rule, element or entry that decides, as the tool of the kernel's part prints it.
    #[schema(max_length = 4096)]
    pub rule: String,
    /// What it leads to.
    #[schema(max_length = 1024)]
    pub result: String,
}
