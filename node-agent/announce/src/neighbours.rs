//! Reads the MAC addresses of other nodes from the kernel's neighbor table. This is done only after another
//! announcer of an address was observed.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::{
    links::Mac,
    netlink::{
        route,
        socket::{Netlink, Protocol},
        uapi::NLM_F_DUMP,
    },
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage},
};
use tracing::debug;

use crate::ownership::io_traits::Neighbours;

/// Age at which the cached table is read again, so that a burst of conflicts costs one read.
const AGE_MAX: Duration = Duration::from_millis(200);

/// Kernel neighbor table of the network namespace in which it was opened.
pub struct KernelNeighbours {
    socket: Netlink,
    read: Option<(Instant, BTreeMap<IpAddr, String>)>,
}

impl KernelNeighbours {
    /// Opens a netlink socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an I/O error if the socket cannot be created.
    pub fn open() -> std::io::Result<Self> {
        Ok(Self { socket: Netlink::open(Protocol::Route)?, read: None })
    }
}

impl Neighbours for KernelNeighbours {
    fn macs(&mut self) -> BTreeMap<IpAddr, String> {
        if let Some((at, macs)) = &self.read
            && at.elapsed() < AGE_MAX
        {
            return macs.clone();
        }
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let request = route::request(&request, NLM_F_DUMP);
        let macs = self.socket.dump(&request, BTreeMap::new, |macs, answer| {
            macs.extend(neighbour(&route::parse(answer)?));
            Ok(())
        });
        let macs = macs.unwrap_or_else(|error| {
            debug!(%error, "cannot read the neighbor table");
            BTreeMap::new()
        });
        self.read = Some((Instant::now(), macs.clone()));
        macs
    }
}

/// Converts a neighbor message to the IP address and the MAC address of the neighbor. Returns `None` if
/// either is missing, or the message is about another subject.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn neighbour(message: &RouteNetlinkMessage) -> Option<(IpAddr, String)> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac);
            }
            _ => {}
        }
    }
    address.zip(mac.map(|mac| mac.to_string()))
}
