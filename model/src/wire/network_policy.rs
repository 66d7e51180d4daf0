//! Negotiation of the frames of network policy between agents and control servers.

/// Header of the request for a feed by which an agent declares that it understands the frames of network policy. Older
/// agents reject these frames, and older control servers ignore the header.
pub const NETWORK_POLICY_HEADER: &str = "tidegate-network-policy";
/// Value of [`NETWORK_POLICY_HEADER`] of an agent whose state at `resume` includes network policy.
pub const NETWORK_POLICY_KNOWN: &str = "known";
/// Value of [`NETWORK_POLICY_HEADER`] of an agent whose state does not include network policy, so that it needs a complete
/// state.
pub const NETWORK_POLICY_NEW: &str = "new";
