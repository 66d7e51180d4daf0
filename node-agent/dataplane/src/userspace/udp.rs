//! UDP: one flow per client, each with its own task and socket. A flow ends after its idle timeout, when its
//! target is removed, or when no target accepts it; the client's next datagram starts a new flow. A removed
//! target may still respond to the last request, and undelivered datagrams go to another target.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::AsRawFd as _,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use model::{kinds::service::Protocol, primitives::net::IpFamily};
use nix::{
    libc,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recv, recvmsg, sendmsg},
};
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{OwnedSemaphorePermit, mpsc},
    time::{Instant, interval, sleep, timeout},
};

use super::{
    origin, receive_buffer,
    relay::{Assignment, Relay, count},
    tcp::CLOSING_GRACE,
    wire,
};

/// Maximum number of queued datagrams of one flow. Further ones are dropped, as by a full socket buffer.
const QUEUE_MAX: usize = 64;
/// Time for which a flow waits for the response to a request sent just before the target was removed.
const LAST_ANSWER_TIME: Duration = Duration::from_secs(1);
/// Maximum number of targets tried for a flow that no target accepts.
const TRIES_MAX: usize = 8;

/// Datagram received by a listener.
struct Arrival {
    client: SocketAddr,
    /// Local address to which the client sent the datagram; responses must be sent from it.
    local: LocalAddress,
    datagram: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LocalAddress {
    ip: IpAddr,
    /// Interface index (scope id), required for link-local addresses.
    interface: u32,
}

type Flows = BTreeMap<(SocketAddr, LocalAddress), mpsc::Sender<Vec<u8>>>;

/// Receives datagrams and passes them to the flow of their client, until the listener is closed. Starts a
/// flow for a new client.
pub(super) async fn receive(relay: Arc<Relay>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut closing = pin!(async {
        relay.closing.cancelled().await;
        sleep(CLOSING_GRACE).await;
    });
    let mut flows = Flows::new();
    let mut sweep = interval(relay.shared.limits.flow_idle);
    loop {
        tokio::select! {
            () = &mut closing => return,
            _ = sweep.tick() => flows.retain(|_, flow| !flow.is_closed()),
            // An error belongs to an earlier response to a client that is gone.
            arrival = socket.async_io(Interest::READABLE, || receive_from(&socket)) => {
                let Ok(arrival) = arrival else { continue };
                deliver(&relay, &socket, &mut flows, arrival);
            }
        }
    }
}

fn deliver(relay: &Arc<Relay>, socket: &Arc<UdpSocket>, flows: &mut Flows, arrival: Arrival) {
    let Arrival { client, local, mut datagram } = arrival;
    let key = (client, local);
    let tally = &relay.shared.tally;
    if let Some(flow) = flows.get(&key) {
        match flow.try_send(datagram) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(_)) => return count(&tally.datagrams_dropped),
            Err(mpsc::error::TrySendError::Closed(back)) => datagram = back,
        }
        flows.remove(&key);
    }
    let Ok(permit) = Arc::clone(&relay.shared.flows).try_acquire_owned() else {
        return count(&tally.flows_refused);
    };
    let original = {
        let mut netlink = relay.shared.netlink.lock().expect("the lock is not poisoned");
        origin::of_flow(&mut netlink, SocketAddr::new(local.ip, relay.port.get()), client)
    };
    let Some(original) = original.ok().flatten().filter(|original| relay.answers(*original)) else {
        return count(&tally.strays);
    };
    let (sender, from_client) = mpsc::channel(QUEUE_MAX);
    sender.try_send(datagram).expect("a new queue has room");
    flows.insert(key, sender);
    let flow = UdpFlow {
        relay: Arc::clone(relay),
        socket: Arc::clone(socket),
        client,
        local,
        original,
        from_client,
        permit,
    };
    tokio::spawn(flow.run());
}

/// UDP flow: the datagrams of one client to one frontend, and the responses.
struct UdpFlow {
    relay: Arc<Relay>,
    /// Socket of the listener, from which responses are sent.
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    local: LocalAddress,
    original: SocketAddr,
    from_client: mpsc::Receiver<Vec<u8>>,
    permit: OwnedSemaphorePermit,
}

/// Cause for which a flow stopped using its target.
enum Left {
    /// End of the flow: idle timeout, closed listener, failure of the target after a response, or removal of
    /// the target with a pending response.
    Over,
    /// Rejection by the target (ICMP error) before any response. Contains the last datagram, to be sent to
    /// another target.
    Refused(Vec<u8>),
    /// Removal of the target, without a pending response.
    Gone,
}

/// Event of a flow that has a target.
enum FlowEvent {
    /// Removal of the target.
    Cut,
    /// End of the idle timeout.
    Idle,
    /// Datagram of the client; `None` if the listener has ended the flow.
    Datagram(Option<Vec<u8>>),
    /// Datagram of the target, or an error of its socket.
    Answer(io::Result<Vec<u8>>),
}

impl UdpFlow {
    async fn run(mut self) {
        let mut refused = BTreeSet::new();
        let mut unanswered = None;
        for _ in 0..TRIES_MAX {
            if !refused.is_empty() {
                count(&self.relay.shared.tally.retries);
            }
            let Some(placed) = self.relay.place(self.client, self.original, &refused) else { break };
            match self.carry(&placed, unanswered.take()).await {
                Ok(Left::Over) => return drop(self.permit),
                Ok(Left::Refused(datagram)) => unanswered = Some(datagram),
                // Datagrams received meanwhile go to another target.
                Ok(Left::Gone) if !self.from_client.is_empty() => continue,
                Ok(Left::Gone) => return drop(self.permit),
                // A failure to open the socket counts as an unreachable target.
                Err(_) => {}
            }
            refused.insert(placed.seat.target);
        }
        count(&self.relay.shared.tally.unplaced);
        drop(self.permit);
    }

    /// Forwards datagrams between client and target until the flow leaves the target. `unanswered` is a
    /// datagram that another target rejected and that is sent first.
    async fn carry(&mut self, placed: &Assignment, unanswered: Option<Vec<u8>>) -> io::Result<Left> {
        let any: IpAddr = match IpFamily::of(placed.address.ip()) {
            IpFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
            IpFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let target = UdpSocket::bind((any, 0)).await?;
        target.connect(placed.address).await?;
        let idle_time = self.relay.shared.limits.flow_idle;
        let mut idle = pin!(sleep(idle_time));
        count(&placed.seat.account.connections);
        let (mut last, mut is_answered) = (Vec::new(), false);
        // True if a datagram was sent to the target after its last response.
        let mut is_owed = false;
        if let Some(datagram) = unanswered {
            self.forward(&target, placed, &datagram).await?;
            (last, is_owed) = (datagram, true);
        }
        loop {
            // After the removal of the target, no datagram is sent to it: the removal is looked at first.
            let event = tokio::select! {
                biased;
                () = placed.seat.cut.cancelled() => FlowEvent::Cut,
                event = async {
                    tokio::select! {
                        () = &mut idle => FlowEvent::Idle,
                        datagram = self.from_client.recv() => FlowEvent::Datagram(datagram),
                        answer = receive_answer(&target) => FlowEvent::Answer(answer),
                    }
                } => event,
            };
            let said = match event {
                FlowEvent::Cut => {
                    if !is_owed {
                        return Ok(Left::Gone);
                    }
                    // Further datagrams of the client start a new flow.
                    self.from_client.close();
                    if let Ok(Ok(answer)) = timeout(LAST_ANSWER_TIME, receive_answer(&target)).await {
                        self.answer(placed, &answer).await;
                    }
                    return Ok(Left::Over);
                }
                FlowEvent::Idle | FlowEvent::Datagram(None) => return Ok(Left::Over),
                FlowEvent::Datagram(Some(datagram)) => {
                    let sent = self.forward(&target, placed, &datagram).await;
                    is_owed = true;
                    if !is_answered {
                        last = datagram;
                    }
                    sent
                }
                FlowEvent::Answer(Ok(answer)) => {
                    placed.seat.account.failures.note_taken();
                    (last, is_answered, is_owed) = (Vec::new(), true, false);
                    self.answer(placed, &answer).await;
                    Ok(())
                }
                FlowEvent::Answer(Err(error)) => Err(error),
            };
            match said {
                Ok(()) => idle.as_mut().reset(Instant::now() + idle_time),
                Err(error) => {
                    placed.seat.account.failures.note(&error);
                    return Ok(if is_answered { Left::Over } else { Left::Refused(last) });
                }
            }
        }
    }

    /// Sends a datagram to the target. The error may concern an earlier datagram, because ICMP errors are
    /// reported by a later call.
    async fn forward(&self, target: &UdpSocket, placed: &Assignment, datagram: &[u8]) -> io::Result<()> {
        let header = placed
            .proxy_protocol
            .map(|version| wire::header(version, Protocol::Udp, self.client, self.original));
        match header {
            None => target.send(datagram).await?,
            Some(header) => target.send(&[&header, datagram].concat()).await?,
        };
        Self::account(placed, datagram.len());
        Ok(())
    }

    async fn answer(&self, placed: &Assignment, datagram: &[u8]) {
        let send = || send_to(&self.socket, self.local, self.client, datagram);
        if self.socket.async_io(Interest::WRITABLE, send).await.is_ok() {
            Self::account(placed, datagram.len());
        }
    }

    fn account(placed: &Assignment, bytes: usize) {
        let account = &placed.seat.account;
        count(&account.packets);
        account.bytes.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// Receives one datagram from a target.
async fn receive_answer(target: &UdpSocket) -> io::Result<Vec<u8>> {
    let receive = |room: &mut [u8]| {
        let length = recv(target.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT)?;
        Ok(room[..length].to_vec())
    };
    target.async_io(Interest::READABLE, || receive_buffer::lend(|room| receive(room))).await
}

/// Receives a datagram together with its local address. Never blocks.
fn receive_from(socket: &UdpSocket) -> io::Result<Arrival> {
    receive_buffer::lend(|room| receive_into(socket, room))
}

fn receive_into(socket: &UdpSocket, room: &mut [u8]) -> io::Result<Arrival> {
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let mut slices = [IoSliceMut::new(room)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut local = None;
    for message in received.cmsgs()? {
        // The kernel may add further control messages.
        #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let ip = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into();
                local = Some(LocalAddress { ip, interface: 0 });
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                let interface = if ip.is_unicast_link_local() { info.ipi6_ifindex } else { 0 };
                local = Some(LocalAddress { ip: ip.into(), interface });
            }
            _ => {}
        }
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a datagram without addresses");
    let client = received.address.as_ref().and_then(address_of).ok_or_else(invalid)?;
    let (local, length) = (local.ok_or_else(invalid)?, received.bytes);
    Ok(Arrival { client, local, datagram: room[..length].to_vec() })
}

/// Sends a datagram to a client, from the local address to which the client sent its datagram.
fn send_to(socket: &UdpSocket, local: LocalAddress, client: SocketAddr, datagram: &[u8]) -> io::Result<()> {
    let slices = [IoSlice::new(datagram)];
    let to = SockaddrStorage::from(client);
    let send = |message: ControlMessage<'_>| {
        sendmsg(socket.as_raw_fd(), &slices, &[message], MsgFlags::MSG_DONTWAIT, Some(&to))
    };
    match local.ip {
        IpAddr::V4(ip) => {
            let source = libc::in_addr { s_addr: u32::from(ip).to_be() };
            let any = libc::in_addr { s_addr: 0 };
            send(ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: source,
                ipi_addr: any,
            }))?
        }
        IpAddr::V6(ip) => send(ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
            ipi6_ifindex: local.interface,
        }))?,
    };
    Ok(())
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| {
        let v6 = address.as_sockaddr_in6()?;
        Some(SocketAddrV6::new(v6.ip(), v6.port(), 0, v6.scope_id()).into())
    })
}
