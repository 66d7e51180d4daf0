//! Session state machine (RFC 5880 §6): transmission, detection and state changes of one session.
//!
//! ```text
//!                              +--+
//!                              |  | UP, ADMIN DOWN, TIMER
//!                              |  V
//!                      DOWN  +------+  INIT
//!               +------------|      |------------+
//!               |            | DOWN |            |
//!               |  +-------->|      |<--------+  |
//!               |  |         +------+         |  |
//!               |  | ADMIN DOWN,   ADMIN DOWN,|  |
//!               |  | TIMER         DOWN, TIMER|  |
//!               V  |                          |  V
//!             +------+                      +------+
//!        +----|      |                      |      |----+
//!    DOWN|    | INIT |--------------------->|  UP  |    |INIT, UP
//!        +--->|      | INIT, UP             |      |<---+
//!             +------+                      +------+
//! ```
//! The arrow labels are the states in received packets; TIMER is the expiry of the detection time. The state
//! `AdminDown` is entered and left only on request of the driver, the code that owns the sockets.

use std::{
    num::{NonZeroU8, NonZeroU32},
    time::{Duration, Instant},
};

use crate::{
    dialogue::{Config, Event, Input, Output, Refusal, Remote, Role},
    interval::{Interval, Noise, jitter_permille, part},
    key_change::Authentication,
    poll::{Negotiation, Timers},
    state::{Diagnostic, State},
    wire::{self, Packet, ReceivedPacket},
};

/// Number of packets sent at once on entering AdminDown. Several are sent because the process may exit before
/// the next periodic packet.
const ADMIN_DOWN_PACKETS: usize = 3;
/// Initial value of `bfd.RemoteMinRxInterval`, in microseconds (RFC 5880 §6.8.1).
const REMOTE_MIN_RX_INITIAL: u32 = 1;

/// State machine of the BFD session with one peer.
#[derive(Debug, Clone)]
pub struct Session {
    config: Config,
    discriminator: NonZeroU32,
    /// True if the sequence number of the peer was forgotten since the discriminator was set.
    has_old_discriminator: bool,
    state: State,
    diagnostic: Diagnostic,
    remote: Remote,
    negotiation: Negotiation,
    authentication: Option<Authentication>,
    noise: Noise,
    /// Arrival time of the last valid packet from the peer; `None` before the first one.
    heard: Option<Instant>,
    /// Time of the last transmitted packet that was not the response to a Poll (Final); before the first one,
    /// the creation time of the session.
    sent: Instant,
    /// Last transmitted packet, without its Poll and Final bits.
    said: Option<Packet>,
    /// Fraction of the interval after which the next packet is sent, with jitter, in thousandths.
    permille: u32,
    /// Transmit interval and detection time that were last reported to the user of the session.
    told: Option<(Duration, Option<Duration>)>,
}

impl Session {
    /// Creates a session in state Down. `discriminator` must be unique on this system; `seed` must be random
    /// and is used for jitter and the first sequence number.
    #[must_use]
    pub fn new(config: Config, discriminator: NonZeroU32, seed: u64, now: Instant) -> Self {
        let mut noise = Noise::new(seed);
        let authentication = config.key.clone().map(|key| Authentication::new(key, sequence(&mut noise)));
        Self {
            negotiation: Negotiation::new(wanted(&config, State::Down)),
            authentication,
            discriminator,
            has_old_discriminator: false,
            state: State::Down,
            diagnostic: Diagnostic::None,
            remote: Remote {
                discriminator: None,
                state: State::Down,
                diagnostic: Diagnostic::None,
                multiplier: NonZeroU8::MIN,
                desired_min_tx_micros: 0,
                required_min_rx_micros: REMOTE_MIN_RX_INITIAL,
                demand: false,
            },
            noise,
            heard: None,
            sent: now,
            said: None,
            permille: 0,
            told: None,
            config,
        }
    }

    /// Returns the session state (`bfd.SessionState`).
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the diagnostic (`bfd.LocalDiag`): the reason for the last state change.
    #[must_use]
    pub const fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// Returns the discriminator of this system (`bfd.LocalDiscr`).
    #[must_use]
    pub const fn discriminator(&self) -> NonZeroU32 {
        self.discriminator
    }

    /// Returns true if the driver should set another discriminator by [`Self::renumber`]. Recorded packets of the
    /// peer contain the present one, and after twice the detection time without packets their sequence numbers are
    /// no longer refused (RFC 5880 §6.8.1).
    #[must_use]
    pub const fn needs_discriminator(&self) -> bool {
        self.has_old_discriminator
    }

    /// Sets another discriminator, which must be random and unique on this system. Packets with the previous one
    /// no longer belong to this session, so that recorded packets cannot bring the session up. The peer receives
    /// the new one with the next packet.
    pub const fn renumber(&mut self, discriminator: NonZeroU32) {
        self.discriminator = discriminator;
        self.has_old_discriminator = false;
    }

    /// Returns the fields of the last valid packet from the peer.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns the current configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the transmit interval before jitter (RFC 5880 §6.8.7).
    #[must_use]
    pub fn transmit_interval(&self) -> Duration {
        let theirs = Duration::from_micros(self.remote.required_min_rx_micros.into());
        self.negotiation.transmit().duration().max(theirs)
    }

    /// Returns the detection time (RFC 5880 §6.8.4), or `None` before the first packet from the peer.
    #[must_use]
    pub fn detection_time(&self) -> Option<Duration> {
        self.heard?;
        let theirs = Duration::from_micros(self.remote.desired_min_tx_micros.into());
        let interval = self.negotiation.receive().duration().max(theirs);
        Some(interval * self.remote.multiplier.get().into())
    }

    /// Returns the latest time to call [`Self::handle`] with [`Input::Timeout`], or `None` if no timer is
    /// pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let settled = self.negotiation.settled(self.wanted()).filter(|_| self.state == State::Up);
        let change = self.authentication.as_ref().and_then(Authentication::change_ends_at);
        [self.transmits_at(), self.silent_at(), self.sequence_forgotten_at(), settled, change]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes an input. The outputs are in the order in which they must be carried out.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Received(received) => self.receive(received, now, &mut outputs),
            Input::Timeout => self.expire(now, &mut outputs),
            Input::Configure(config) => self.configure(config, now),
            Input::AdminDown(diagnostic) => self.hold_down(diagnostic, now, &mut outputs),
            Input::Enable if self.state == State::AdminDown => {
                self.enter(State::Down, Diagnostic::None, &mut outputs);
            }
            Input::Enable => {}
        }
        self.follow_up(now, &mut outputs);
        outputs
    }

    /// Processes a received Control packet, in the order of RFC 5880 §6.8.6.
    fn receive(&mut self, received: &ReceivedPacket<'_>, now: Instant, outputs: &mut Vec<Output>) {
        let verdict = match (&mut self.authentication, received.section) {
            (Some(authentication), _) => authentication.verify(received),
            (None, Some(_)) => Err(Refusal::AuthenticationUnexpected),
            (None, None) => Ok(()),
        };
        if let Err(refusal) = verdict {
            outputs.push(Output::Refused(refusal));
            return;
        }
        let packet = &received.packet;
        let before = (self.remote.state, self.remote.diagnostic);
        self.remote = Remote {
            discriminator: Some(packet.my_discriminator),
            state: packet.state,
            diagnostic: packet.diagnostic,
            multiplier: packet.multiplier,
            desired_min_tx_micros: packet.desired_min_tx_micros,
            required_min_rx_micros: packet.required_min_rx_micros,
            demand: packet.demand,
        };
        self.heard = Some(now);
        let wait = self.transmit_interval();
        self.negotiation.heard(packet.is_final, now, wait);
        if packet.state == State::AdminDown && before != (packet.state, packet.diagnostic) {
            outputs.push(Output::Event(Event::RemoteAdminDown(packet.diagnostic)));
        }
        if self.state == State::AdminDown {
            return;
        }
        self.advance(packet.state, outputs);
        if packet.poll {
            // A Final is sent regardless of the transmit interval (§6.8.7).
            self.compose(false, true, outputs);
        }
    }

    /// Changes the session state according to the state in a received packet (RFC 5880 §6.8.6).
    fn advance(&mut self, theirs: State, outputs: &mut Vec<Output>) {
        match (self.state, theirs) {
            (State::Down, State::Down) => self.enter(State::Init, self.diagnostic, outputs),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.enter(State::Up, Diagnostic::None, outputs);
            }
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.enter(State::Down, Diagnostic::NeighborSignaledSessionDown, outputs);
            }
            (State::Down, State::AdminDown | State::Up)
            | (State::Init, State::Down)
            | (State::Up, State::Init | State::Up)
            | (State::AdminDown, _) => {}
        }
    }

    fn enter(&mut self, state: State, diagnostic: Diagnostic, outputs: &mut Vec<Output>) {
        let was_up = self.state == State::Up;
        (self.state, self.diagnostic) = (state, diagnostic);
        if state == State::Up {
            outputs.push(Output::Event(Event::Up));
            return;
        }
        self.negotiation.reset(self.wanted());
        self.told = None;
        if state != State::AdminDown
            && let Some(authentication) = &mut self.authentication
        {
            authentication.end_change();
        }
        let told_already = self.remote.discriminator.is_some() && self.remote.state == State::AdminDown;
        if was_up && !(told_already && state == State::Down) {
            outputs.push(Output::Event(Event::Down(diagnostic)));
        }
    }

    fn expire(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        let due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if due(self.silent_at()) {
            // After the detection time `bfd.RemoteDiscr` is reset (§6.8.1), and the peer's requested
            // intervals and Demand mode no longer apply.
            self.remote.discriminator = None;
            self.remote.required_min_rx_micros = REMOTE_MIN_RX_INITIAL;
            self.remote.demand = false;
            if matches!(self.state, State::Init | State::Up) {
                self.enter(State::Down, Diagnostic::ControlDetectionTimeExpired, outputs);
            }
        }
        if due(self.sequence_forgotten_at())
            && let Some(authentication) = &mut self.authentication
        {
            authentication.forget_sequence();
            self.has_old_discriminator = true;
        }
        if let Some(authentication) = &mut self.authentication
            && due(authentication.change_ends_at())
        {
            authentication.end_change();
        }
        if due(self.transmits_at()) {
            self.transmit(now, outputs);
        }
    }

    fn configure(&mut self, config: Config, now: Instant) {
        if self.config.key != config.key {
            let first = sequence(&mut self.noise);
            match (&mut self.authentication, config.key.clone()) {
                (Some(authentication), Some(key)) if self.state == State::Up => {
                    authentication.change(key, first, now);
                }
                (_, key) => self.authentication = key.map(|key| Authentication::new(key, first)),
            }
        }
        self.config = config;
        if self.state != State::Up {
            self.negotiation.reset(self.wanted());
        }
    }

    fn hold_down(&mut self, diagnostic: Diagnostic, now: Instant, outputs: &mut Vec<Output>) {
        if (self.state, self.diagnostic) == (State::AdminDown, diagnostic) {
            return;
        }
        self.enter(State::AdminDown, diagnostic, outputs);
        if self.may_speak() {
            for _ in 0..ADMIN_DOWN_PACKETS {
                self.transmit(now, outputs);
            }
        }
    }

    /// Handles the consequences of an input: starts a Poll Sequence, sends a packet if its content has
    /// changed, and reports changed timers.
    fn follow_up(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        let poll_begins = self.state == State::Up && self.negotiation.want(self.wanted(), now);
        // Changed content is sent without waiting for the interval (§6.8.7). The first packet is not a
        // change.
        let is_news = self.said.is_some_and(|said| said != self.packet(false, false));
        if (poll_begins || is_news) && self.may_speak() && self.remote.required_min_rx_micros != 0 {
            self.transmit(now, outputs);
        }
        let timers = Some((self.transmit_interval(), self.detection_time()));
        if self.state == State::Up && self.told != timers {
            let is_change = self.told.is_some();
            self.told = timers;
            if is_change {
                outputs.push(Output::Event(Event::TimersChanged));
            }
        }
    }

    fn transmit(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        let poll = self.negotiation.is_polling();
        self.compose(poll, false, outputs);
        self.sent = now;
        self.permille = jitter_permille(self.config.multiplier, self.noise.next());
    }

    fn compose(&mut self, poll: bool, is_final: bool, outputs: &mut Vec<Output>) {
        let packet = self.packet(poll, is_final);
        let said = self.packet(false, false);
        let repeated = self.said == Some(said) && !poll && !is_final;
        self.said = Some(said);
        let encoded = match &mut self.authentication {
            None => vec![wire::render(&packet, None)],
            Some(authentication) => authentication.seal(&packet, repeated),
        };
        outputs.extend(encoded.into_iter().map(Output::Transmit));
    }

    fn packet(&self, poll: bool, is_final: bool) -> Packet {
        let Timers { desired_min_tx, required_min_rx } = self.negotiation.advertised();
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll,
            is_final,
            control_plane_independent: false,
            demand: false,
            multiplier: self.config.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx_micros: desired_min_tx.micros(),
            required_min_rx_micros: required_min_rx.micros(),
            required_min_echo_rx_micros: 0,
        }
    }

    fn wanted(&self) -> Timers {
        wanted(&self.config, self.state)
    }

    /// Returns true if the role permits sending. A passive system sends nothing until it has received a
    /// packet (RFC 5880 §6.8.7).
    fn may_speak(&self) -> bool {
        self.config.role == Role::Active || self.remote.discriminator.is_some()
    }

    /// Returns the time of the next periodic packet, or `None` if no periodic packets are sent.
    fn transmits_at(&self) -> Option<Instant> {
        let remote = &self.remote;
        let demanded = remote.demand && self.state == State::Up && remote.state == State::Up;
        let unwanted = remote.required_min_rx_micros == 0 || demanded && !self.negotiation.is_polling();
        (self.may_speak() && !unwanted).then(|| self.sent + part(self.transmit_interval(), self.permille))
    }

    /// Returns the time at which the detection time expires. `None` if it has already expired, or if no
    /// packet has been received yet: the expiry would then change nothing.
    fn silent_at(&self) -> Option<Instant> {
        self.remote.discriminator?;
        Some(self.heard? + self.detection_time()?)
    }

    /// Returns the time at which the peer's sequence number is forgotten: twice the detection time after the
    /// last packet (`bfd.AuthSeqKnown`, RFC 5880 §6.8.1).
    fn sequence_forgotten_at(&self) -> Option<Instant> {
        self.authentication.as_ref().filter(|authentication| authentication.knows_sequence())?;
        Some(self.heard? + self.detection_time()? * 2)
    }
}

/// Returns the intervals to advertise. A session that is not up sends at most one packet per second (RFC 5880
/// §6.8.3).
fn wanted(config: &Config, state: State) -> Timers {
    let desired_min_tx = match state {
        State::Up => config.desired_min_tx,
        State::AdminDown | State::Down | State::Init => config.desired_min_tx.max(Interval::SLOW),
    };
    Timers { desired_min_tx, required_min_rx: config.required_min_rx }
}

fn sequence(noise: &mut Noise) -> u32 {
    // The upper 32 bits are as random as the lower.
    (noise.next() >> 32) as u32
}
