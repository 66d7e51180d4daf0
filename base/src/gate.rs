//! Ability of a node to serve a Service or an address, with the reason if it cannot.

/// Ability of this node to serve a Service or to announce a load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// The node can serve: every needed kernel object is programmed and verified.
    Open,
    /// The node cannot serve. The text describes the reason to operators.
    Closed(String),
}
