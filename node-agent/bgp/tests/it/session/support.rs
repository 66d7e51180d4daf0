//! Test bench for one session: messages of a simulated neighbor, and helpers that search the outputs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use bgp::{
    Capability, Family, GracefulRestart, Message, Notification, Open, Update,
    notification::{cease, code},
    session::{Config, ConnectionId, Direction, Down, Event, Input, Output, PeerAsn, Session, State},
    wire::DecodedMessage,
};
use ipnet::IpNet;

use super::contract::Contract;

pub const OURS: u32 = 65_001;
pub const THEIRS: u32 = 65_002;

/// Returns the start of virtual time.
#[allow(clippy::disallowed_methods, reason = "some origin is needed; nothing depends on which")]
pub fn origin() -> Instant {
    Instant::now()
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub const fn id(number: u64) -> ConnectionId {
    ConnectionId(number)
}

pub fn config() -> Config {
    Config {
        local_asn: OURS,
        peer_asn: PeerAsn::Number(THEIRS),
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        hold_time: 90,
        keepalive_time: None,
        connect_time: 5,
        passive: false,
        families: BTreeSet::from(Family::ALL),
        graceful_restart: None,
        is_restarted: false,
        extended_next_hop: false,
        role: None,
        host_name: None,
        max_prefixes: 1000,
    }
}

pub fn passive() -> Config {
    Config { passive: true, ..config() }
}

pub fn graceful() -> Config {
    Config { graceful_restart: Some(120), ..config() }
}

/// Returns the OPEN of a neighbor that fits [`config`].
pub fn open() -> Open {
    Open {
        asn: THEIRS,
        hold_time: 30,
        router_id: Ipv4Addr::new(10, 0, 0, 2),
        capabilities: vec![
            Capability::MultiProtocol(Family::Ipv4Unicast),
            Capability::MultiProtocol(Family::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::FourOctetAs(THEIRS),
        ],
    }
}

pub fn open_with(more: impl IntoIterator<Item = Capability>) -> Open {
    let mut open = open();
    open.capabilities.extend(more);
    open
}

/// Returns an OPEN with Graceful Restart for both families; `notification` sets the N bit.
pub fn graceful_open(notification: bool) -> Open {
    open_with([Capability::GracefulRestart(GracefulRestart {
        is_restarted: false,
        notification,
        restart_time: 120,
        families: BTreeMap::from(Family::ALL.map(|family| (family, true))),
    })])
}

pub fn update(announced: &[&str], withdrawn: &[&str]) -> Message {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect();
    let update = Update { announced: parse(announced), withdrawn: parse(withdrawn), ..Update::default() };
    Message::Update(Box::new(update))
}

pub const fn notification(code: u8, subcode: u8) -> Notification {
    Notification { code, subcode, data: Vec::new() }
}

pub fn received(connection: u64, message: Message) -> Input {
    Input::Received { connection: id(connection), result: Ok(DecodedMessage { message, faults: Vec::new() }) }
}

pub const fn malformed(connection: u64, answer: Notification) -> Input {
    Input::Received { connection: id(connection), result: Err(answer) }
}

pub const fn connected(connection: u64, direction: Direction) -> Input {
    Input::Connected { connection: id(connection), direction }
}

/// Session under test, with its virtual time and the checker of its guarantees.
#[derive(Debug, Clone)]
pub struct Bench {
    pub session: Session,
    pub contract: Contract,
    pub now: Instant,
    draws: u64,
}

impl Bench {
    pub fn new(config: Config) -> Self {
        Self { session: Session::new(config), contract: Contract::new(), now: origin(), draws: 0 }
    }

    /// Creates a session in a given state on outgoing connection 1.
    pub fn outgoing(config: Config, open: Open, state: State) -> Self {
        let mut bench = Self::new(config);
        bench.tell(Input::Start);
        bench.advance(connected(1, Direction::Outgoing), open, state)
    }

    /// Creates a session in a given state on incoming connection 1.
    pub fn incoming(config: Config, open: Open, state: State) -> Self {
        let mut bench = Self::new(config);
        bench.tell(Input::Start);
        bench.advance(connected(1, Direction::Incoming), open, state)
    }

    pub fn established(config: Config, open: Open) -> Self {
        Self::outgoing(config, open, State::Established)
    }

    fn advance(mut self, connected: Input, open: Open, state: State) -> Self {
        self.tell(connected);
        if state >= State::OpenConfirm {
            self.tell(received(1, Message::Open(open)));
        }
        if state >= State::Established {
            self.tell(received(1, Message::Keepalive));
        }
        assert_eq!(self.session.state(), state, "{}", self.session.reason());
        self
    }

    pub fn tell(&mut self, input: Input) -> Vec<Output> {
        self.draws += 1;
        self.contract.told(&input);
        let outputs = self.session.handle(input, self.now, self.draws);
        self.contract.answered(&outputs, &self.session);
        outputs
    }

    /// Advances the time by `time` and returns the outputs of all deadlines that expire meanwhile.
    pub fn pass(&mut self, time: Duration) -> Vec<Output> {
        let end = self.now + time;
        let mut outputs = Vec::new();
        while let Some(at) = self.session.poll_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            outputs.extend(self.tell(Input::Timeout));
            assert!(self.session.poll_timeout().is_none_or(|next| next > at), "a deadline stays behind");
        }
        self.now = end;
        outputs
    }

    /// Advances the time while the neighbor sends KEEPALIVE messages, and returns the outputs.
    pub fn keep_up(&mut self, connection: u64, time: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        for _ in 0..time.as_secs() {
            outputs.extend(self.pass(secs(1)));
            outputs.extend(self.tell(received(connection, Message::Keepalive)));
        }
        outputs
    }

    pub fn state(&self) -> State {
        self.session.state()
    }

    /// Returns the time until the next deadline.
    pub fn due_in(&self) -> Option<Duration> {
        self.session.poll_timeout().map(|at| at.saturating_duration_since(self.now))
    }
}

pub fn sent(outputs: &[Output]) -> Vec<&Message> {
    outputs
        .iter()
        .filter_map(|output| if let Output::Send { message, .. } = output { Some(message) } else { None })
        .collect()
}

/// Returns the NOTIFICATION among the outputs.
pub fn notified(outputs: &[Output]) -> Option<&Notification> {
    sent(outputs).into_iter().find_map(|message| {
        if let Message::Notification(notification) = message { Some(notification) } else { None }
    })
}

pub fn events(outputs: &[Output]) -> Vec<&Event> {
    outputs
        .iter()
        .filter_map(|output| if let Output::Event(event) = output { Some(event) } else { None })
        .collect()
}

pub fn down(outputs: &[Output]) -> Option<&Down> {
    events(outputs)
        .into_iter()
        .find_map(|event| if let Event::Down(down) = event { Some(&**down) } else { None })
}

/// Returns code and subcode of the NOTIFICATION among the outputs.
pub fn codes(outputs: &[Output]) -> Option<(u8, u8)> {
    notified(outputs).map(|notification| (notification.code, notification.subcode))
}

/// Returns the last OPEN among the outputs.
pub fn opened(outputs: &[Output]) -> Open {
    let open = |message: &&Message| if let Message::Open(open) = message { Some(open.clone()) } else { None };
    sent(outputs).iter().rev().find_map(open).unwrap()
}

pub const COLLISION: (u8, u8) = (code::CEASE, cease::COLLISION);
