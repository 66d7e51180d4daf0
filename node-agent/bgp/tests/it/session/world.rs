//! Simulated network between two sessions, in virtual time. Connection attempts may fail or get lost,
//! connections may be reset or lose all data silently, and agents may restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bgp::{
    Message,
    session::{Config, ConnectionId, Direction, Event, Input, Output, Session, State},
    wire,
};

use super::{
    contract::Contract,
    support::{origin, secs},
};

/// Failure rates of the simulated network, per thousand.
#[derive(Debug, Clone, Copy)]
pub struct Trouble {
    pub refused: u64,
    pub unanswered: u64,
    /// Rate per message at which the connection is reset.
    pub reset: u64,
    /// Rate per message at which the connection silently stops delivering data.
    pub dead: u64,
    /// Maximum delay of a message in milliseconds.
    pub delay_ms: u64,
}

impl Trouble {
    pub const NONE: Self = Self { refused: 0, unanswered: 0, reset: 0, dead: 0, delay_ms: 3 };
}

const CLOSED: Arrival = Arrival::Closed("closed");
const RESET: Arrival = Arrival::Closed("reset");

pub struct World {
    pub now: Instant,
    pub sides: [Side; 2],
    pub trouble: Trouble,
    happenings: BTreeMap<(Instant, u64), Happening>,
    dead: BTreeSet<ConnectionId>,
    latest: BTreeMap<(ConnectionId, usize), Instant>,
    count: u64,
    noise: u64,
}

pub struct Side {
    pub session: Session,
    pub contract: Contract,
    /// Number of times that this side's session was established.
    pub established: u32,
    /// Number of the connection attempt in progress.
    attempt: Option<u64>,
}

enum Happening {
    /// A connection attempt of `side` arrives at the opposite side.
    Arrives { side: usize, attempt: u64 },
    /// The response to a connection attempt arrives at the side that made it.
    Answered { side: usize, attempt: u64, connection: Option<ConnectionId> },
    /// Data on a connection arrives at `side`.
    Comes { side: usize, connection: ConnectionId, what: Arrival },
}

enum Arrival {
    Bytes(Vec<u8>),
    Closed(&'static str),
}

impl Side {
    fn new(config: Config) -> Self {
        Self { session: Session::new(config), contract: Contract::new(), established: 0, attempt: None }
    }
}

impl World {
    pub fn new(configs: [Config; 2], seed: u64, trouble: Trouble) -> Self {
        let mut world = Self {
            now: origin(),
            sides: configs.map(Side::new),
            trouble,
            happenings: BTreeMap::new(),
            dead: BTreeSet::new(),
            latest: BTreeMap::new(),
            count: 0,
            noise: seed | 1,
        };
        world.tell(0, Input::Start);
        world.tell(1, Input::Start);
        world
    }

    /// Returns true if both sides are established on the same working connection and no other connection
    /// exists.
    pub fn is_up(&self) -> bool {
        let [one, other] = &self.sides;
        let over = one.session.established_over();
        over.is_some_and(|connection| !self.dead.contains(&connection))
            && over == other.session.established_over()
            && self.sides.iter().all(|side| side.contract.open.len() == 1)
    }

    /// Advances the time until a condition holds, at most by the given duration. Returns true if it holds.
    pub fn run_until(&mut self, longest: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + longest;
        while !holds(self) {
            if !self.step(end) {
                self.now = end;
                return holds(self);
            }
        }
        true
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Restarts the agent of one side; its kernel closes the connections.
    pub fn restart(&mut self, side: usize) {
        let config = self.sides[side].session.config().clone();
        for connection in self.sides[side].contract.open.clone() {
            self.comes(1 - side, connection, RESET);
        }
        let established = self.sides[side].established;
        self.sides[side] = Side { established, ..Side::new(Config { is_restarted: true, ..config }) };
        self.tell(side, Input::Start);
    }

    pub fn tell(&mut self, side: usize, input: Input) {
        let random = self.random(u64::MAX);
        let Side { session, contract, .. } = &mut self.sides[side];
        contract.told(&input);
        let outputs = session.handle(input, self.now, random);
        contract.answered(&outputs, session);
        for output in outputs {
            self.carry_out(side, output);
        }
    }

    /// Handles the next event before `end`. Returns false if there is none.
    fn step(&mut self, end: Instant) -> bool {
        let happening = self.happenings.keys().next().map(|(at, _)| *at);
        let timeouts = [0, 1].map(|side| self.sides[side].session.poll_timeout());
        let timeout = timeouts.into_iter().flatten().min().map(|at| at.max(self.now));
        let Some(next) = [happening, timeout].into_iter().flatten().min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = next;
        if happening == Some(next) {
            let (_, happening) = self.happenings.pop_first().unwrap();
            self.happen(happening);
            return true;
        }
        for side in [0, 1] {
            if timeouts[side].is_some_and(|at| at <= next) {
                self.tell(side, Input::Timeout);
                let timeout = self.sides[side].session.poll_timeout();
                assert!(timeout.is_none_or(|at| at > next), "a deadline stays behind");
            }
        }
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives { side, attempt } => {
                let is_refused = self.chance(self.trouble.refused);
                let connection = (!is_refused).then(|| self.name());
                if self.chance(self.trouble.unanswered) {
                    return;
                }
                let at = self.later(Happening::Answered { side, attempt, connection });
                if let Some(connection) = connection {
                    // No data arrives before the connection is open.
                    self.latest.insert((connection, side), at);
                    self.tell(1 - side, Input::Connected { connection, direction: Direction::Incoming });
                }
            }
            Happening::Answered { side, attempt, connection } => self.answered(side, attempt, connection),
            Happening::Comes { side, connection, what } => {
                if self.sides[side].contract.open.contains(&connection) {
                    let input = self.read(side, connection, what);
                    self.tell(side, input);
                }
            }
        }
    }

    /// Returns the input that a driver (the code that owns the sockets) creates from arriving data.
    fn read(&self, side: usize, connection: ConnectionId, what: Arrival) -> Input {
        match what {
            Arrival::Closed(why) => Input::Closed { connection, why: why.to_owned() },
            Arrival::Bytes(bytes) => {
                let context = self.sides[side].session.context(connection);
                let header = bytes.first_chunk().unwrap();
                assert_eq!(wire::frame_length(header, &context), Ok(bytes.len()));
                Input::Received { connection, result: wire::decode(&bytes, &context) }
            }
        }
    }

    fn answered(&mut self, side: usize, attempt: u64, connection: Option<ConnectionId>) {
        let is_current = self.sides[side].attempt == Some(attempt);
        match connection {
            // A driver may also be late to cancel; the session is then informed.
            Some(connection) if is_current || self.chance(500) => {
                self.sides[side].attempt.take_if(|current| *current == attempt);
                // A newer attempt may be pending; drivers distinguish the responses.
                if self.sides[side].attempt.is_some() {
                    self.comes(1 - side, connection, CLOSED);
                    return;
                }
                self.tell(side, Input::Connected { connection, direction: Direction::Outgoing });
            }
            Some(connection) => self.comes(1 - side, connection, CLOSED),
            None if is_current => {
                self.sides[side].attempt = None;
                self.tell(side, Input::ConnectFailed { why: "connection refused".to_owned() });
            }
            None => {}
        }
    }

    fn carry_out(&mut self, side: usize, output: Output) {
        match output {
            Output::Connect => {
                let attempt = self.name().0;
                self.sides[side].attempt = Some(attempt);
                self.later(Happening::Arrives { side, attempt });
            }
            Output::CancelConnect => self.sides[side].attempt = None,
            Output::Send { connection, message } => self.send(side, connection, message),
            Output::Close { connection } => self.comes(1 - side, connection, CLOSED),
            Output::Event(event) => {
                self.sides[side].established += u32::from(matches!(event, Event::Established { .. }));
            }
        }
    }

    fn send(&mut self, side: usize, connection: ConnectionId, message: Message) {
        if self.chance(self.trouble.reset) {
            for side in [0, 1] {
                self.comes(side, connection, RESET);
            }
        }
        if self.chance(self.trouble.dead) {
            self.dead.insert(connection);
        }
        // The last messages are sent after the session has removed the connection; their encoding does not
        // depend on negotiation.
        let bytes = wire::encode(&message, &self.sides[side].session.context(connection)).unwrap();
        self.comes(1 - side, connection, Arrival::Bytes(bytes));
    }

    /// Puts data on a connection in transit, in order, unless the connection has stopped delivering data.
    fn comes(&mut self, side: usize, connection: ConnectionId, what: Arrival) {
        if self.dead.contains(&connection) {
            return;
        }
        let latest = self.latest.get(&(connection, side)).copied().unwrap_or(self.now);
        let at = latest.max(self.now + self.delay());
        self.latest.insert((connection, side), at);
        self.count += 1;
        self.happenings.insert((at, self.count), Happening::Comes { side, connection, what });
    }

    fn later(&mut self, happening: Happening) -> Instant {
        let at = self.now + self.delay();
        self.count += 1;
        self.happenings.insert((at, self.count), happening);
        at
    }

    fn delay(&mut self) -> Duration {
        Duration::from_millis(1 + self.random(self.trouble.delay_ms))
    }

    fn name(&mut self) -> ConnectionId {
        self.count += 1;
        ConnectionId(self.count)
    }

    pub fn chance(&mut self, permille: u64) -> bool {
        self.random(1000) < permille
    }

    /// Returns a random number below `bound` (xorshift).
    pub fn random(&mut self, bound: u64) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        (self.noise >> 8) % bound
    }
}

/// Returns true if an established pair of sessions stays up for a while without a new session.
pub fn stays_up(world: &mut World) -> bool {
    let before = world.sides.each_ref().map(|side| side.established);
    world.run(secs(900));
    world.is_up()
        && before == world.sides.each_ref().map(|side| side.established)
        && world.sides.iter().all(|side| side.session.state() == State::Established)
}
