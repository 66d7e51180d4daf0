//! Ability of a node to serve a Service or an address, with the reason if it cannot.

/// Ability of this node to serve a Service or a load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// State in which every needed kernel object is programmed and verified.
    Open,
    /// State in which the node cannot serve, with the reason as text for operators.
    Closed(String),
}
