//! Fault injection into control servers and into members of their store. The seed of the test determines the
//! faults.

use std::{fmt, net::IpAddr, thread, time::Duration};

use anyhow::{Context, Result};

use crate::cluster::etcd;
use crate::cluster::machines::{Fabric, ProgramMachine};
use crate::host::random::Random;

/// Minimum and maximum delay in milliseconds between two faults.
const BETWEEN_MS: (u64, u64) = (40, 200);
/// Minimum and maximum duration of a fault in milliseconds, similar to that of a leader election of the store.
const LASTS_MS: (u64, u64) = (80, 800);
/// Probability in percent that a fault starts while another one is still active.
const TOGETHER_PERCENT: u64 = 35;

/// Control servers and store members into which faults can be injected.
#[derive(Debug)]
pub struct Targets {
    /// Network that connects all machines.
    pub fabric: Fabric,
    /// Machines with the control servers.
    pub servers: Vec<ProgramMachine>,
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
        let what = match self.kind {
            ServerFaultKind::Killed => "killed",
            ServerFaultKind::Paused => "paused",
            ServerFaultKind::Unplugged => "unplugged",
            ServerFaultKind::CutOff => "cut off",
        };
        write!(f, "{who} {} {what}", index + 1)
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
            let fault = self.choose(random);
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

    fn choose(&self, random: &mut Random) -> ServerFault {
        let is_member = !self.members.is_empty() && random.chance(50);
        let victim = if is_member {
            // The leader is the most interesting target.
            let leader = random.chance(50).then(|| etcd::leader(&self.members)).flatten();
            Victim::Member(leader.unwrap_or_else(|| random.index(self.members.len())))
        } else {
            Victim::Server(random.index(self.servers.len()))
        };
        let kinds = [
            ServerFaultKind::Killed,
            ServerFaultKind::Paused,
            ServerFaultKind::Unplugged,
            ServerFaultKind::CutOff,
        ];
        // A file store cannot be cut off.
        let count = if self.members.is_empty() { 3 } else { kinds.len() };
        ServerFault { victim, kind: kinds[random.index(count)] }
    }

    fn strike(&mut self, fault: ServerFault) -> Result<()> {
        let cut_from = self.members_but(fault.victim);
        match fault.kind {
            ServerFaultKind::Killed => self.machine_mut(fault.victim).process.kill(),
            ServerFaultKind::Paused => {
                let machine = self.machine_mut(fault.victim);
                machine.ensure_running()?;
                machine.process.pause()?;
            }
            ServerFaultKind::Unplugged => self.fabric.plug(self.machine(fault.victim), false)?,
            ServerFaultKind::CutOff => self.machine(fault.victim).cut_off(&cut_from)?,
        }
        Ok(())
    }

    fn mend(&mut self, fault: ServerFault) -> Result<()> {
        match fault.kind {
            ServerFaultKind::Killed => self.machine_mut(fault.victim).ensure_running(),
            ServerFaultKind::Paused => self.machine(fault.victim).process.go_on(),
            ServerFaultKind::Unplugged => self.fabric.plug(self.machine(fault.victim), true),
            ServerFaultKind::CutOff => self.machine(fault.victim).join_again(),
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
