//! Events of the kernel that may concern the routes of the workload network. An event only triggers a comparison; it carries
//! no data.

use std::{io, sync::Arc, time::Duration};

use futures::StreamExt as _;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::AddressScope,
    link::{LinkAttribute, LinkMessage},
    route::{RouteMessage, RouteProtocol},
};
use rtnetlink::{MulticastGroup, new_multicast_connection, packet_core::NetlinkPayload};
use tokio::sync::Notify;
use tracing::warn;

use crate::{attach::names, routes::PROTOCOL};

/// Multicast groups of links, addresses and routes.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];
/// Delay before the event socket is opened again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Subscribes to the events of the network namespace of the calling thread and starts a task that notifies `changed`, until
/// the runtime ends. Must be called inside a runtime.
///
/// # Errors
/// Returns an error if the event socket cannot be opened.
pub fn start(changed: Arc<Notify>) -> io::Result<()> {
    let mut subscribed = new_multicast_connection(&GROUPS)?;
    tokio::spawn(async move {
        loop {
            let (connection, _, mut events) = subscribed;
            tokio::select! {
                () = connection => {}
                () = async {
                    while let Some((message, _)) = events.next().await {
                        if concerns(&message.payload) {
                            changed.notify_one();
                        }
                    }
                } => {}
            }
            warn!("cannot read events of routes; comparing all routes");
            subscribed = loop {
                tokio::time::sleep(RETRY_INTERVAL).await;
                match new_multicast_connection(&GROUPS) {
                    Ok(subscribed) => break subscribed,
                    Err(error) => warn!(%error, "cannot subscribe to events of routes; retrying"),
                }
            };
            changed.notify_one();
        }
    });
    Ok(())
}

/// Returns true if the routes of the agent may have changed, or those that they need.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn concerns(payload: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
    match payload {
        NetlinkPayload::InnerMessage(message) => match message {
            RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => is_own(route),
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => !is_workload(link),
            // Link-local addresses, which each interface of a workload has, lead to no node.
            RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
                address.header.scope != AddressScope::Link
            }
            _ => false,
        },
        // Events were lost.
        NetlinkPayload::Overrun(_) => true,
        _ => false,
    }
}

fn is_own(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::Other(PROTOCOL)
}

/// Returns true for the interface of a workload, whose routes the engine adds and the kernel removes.
fn is_workload(link: &LinkMessage) -> bool {
    link.attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkAttribute::IfName(name) if names::is_host_interface(name)))
}
