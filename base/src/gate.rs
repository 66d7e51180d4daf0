//! State of a node for one Service or load balancer address: ready to serve, or not ready with the reason.

/// Readiness of this node to serve a Service or to announce a load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// The node can serve: every needed kernel object is programmed and verified.
    Open,
    /// The node cannot serve. Contains the reason as text for operators.
    Closed(String),
}
