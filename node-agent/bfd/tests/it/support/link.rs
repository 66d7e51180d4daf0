//! Simulated link between two sessions, which delays, reorders and loses packets, in virtual time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bfd::{Config, Event, Input, Output, Refusal, Session, wire};

use super::{discriminator, origin};

/// Properties of the simulated link: delay, loss and order of packets.
#[derive(Debug, Clone, Copy)]
pub struct Quality {
    pub delay: Duration,
    /// Maximum additional delay of a packet.
    pub spread: Duration,
    /// Number of packets lost per thousand sent.
    pub loss_permille: u64,
    /// True if the link delivers packets in order.
    pub in_order: bool,
}

impl Quality {
    pub const fn good(delay: Duration) -> Self {
        Self { delay, spread: Duration::ZERO, loss_permille: 0, in_order: true }
    }

    pub const CUT: Self =
        Self { delay: Duration::ZERO, spread: Duration::ZERO, loss_permille: 1000, in_order: true };
}

pub struct Pair {
    pub now: Instant,
    pub sides: [Session; 2],
    pub quality: Quality,
    /// Events of each session, with the time of each.
    pub events: [Vec<(Instant, Event)>; 2],
    pub refused: [Vec<Refusal>; 2],
    /// Time of the last packet received by each side.
    pub heard: [Instant; 2],
    /// Packets that the first side has sent.
    pub recorded: Vec<Vec<u8>>,
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    latest: [Instant; 2],
    count: u64,
    noise: u64,
}

impl Pair {
    pub fn new(configs: [Config; 2], seed: u64, quality: Quality) -> Self {
        let now = origin();
        let [one, other] = configs;
        let sides = [
            Session::new(one, discriminator(1), seed, now),
            Session::new(other, discriminator(2), !seed, now),
        ];
        Self {
            now,
            sides,
            quality,
            events: [Vec::new(), Vec::new()],
            refused: [Vec::new(), Vec::new()],
            heard: [now; 2],
            recorded: Vec::new(),
            flying: BTreeMap::new(),
            latest: [now; 2],
            count: 0,
            noise: seed | 1,
        }
    }

    /// Advances the virtual time by this duration and handles all events in it.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.step(end) {}
        self.now = end;
    }

    /// Advances the time until a condition holds, at most by the given duration. Returns true if it holds.
    pub fn run_until(&mut self, longest: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + longest;
        while !holds(self) {
            if !self.step(end) {
                return false;
            }
        }
        true
    }

    pub fn tell(&mut self, side: usize, input: Input<'_>) {
        let outputs = self.sides[side].handle(input, self.now);
        self.carry_out(side, outputs);
    }

    /// Handles the next event up to the time `end`: the arrival of a packet, or else the expiry of a
    /// deadline. Returns false if there is none.
    fn step(&mut self, end: Instant) -> bool {
        let packet = self.flying.keys().next().map(|(at, _)| *at);
        let timeouts = [0, 1].map(|side| self.sides[side].poll_timeout());
        let timeout = timeouts.into_iter().flatten().min().map(|at| at.max(self.now));
        let Some(next) = [packet, timeout].into_iter().flatten().min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = next;
        if packet == Some(next) {
            let (_, (side, bytes)) = self.flying.pop_first().unwrap();
            self.heard[side] = next;
            let received = wire::parse(&bytes).unwrap();
            let outputs = self.sides[side].handle(Input::Received(&received), next);
            self.carry_out(side, outputs);
            return true;
        }
        for side in [0, 1] {
            if timeouts[side].is_some_and(|at| at <= next) {
                self.tell(side, Input::Timeout);
                assert!(
                    self.sides[side].poll_timeout().is_none_or(|at| at > next),
                    "a deadline stays behind"
                );
            }
        }
        true
    }

    fn carry_out(&mut self, side: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Transmit(bytes) => {
                    if side == 0 {
                        self.recorded.push(bytes.clone());
                    }
                    self.send(1 - side, bytes);
                }
                Output::Event(event) => self.events[side].push((self.now, event)),
                Output::Refused(refusal) => self.refused[side].push(refusal),
            }
        }
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) {
        if self.random(1000) < self.quality.loss_permille {
            return;
        }
        let spread = u64::try_from(self.quality.spread.as_micros()).unwrap();
        let extra = Duration::from_micros(self.random(spread + 1));
        let mut arrives = self.now + self.quality.delay + extra;
        if self.quality.in_order {
            arrives = arrives.max(self.latest[to]);
        }
        self.latest[to] = self.latest[to].max(arrives);
        self.count += 1;
        self.flying.insert((arrives, self.count), (to, bytes));
    }

    /// Returns a random number below `bound` (xorshift).
    fn random(&mut self, bound: u64) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        (self.noise >> 8) % bound
    }
}
