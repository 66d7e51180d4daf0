//! Monitor of the machine's interfaces: subscribes to events, lists the interfaces, then applies the events.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::{Links, parse};
use crate::netlink::{
    socket::{Netlink, Protocol},
    uapi::{NLM_F_DUMP, NLM_F_REQUEST},
    wire::{Attributes, Message, Messages},
};

/// Multicast groups to subscribe to: `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR` and `RTNLGRP_IPV6_IFADDR`.
const GROUPS: [u32; 3] = [1, 5, 9];
/// Size of the receive buffer in bytes, above the maximum size of a datagram from the kernel.
const DATAGRAM_BYTES: usize = 128 << 10;
/// Maximum number of queued datagrams to discard before a new list, far more than fit into the socket buffer.
const DATAGRAMS_WAITING_MAX: usize = 65_536;
/// Delay before a failed listing of the interfaces is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Monitor that keeps a snapshot of the interfaces of one network namespace up to date.
pub struct Follower {
    events: TokioSocket,
    lists: Netlink,
    links: Links,
    shown: watch::Sender<Links>,
}

impl Follower {
    /// Opens the sockets in the network namespace of the calling thread and lists the interfaces. The
    /// receiver holds the list and is notified of changes while [`Self::run`] runs. Must be called inside a
    /// runtime.
    ///
    /// # Errors
    /// Returns an I/O error if a socket or the list cannot be obtained.
    pub fn open() -> io::Result<(Self, watch::Receiver<Links>)> {
        let mut events = TokioSocket::new(NETLINK_ROUTE)?;
        events.socket_mut().bind_auto()?;
        for group in GROUPS {
            events.socket_mut().add_membership(group)?;
        }
        let mut lists = Netlink::open(Protocol::Route)?;
        // Listed after the subscription, so that no event is missed.
        let links = list(&mut lists)?;
        let (shown, receiver) = watch::channel(links.clone());
        Ok((Self { events, lists, links, shown }, receiver))
    }

    /// Applies events until all receivers are dropped. Lists the interfaces again if events were lost.
    pub async fn run(mut self) {
        let shown = self.shown.clone();
        tokio::select! {
            () = shown.closed() => {}
            () = self.run_forever() => {}
        }
    }

    async fn run_forever(&mut self) {
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        loop {
            datagram.clear();
            let is_different = match self.events.recv_from(&mut datagram).await {
                // Port 0 is the kernel; messages of other senders are ignored.
                Ok(sender) if sender.port_number() != 0 => Some(false),
                Ok(_) => self.apply(&datagram),
                // The socket buffer overflowed and events are lost.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => None,
                Err(error) => {
                    warn!(%error, "cannot read interface events; listing the interfaces again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    None
                }
            };
            let is_different = match is_different {
                Some(is_different) => is_different,
                None => self.list_again().await,
            };
            if is_different {
                self.shown.send_replace(self.links.clone());
            }
        }
    }

    /// Applies the events in a datagram. Returns true if the interfaces have changed, or `None` if the
    /// datagram is malformed.
    fn apply(&mut self, datagram: &[u8]) -> Option<bool> {
        let mut is_different = false;
        for message in Messages::new(datagram) {
            match message.and_then(|message| parse::parse(&message)) {
                Ok(Some(change)) => is_different |= self.links.apply(change),
                Ok(None) => {}
                Err(error) => {
                    debug!(%error, "cannot parse an interface event");
                    return None;
                }
            }
        }
        Some(is_different)
    }

    /// Lists the interfaces again. Returns true if they have changed.
    async fn list_again(&mut self) -> bool {
        // Queued events are older than the list; the events that reverted them may be lost.
        self.discard();
        loop {
            match list(&mut self.lists) {
                Ok(links) => {
                    let is_different = links != *self.shown.borrow();
                    self.links = links;
                    return is_different;
                }
                Err(error) => {
                    warn!(%error, "cannot list the interfaces; retrying");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Discards queued events, which the next list makes obsolete.
    fn discard(&self) {
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        for _ in 0..DATAGRAMS_WAITING_MAX {
            datagram.clear();
            match self.events.socket_ref().recv(&mut datagram, 0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

fn list(socket: &mut Netlink) -> io::Result<Links> {
    let mut links = Links::default();
    for (kind, header_bytes) in
        [(parse::RTM_GETLINK, parse::LINK_HEADER_BYTES), (parse::RTM_GETADDR, parse::ADDRESS_HEADER_BYTES)]
    {
        let request = Message {
            kind,
            flags: NLM_F_REQUEST | NLM_F_DUMP,
            header: vec![0; header_bytes],
            attributes: Attributes::default(),
        };
        let changes = socket.dump(&request, Vec::new, |changes, message| {
            changes.extend(parse::parse(message)?);
            Ok(())
        });
        for change in changes? {
            links.apply(change);
        }
    }
    Ok(links)
}
