//! Fault injection into control servers and into members of their store. The seed of the test determines the
//! faults.

use std::{fmt, net::IpAddr, thread, time::Duration};

use anyhow::{Context, Result, bail};

use crate::cluster::etcd;
use crate::cluster::machines::{DroppedDirection, Fabric, ProgramMachine};
use crate::host::random::Random;
use crate::processes::wall_clock::WallClock;

/// Minimum and maximum delay in milliseconds between two faults.
const BETWEEN_MS: (u64, u64) = (40, 200);
/// Minimum and maximum duration of a fault in milliseconds, similar to that of a leader election of the store.
const LASTS_MS: (u64, u64) = (80, 800);
/// Probability in percent that a fault starts while another one is still active.
const TOGETHER_PERCENT: u64 = 35;

/// Maximum distance of a moved clock from the time of the machine in seconds, ahead or behind.
const CLOCK_SECS_MAX: u64 = 7200;
/// Last octet of the address of the clients on the fabric (switch).
pub const CLIENTS_HOST: u8 = 200;

/// Control servers and store members into which faults can be injected.
#[derive(Debug)]
pub struct Targets {
    /// Network that connects all machines.
    pub fabric: Fabric,
    /// Machines with the control servers.
    pub servers: Vec<ProgramMachine>,
    /// System clocks of the control servers, in the same order.
    pub clocks: Vec<WallClock>,
    /// Machines with the etcd members; empty for a file store.
    pub members: Vec<ProgramMachine>,
}

/// Target of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// Control server with this index.
    Server(usize),
    /// Store member with this index.
    Member(usize),
}

/// Kind of fault that hits a control server or store member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFaultKind {
    /// Kill without warning (SIGKILL), followed by a restart.
    Killed,
    /// Suspended (SIGSTOP) and resumed; the process does not notice the elapsed time.
    Paused,
    /// Link set down, so that the machine is disconnected from the network.
    Unplugged,
    /// Reachable for clients, but cut off from the store members.
    CutOff,
    /// Receives no packets of the store members, which receive its packets.
    DeafToStore,
    /// Receives the packets of the store members, which receive none of its packets.
    MuteToStore,
    /// Receives no packets of the clients.
    DeafToClients,
    /// Receives the packets of the clients, which receive none of its packets.
    MuteToClients,
    /// Jump of the system clock to the time of the machine plus this number of seconds. The clock stays there.
    ClockMoved(i64),
}

impl ServerFaultKind {
    /// Returns the words for the kind in the output of a test.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Paused => "paused",
            Self::Unplugged => "unplugged",
            Self::CutOff => "cut off",
            Self::DeafToStore => "deaf to the store",
            Self::MuteToStore => "mute to the store",
            Self::DeafToClients => "deaf to clients",
            Self::MuteToClients => "mute to clients",
            Self::ClockMoved(_) => "clock moved",
        }
    }
}

/// Fault that was injected into a control server or store member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFault {
    /// Machine that the fault hit.
    pub victim: Victim,
    /// Kind of the injected fault.
    pub kind: ServerFaultKind,
}

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, index) = match self.victim {
            Victim::Server(index) => ("server", index),
            Victim::Member(index) => ("etcd", index),
        };
        write!(f, "{who} {} {}", index + 1, self.kind.words())?;
        match self.kind {
            ServerFaultKind::ClockMoved(secs) => write!(f, " to {secs:+} s"),
            ServerFaultKind::Killed
            | ServerFaultKind::Paused
            | ServerFaultKind::Unplugged
            | ServerFaultKind::CutOff
            | ServerFaultKind::DeafToStore
            | ServerFaultKind::MuteToStore
            | ServerFaultKind::DeafToClients
            | ServerFaultKind::MuteToClients => Ok(()),
        }
    }
}

impl Targets {
    /// Chooses `faults` random faults, injects them, some at the same time, and reverts them. A fault is
    /// skipped if its target already has one. Returns all chosen faults in order.
    ///
    /// # Errors
    /// Returns an error if a tool fails.
    pub fn storm(&mut self, random: &mut Random, faults: usize) -> Result<Vec<ServerFault>> {
        let mut done = Vec::new();
        let mut open: Vec<ServerFault> = Vec::new();
        while done.len() < faults {
            thread::sleep(random.millis(BETWEEN_MS.0, BETWEEN_MS.1));
            let fault = self.choose(random, &open);
            // A target with an open fault is skipped, since reverting would undo both.
            if open.iter().all(|other| other.victim != fault.victim) {
                self.strike(fault).with_context(|| fault.to_string())?;
                open.push(fault);
            }
            done.push(fault);
            if !random.chance(TOGETHER_PERCENT) {
                self.mend_all(&mut open, random.millis(LASTS_MS.0, LASTS_MS.1))?;
            }
        }
        self.mend_all(&mut open, random.millis(LASTS_MS.0, LASTS_MS.1))?;
        Ok(done)
    }

    fn mend_all(&mut self, open: &mut Vec<ServerFault>, after: Duration) -> Result<()> {
        thread::sleep(after);
        for fault in open.drain(..) {
            self.mend(fault).with_context(|| format!("mending: {fault}"))?;
        }
        Ok(())
    }

    fn choose(&self, random: &mut Random, open: &[ServerFault]) -> ServerFault {
        let is_member = !self.members.is_empty() && random.chance(50);
        let victim = if is_member {
            // The leader is the most interesting target.
            let leader = random.chance(50).then(|| self.leader(open)).flatten();
            Victim::Member(leader.unwrap_or_else(|| random.index(self.members.len())))
        } else {
            Victim::Server(random.index(self.servers.len()))
        };
        let moved = i64::try_from(random.below(2 * CLOCK_SECS_MAX)).unwrap_or(0);
        let moved = moved - CLOCK_SECS_MAX.cast_signed();
        let kinds = kinds(victim, !self.members.is_empty(), moved);
        ServerFault { victim, kind: kinds[random.index(kinds.len())] }
    }

    /// Returns the index of the leader. Members with an open fault are not asked, because a suspended one would extend
    /// the faults of the others.
    fn leader(&self, open: &[ServerFault]) -> Option<usize> {
        let is_hit = |index: usize| open.iter().any(|fault| fault.victim == Victim::Member(index));
        (0..self.members.len()).find(|index| !is_hit(*index) && etcd::is_leader(&self.members[*index]))
    }

    fn strike(&mut self, fault: ServerFault) -> Result<()> {
        let members = self.members_but(fault.victim);
        let clients = [Fabric::address(CLIENTS_HOST)];
        let machine = self.machine(fault.victim);
        match fault.kind {
            ServerFaultKind::Killed => self.machine_mut(fault.victim).process.kill(),
            ServerFaultKind::Paused => {
                let machine = self.machine_mut(fault.victim);
                machine.ensure_running()?;
                machine.process.pause()?;
            }
            ServerFaultKind::Unplugged => self.fabric.plug(machine, false)?,
            ServerFaultKind::CutOff => machine.cut_off(&members, DroppedDirection::Both)?,
            ServerFaultKind::DeafToStore => machine.cut_off(&members, DroppedDirection::Inward)?,
            ServerFaultKind::MuteToStore => machine.cut_off(&members, DroppedDirection::Outward)?,
            ServerFaultKind::DeafToClients => machine.cut_off(&clients, DroppedDirection::Inward)?,
            ServerFaultKind::MuteToClients => machine.cut_off(&clients, DroppedDirection::Outward)?,
            ServerFaultKind::ClockMoved(secs) => match fault.victim {
                Victim::Server(index) => self.clocks[index].set(secs)?,
                Victim::Member(_) => bail!("members of etcd have the clock of the machine"),
            },
        }
        Ok(())
    }

    fn mend(&mut self, fault: ServerFault) -> Result<()> {
        match fault.kind {
            ServerFaultKind::Killed => self.machine_mut(fault.victim).ensure_running(),
            ServerFaultKind::Paused => self.machine(fault.victim).process.go_on(),
            ServerFaultKind::Unplugged => self.fabric.plug(self.machine(fault.victim), true),
            ServerFaultKind::CutOff
            | ServerFaultKind::DeafToStore
            | ServerFaultKind::MuteToStore
            | ServerFaultKind::DeafToClients
            | ServerFaultKind::MuteToClients => self.machine(fault.victim).join_again(),
            ServerFaultKind::ClockMoved(_) => Ok(()),
        }
    }

    fn members_but(&self, victim: Victim) -> Vec<IpAddr> {
        let is_other = |index: &usize| Victim::Member(*index) != victim;
        (0..self.members.len()).filter(is_other).map(|index| self.members[index].address.ip()).collect()
    }

    fn machine(&self, victim: Victim) -> &ProgramMachine {
        match victim {
            Victim::Server(index) => &self.servers[index],
            Victim::Member(index) => &self.members[index],
        }
    }

    fn machine_mut(&mut self, victim: Victim) -> &mut ProgramMachine {
        match victim {
            Victim::Server(index) => &mut self.servers[index],
            Victim::Member(index) => &mut self.members[index],
        }
    }

    /// Waits until all control servers and store members run and respond. Restarts those that have ended.
    ///
    /// # Errors
    /// Returns an error if a program cannot be started or does not respond in time.
    pub fn wait_calm(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.ensure_running()?;
            etcd::wait_ready(member)?;
        }
        self.servers.iter_mut().try_for_each(ProgramMachine::wait_serving)
    }
}

/// Returns the kinds of faults that can hit a machine; `moved` is the number of seconds by which its clock would move.
/// A server with a file store cannot be cut off from the store. The members of etcd have the clock of the machine.
fn kinds(victim: Victim, has_members: bool, moved: i64) -> Vec<ServerFaultKind> {
    use ServerFaultKind::{
        ClockMoved, CutOff, DeafToClients, DeafToStore, Killed, MuteToClients, MuteToStore, Paused, Unplugged,
    };
    let mut kinds = vec![Killed, Paused, Unplugged];
    if has_members {
        kinds.extend([CutOff, DeafToStore, MuteToStore]);
    }
    if matches!(victim, Victim::Server(_)) {
        kinds.extend([DeafToClients, MuteToClients, ClockMoved(moved)]);
    }
    kinds
}
