//! Gate of a Service or an address on this node.

/// Ability of this node to serve a Service or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// Everything needed is programmed and verified.
    Open,
    /// Not able to serve, with the reason.
    Closed(String),
}
