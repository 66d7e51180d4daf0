//! Monitor of the machine's interfaces: subscribes to events, lists the interfaces, then applies the events.
//!
//! The events have an `rtnetlink` connection of their own. On a shared connection, an event caused by the
//! request of another process could have the same sequence number as a listing, and would be lost. The lists
//! are read on the blocking socket, which repeats a dump if another process changed the interfaces meanwhile.

use std::{future::poll_fn, io, pin::Pin, task::Poll, time::Duration};

use futures::channel::mpsc::UnboundedReceiver;
use rtnetlink::{
    MulticastGroup, new_multicast_connection,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{RouteNetlinkMessage, address::AddressMessage, link::LinkMessage},
    proto::Connection,
    sys::SocketAddr,
};
use tokio::sync::watch;
use tracing::warn;

use super::{Links, parse};
use crate::netlink::{
    route,
    socket::{Netlink, Protocol},
    uapi::NLM_F_DUMP,
};

/// Multicast groups to subscribe to.
const GROUPS: [MulticastGroup; 3] =
    [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
/// Maximum number of reads to empty the event socket before the interfaces are listed again. Usually far
/// fewer are needed.
const DISCARDS_MAX: usize = 1024;
/// Delay before a failed listing of the interfaces is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Receiver of the rtnetlink messages of a connection, each with the socket address of its sender.
type Events = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// Monitor that keeps a snapshot of the interfaces of one network namespace up to date.
pub struct Follower {
    /// Connection that reads the event socket. Must be polled, which only [`Self::run`] does.
    connection: Connection<RouteNetlinkMessage>,
    events: Events,
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
        let (connection, events) = subscribe()?;
        let mut lists = Netlink::open(Protocol::Route)?;
        // Listed after the subscription, so that no event is missed.
        let links = list(&mut lists)?;
        let (shown, receiver) = watch::channel(links.clone());
        Ok((Self { connection, events, lists, links, shown }, receiver))
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
        loop {
            let is_different = tokio::select! {
                // The connection is polled only after all events that it has read were applied.
                biased;
                Ok((message, sender)) = self.events.recv() => self.apply(message, sender),
                () = &mut self.connection => {
                    self.subscribe_again().await;
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

    /// Applies an event. Returns true if the interfaces have changed, or `None` if events were lost.
    fn apply(&mut self, message: NetlinkMessage<RouteNetlinkMessage>, sender: SocketAddr) -> Option<bool> {
        // Port 0 is the kernel; messages of other senders are ignored.
        if sender.port_number() != 0 {
            return Some(false);
        }
        match message.payload {
            NetlinkPayload::InnerMessage(message) => {
                Some(parse::change(message).is_some_and(|change| self.links.apply(change)))
            }
            // The socket buffer overflowed (`ENOBUFS`).
            NetlinkPayload::Overrun(_) => None,
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) | NetlinkPayload::Noop | _ => Some(false),
        }
    }

    /// Opens the event socket again after it has failed, in the network namespace of the calling thread.
    async fn subscribe_again(&mut self) {
        warn!("cannot read interface events; listing the interfaces again");
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            match subscribe() {
                Ok(subscribed) => {
                    (self.connection, self.events) = subscribed;
                    return;
                }
                Err(error) => warn!(%error, "cannot subscribe to interface events; retrying"),
            }
        }
    }

    /// Lists the interfaces again. Returns true if they have changed.
    async fn list_again(&mut self) -> bool {
        // Queued events are older than the list; the events that reverted them may be lost.
        self.discard().await;
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
    async fn discard(&mut self) {
        for _ in 0..DISCARDS_MAX {
            // The connection reads until the socket is empty or the task has used up its budget, which is
            // renewed here. Without an event, the socket is empty.
            tokio::task::yield_now().await;
            poll_fn(|context| Poll::Ready(Pin::new(&mut self.connection).poll(context).is_ready())).await;
            if self.events.try_recv().is_err() {
                return;
            }
            while self.events.try_recv().is_ok() {}
        }
    }
}

fn subscribe() -> io::Result<(Connection<RouteNetlinkMessage>, Events)> {
    // Requests are not sent on this connection, so its handle is dropped.
    let (connection, _, events) = new_multicast_connection(&GROUPS)?;
    Ok((connection, events))
}

fn list(socket: &mut Netlink) -> io::Result<Links> {
    let mut links = Links::default();
    for request in [
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        RouteNetlinkMessage::GetAddress(AddressMessage::default()),
    ] {
        let request = route::request(&request, NLM_F_DUMP);
        let changes = socket.dump(&request, Vec::new, |changes, answer| {
            match route::parse(answer) {
                Ok(message) => changes.extend(parse::change(message)),
                // As in events, so that one unusual interface does not hide the others.
                Err(error) => warn!(%error, "ignored an interface or address that cannot be parsed"),
            }
            Ok(())
        });
        for change in changes? {
            links.apply(change);
        }
    }
    Ok(links)
}
