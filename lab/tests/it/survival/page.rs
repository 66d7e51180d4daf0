//! Page with the results: each fault, and the connections that survived it.

use std::{fmt::Write as _, path::Path};

use super::flows::Losses;

/// Fault of the announcing node, or change at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    AgentKilled,
    AgentTerminated,
    AgentPaused,
    NodeCut,
    NodeCutWithoutControl,
    Drain,
    Move,
    MoveToEndpoints,
    EndpointAdded,
    EndpointDrained,
    NodeCutAndEndpointsChanged,
}

impl Fault {
    pub(super) const ALL: [Self; 11] = [
        Self::AgentKilled,
        Self::AgentTerminated,
        Self::AgentPaused,
        Self::NodeCut,
        Self::NodeCutWithoutControl,
        Self::Drain,
        Self::Move,
        Self::MoveToEndpoints,
        Self::EndpointAdded,
        Self::EndpointDrained,
        Self::NodeCutAndEndpointsChanged,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::AgentKilled => "The agent of the announcing node is killed",
            Self::AgentTerminated => "The agent of the announcing node is terminated and hands over",
            Self::AgentPaused => {
                "The agent of the announcing node is paused, and continues after another has taken over"
            }
            Self::NodeCut => "The announcing node is cut off, and its agent is killed",
            Self::NodeCutWithoutControl => "The same while the control server is away",
            Self::Drain => "The announcing node is drained",
            Self::Move => "The address is moved by `tidegate move`",
            Self::MoveToEndpoints => "The address is moved to a node with an endpoint, and back",
            Self::EndpointAdded => "An endpoint is added on a third node while the address moves",
            Self::EndpointDrained => "An endpoint is drained while the address moves",
            Self::NodeCutAndEndpointsChanged => {
                "The announcing node is cut off, an endpoint is added, and another node with an endpoint is lost (its own connections are not counted)"
            }
        }
    }
}

/// Result of a fault.
pub(super) struct Row {
    pub(super) fault: Fault,
    pub(super) losses: Losses,
    pub(super) of_plain: Losses,
}

const HEAD: &str = "\
<!-- Written by `UPDATE_GOLDEN=1 cargo test -p lab --test it survival::`; the test fails when it differs. -->

# Survival of connections

Established TCP connections through a load balancer address that is announced by ARP and NDP, with whole agents in network
namespaces. The Service has [`connections.survive: Always`](../explanation/surviving-connections.md); the last column is a
Service without it, with the same endpoints and in the same run. Each fault meets 128 connections to the former Service that
were opened just before, and 64 that live through all faults. Half of them are idle and half are busy. In one half the client
sends the first segment after the fault, in the other half the server.

| fault | IPv4, client first | IPv4, server first | IPv6, client first | IPv6, server first | without it |
|---|---|---|---|---|---|
";

/// Compares the page with the results, or writes it if `UPDATE_GOLDEN` is set.
pub(super) fn check(rows: &[Row]) {
    let mut page = HEAD.to_owned();
    for Row { fault, losses, of_plain } in rows {
        let cell = |is_v4, is_client_first| match losses.get(&(is_v4, is_client_first)) {
            Some((1.., 0)) => "survive",
            Some(_) | None => "**some end**",
        };
        let cells =
            [(true, true), (true, false), (false, true), (false, false)].map(|(v4, first)| cell(v4, first));
        let plain = if of_plain.values().any(|(_, lost)| *lost > 0) { "some end" } else { "survive" };
        let _ = writeln!(page, "| {} | {} | {plain} |", fault.words(), cells.join(" | "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/surviving-connections.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(current, page, "UPDATE_GOLDEN=1 writes the page");
}
