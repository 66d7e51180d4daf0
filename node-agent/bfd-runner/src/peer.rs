//! BFD session with its sending socket, counters and reported state.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Instant,
};

use ::bfd::{Diagnostic, Event, Session, State};

use super::{
    peers::{Counters, Fault, PeerKey, PeerState, RemoteState, SessionConfig},
    socket::Door,
};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) config: SessionConfig,
    pub(super) session: Session,
    /// Socket for sending. The BFD thread opens it, because this thread is in the network namespace of the
    /// sessions.
    pub(super) sender: Option<UdpSocket>,
    pub(super) fault: Option<Fault>,
    pub(super) deadline: Option<Instant>,
    pub(super) since: Instant,
    pub(super) counters: Counters,
}

impl Peer {
    pub(super) fn new(key: PeerKey, config: SessionConfig, session: Session, now: Instant) -> Self {
        let (fault, counters) = (Fault::of(key), Counters::default());
        Self { config, session, sender: None, fault, deadline: None, since: now, counters }
    }

    pub(super) fn door(&self, key: PeerKey) -> Door {
        Door { local: key.local, port: self.config.reach.port() }
    }

    pub(super) fn send(&mut self, to: IpAddr, bytes: &[u8]) {
        let Some(sender) = &self.sender else { return };
        match sender.send_to(bytes, SocketAddr::new(to, self.config.reach.port())) {
            Ok(_) => self.counters.sent += 1,
            Err(error) => {
                self.counters.send_failures += 1;
                tracing::debug!(peer = %to, %error, "BFD send failed");
            }
        }
    }

    fn remote(&self) -> Option<RemoteState> {
        self.session.detection_time()?;
        let remote = self.session.remote();
        let heard = remote.discriminator.is_some();
        Some(RemoteState { heard, state: remote.state, diagnostic: remote.diagnostic })
    }

    /// Returns the state, the diagnostic and the fields received from the peer. Users of BFD are notified
    /// when one of these changes.
    pub(super) fn shown(&self) -> (State, Diagnostic, Option<RemoteState>) {
        (self.session.state(), self.session.diagnostic(), self.remote())
    }

    pub(super) fn state(&self) -> PeerState {
        let (state, diagnostic, remote) = self.shown();
        PeerState {
            state,
            since: self.since,
            diagnostic,
            remote,
            transmit_interval: self.session.transmit_interval(),
            detection_time: self.session.detection_time(),
            fault: self.fault,
            counters: self.counters,
        }
    }
}

/// Logs a state change of a session with its addresses.
pub(super) fn report(key: PeerKey, event: Event) {
    let PeerKey { local, peer } = key;
    match event {
        Event::Up => tracing::info!(%local, %peer, "BFD session is up"),
        Event::Down(diagnostic) => tracing::info!(%local, %peer, %diagnostic, "BFD session is down"),
        Event::RemoteAdminDown(diagnostic) => {
            tracing::info!(%local, %peer, %diagnostic, "BFD peer is administratively down");
        }
        Event::TimersChanged => tracing::debug!(%local, %peer, "BFD timers have changed"),
    }
}
