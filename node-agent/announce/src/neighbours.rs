//! MAC addresses of peers from the kernel's neighbor table, read only when another announcer is observed.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::netlink::{
    socket::{Netlink, Protocol},
    uapi::{NLM_F_DUMP, NLM_F_REQUEST},
    wire::{Attributes, MalformedMessage, Message, ReceivedMessage},
};
use tracing::debug;

use crate::ownership::io_traits::Neighbours;

const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// Size in bytes of `struct ndmsg` (`linux/neighbour.h`), the header of a neighbor table message.
const HEADER_BYTES: usize = 12;
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
        let request = Message {
            kind: RTM_GETNEIGH,
            flags: NLM_F_REQUEST | NLM_F_DUMP,
            header: vec![0; HEADER_BYTES],
            attributes: Attributes::default(),
        };
        let macs = self.socket.dump(&request, BTreeMap::new, |macs, answer| {
            macs.extend(neighbour(answer)?);
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

fn neighbour(answer: &ReceivedMessage<'_>) -> Result<Option<(IpAddr, String)>, MalformedMessage> {
    if answer.kind != RTM_NEWNEIGH {
        return Ok(None);
    }
    let (mut address, mut mac) = (None, None);
    for attribute in answer.attributes_behind(HEADER_BYTES) {
        let attribute = attribute?;
        match attribute.kind {
            NDA_DST => address = ip(attribute.value),
            NDA_LLADDR if attribute.value.len() == 6 => mac = Some(text(attribute.value)),
            _ => {}
        }
    }
    Ok(address.zip(mac))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn text(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}
