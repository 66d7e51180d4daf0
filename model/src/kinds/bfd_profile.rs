//! The `BfdProfile`: how paths to peers are watched by BFD (RFC 5880).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Shortest interval, in milliseconds: what software keeps to on a busy machine.
pub const BFD_INTERVAL_MS_MIN: u32 = 10;
/// Longest interval, in milliseconds.
pub const BFD_INTERVAL_MS_MAX: u32 = 60_000;
/// The intervals when none are given, in milliseconds.
pub const BFD_INTERVAL_MS_DEFAULT: u32 = 300;
/// The multiplier when none is given.
pub const BFD_MULTIPLIER_DEFAULT: u8 = 3;
/// The lowest hop limit of packets over several hops when none is given.
pub const BFD_MINIMUM_TTL_DEFAULT: u8 = 254;

/// What a `BfdProfile` should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BfdProfileSpec {
    /// Shortest time between two packets that we can receive, in milliseconds.
    #[serde(default = "interval")]
    #[schema(minimum = 10, maximum = 60_000, default = 300)]
    pub receive_interval: u32,
    /// Shortest time between two packets that we send, in milliseconds.
    #[serde(default = "interval")]
    #[schema(minimum = 10, maximum = 60_000, default = 300)]
    pub transmit_interval: u32,
    /// How many missing packets mean that the path has failed.
    #[serde(default = "multiplier")]
    #[schema(minimum = 1, maximum = 255, default = 3)]
    pub detect_multiplier: u8,
    /// Send nothing before the peer was heard.
    #[serde(default)]
    pub passive_mode: bool,
    /// The lowest hop limit with which packets of peers over several hops (RFC 5883) are accepted.
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
