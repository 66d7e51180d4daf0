//! BfdProfile: parameters of BFD sessions with routers (RFC 5880).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Minimum of BFD transmit and receive intervals, in milliseconds. An agent can sustain this interval in
/// software even on a busy machine.
pub const BFD_INTERVAL_MS_MIN: u32 = 10;
/// Maximum of BFD transmit and receive intervals, in milliseconds.
pub const BFD_INTERVAL_MS_MAX: u32 = 60_000;
/// Default BFD transmit and receive interval, in milliseconds.
pub const BFD_INTERVAL_MS_DEFAULT: u32 = 300;
/// Default BFD detection multiplier: the number of missed packets after which a session goes down.
pub const BFD_MULTIPLIER_DEFAULT: u8 = 3;
/// Default minimum TTL of received packets in multihop BFD sessions.
pub const BFD_MINIMUM_TTL_DEFAULT: u8 = 254;

/// Desired state of a BfdProfile: timers and options of the BFD sessions (RFC 5880) of the BgpPeers that
/// refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BfdProfileSpec {
    /// Required Min RX Interval in milliseconds: minimum time between received packets, from 10 to 60,000.
    /// Default: 300.
    #[serde(default = "interval")]
    #[schema(minimum = 10, maximum = 60_000, default = 300)]
    pub receive_interval: u32,
    /// Desired Min TX Interval in milliseconds: minimum time between sent packets, from 10 to 60,000. The
    /// larger of this value and the receive interval of the router applies. Default: 300.
    #[serde(default = "interval")]
    #[schema(minimum = 10, maximum = 60_000, default = 300)]
    pub transmit_interval: u32,
    /// Number of consecutive missing packets after which the path is considered down, from 1 to 255. Default:
    /// 3.
    #[serde(default = "multiplier")]
    #[schema(minimum = 1, maximum = 255, default = 3)]
    pub detect_multiplier: u8,
    /// True if the agent sends no BFD packets before it receives one from the router (passive role). Default:
    /// false.
    #[serde(default)]
    pub passive_mode: bool,
    /// Minimum TTL of received packets in multihop sessions (RFC 5883), from 1 to 254. Packets with a lower
    /// TTL are dropped. Default: 254.
    #[serde(default = "minimum_ttl")]
    #[schema(minimum = 1, maximum = 254, default = 254)]
    pub minimum_ttl: u8,
}

const fn interval() -> u32 {
    BFD_INTERVAL_MS_DEFAULT
}

const fn multiplier() -> u8 {
    BFD_MULTIPLIER_DEFAULT
}

const fn minimum_ttl() -> u8 {
    BFD_MINIMUM_TTL_DEFAULT
}

impl Default for BfdProfileSpec {
    fn default() -> Self {
        Self {
            receive_interval: BFD_INTERVAL_MS_DEFAULT,
            transmit_interval: BFD_INTERVAL_MS_DEFAULT,
            detect_multiplier: BFD_MULTIPLIER_DEFAULT,
            passive_mode: false,
            minimum_ttl: BFD_MINIMUM_TTL_DEFAULT,
        }
    }
}
