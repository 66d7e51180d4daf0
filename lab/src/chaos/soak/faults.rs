//! Fault injection into a running cluster, at times and in an order determined by the seed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    stage::{self, MODES, Stage},
    timeline::{EpisodeFault, EpisodeKind, EpisodeTimeline, KINDS},
};
use crate::{
    host::{netns::Namespace, random::Random},
    network::topology::node_addresses,
    processes::process::Process,
};

/// Frequency and duration of faults, and the time without faults after each.
#[derive(Debug, Clone)]
pub struct Rhythm {
    /// Minimum and maximum time in milliseconds between the starts of two faults.
    pub between_ms: (u64, u64),
    /// Minimum and maximum duration of a fault in milliseconds.
    pub lasts_ms: (u64, u64),
    /// Recovery time in milliseconds without another fault on the same target, so that each lost connection
    /// can be assigned to one fault.
    pub rest_ms: u64,
}

/// Maximum number of concurrent faults.
const TOGETHER_MAX: usize = 2;
/// Maximum number of attempts to damage rules. An attempt fails if the selected object is removed meanwhile.
const BLOWS_MAX: u32 = 5;
/// Scheduler that injects and reverts the faults of a soak test.
#[derive(Debug)]
pub(super) struct Faults {
    random: Random,
    rhythm: Rhythm,
    timeline: Arc<EpisodeTimeline>,
    open: Vec<Open>,
    next: Instant,
    /// Next fault and its duration; the fault waits until its target has recovered.
    decided: Option<(EpisodeFault, Duration)>,
    rested: [Instant; 4],
    /// Fault kinds that are still to occur, in random order. Refilled when empty, so that every kind occurs
    /// once before any repeats.
    deck: Vec<EpisodeKind>,
    /// Index of the node whose agent is never killed, so that its final memory reflects the whole run.
    pub(super) survivor: u8,
    /// True if product processes are killed; otherwise they are suspended, or another fault is chosen.
    pub(super) processes_die: bool,
    /// Number of store members.
    members: u8,
}

#[derive(Debug)]
struct Open {
    fault: EpisodeFault,
    until: Instant,
    place: usize,
}

impl Faults {
    pub(super) fn new(seed: u64, rhythm: &Rhythm, members: u8, timeline: &Arc<EpisodeTimeline>) -> Self {
        let now = Instant::now();
        let mut random = Random::new(seed, 0);
        let survivor = 1 + u8::try_from(random.below(3)).unwrap_or(0);
        Self {
            random,
            rhythm: rhythm.clone(),
            timeline: Arc::clone(timeline),
            open: Vec::new(),
            next: now,
            decided: None,
            rested: [now; 4],
            deck: Vec::new(),
            survivor,
            processes_die: true,
            members,
        }
    }

    /// Reverts the faults whose duration has passed. Starts the next fault if its start time has come, its
    /// target has recovered, and fewer than [`TOGETHER_MAX`] faults are active. Returns the started fault, if
    /// any.
    pub(super) fn turn(&mut self, stage: &mut Stage) -> Result<Option<EpisodeFault>> {
        let now = Instant::now();
        while let Some(at) = self.open.iter().position(|open| open.until <= now) {
            let open = self.open.remove(at);
            self.mend(stage, &open)?;
        }
        if now < self.next || self.open.len() >= TOGETHER_MAX {
            return Ok(None);
        }
        let (fault, lasts) = self.decide();
        if self.rested[usize::from(fault.node)] > now {
            return Ok(None);
        }
        self.decided = None;
        self.next = now + self.random.millis(self.rhythm.between_ms.0, self.rhythm.between_ms.1);
        let place = self.timeline.begin(fault);
        self.strike(stage, fault).with_context(|| fault.to_string())?;
        if fault.kind.is_moment() {
            self.timeline.end(place);
            self.rest(fault);
        } else {
            // No other fault affects the target meanwhile.
            self.rested[usize::from(fault.node)] = now + lasts + Duration::from_millis(self.rhythm.rest_ms);
            self.open.push(Open { fault, until: now + lasts, place });
        }
        Ok(Some(fault))
    }

    /// Reverts all active faults.
    pub(super) fn mend_all(&mut self, stage: &mut Stage) -> Result<()> {
        while let Some(open) = self.open.pop() {
            self.mend(stage, &open)?;
        }
        Ok(())
    }

    fn decide(&mut self) -> (EpisodeFault, Duration) {
        if let Some(decided) = self.decided {
            return decided;
        }
        let fault = self.choose();
        let lasts = self.random.millis(self.rhythm.lasts_ms.0, self.rhythm.lasts_ms.1);
        *self.decided.insert((fault, lasts))
    }

    fn choose(&mut self) -> EpisodeFault {
        if self.deck.is_empty() {
            self.deck = kinds(self.members);
        }
        let kind = self.deck.swap_remove(self.random.index(self.deck.len()));
        let mut node = 1 + u8::try_from(self.random.below(3)).unwrap_or(0);
        let kind = match kind {
            EpisodeKind::ControlKilled if !self.processes_die => EpisodeKind::ControlPaused,
            EpisodeKind::AgentKilled if !self.processes_die => EpisodeKind::AgentPaused,
            EpisodeKind::RelayKilled if !self.processes_die => EpisodeKind::FlowsFlushed,
            EpisodeKind::AgentKilled if node == self.survivor => {
                node = node % 3 + 1;
                kind
            }
            EpisodeKind::ControlKilled
            | EpisodeKind::ControlPaused
            | EpisodeKind::AgentKilled
            | EpisodeKind::AgentPaused
            | EpisodeKind::Unplugged
            | EpisodeKind::CutOff
            | EpisodeKind::Reset
            | EpisodeKind::RulesFlushed
            | EpisodeKind::RuleDeleted
            | EpisodeKind::RelayKilled
            | EpisodeKind::FlowsFlushed
            | EpisodeKind::MemberKilled => kind,
        };
        match kind {
            EpisodeKind::ControlKilled
            | EpisodeKind::ControlPaused
            | EpisodeKind::Reset
            | EpisodeKind::MemberKilled => EpisodeFault { kind, node: 0 },
            EpisodeKind::RelayKilled => EpisodeFault { kind, node: 3 },
            EpisodeKind::AgentKilled
            | EpisodeKind::AgentPaused
            | EpisodeKind::Unplugged
            | EpisodeKind::CutOff
            | EpisodeKind::RulesFlushed
            | EpisodeKind::RuleDeleted
            | EpisodeKind::FlowsFlushed => EpisodeFault { kind, node },
        }
    }

    fn strike(&mut self, stage: &mut Stage, fault: EpisodeFault) -> Result<()> {
        let name = format!("node{}", fault.node);
        match fault.kind {
            EpisodeKind::ControlKilled => stage.cluster.server.kill(),
            EpisodeKind::ControlPaused => stage.cluster.server.pause()?,
            EpisodeKind::AgentKilled => agent(stage, &name)?.kill(),
            EpisodeKind::AgentPaused => agent(stage, &name)?.pause()?,
            EpisodeKind::Unplugged => stage.cluster.topology.plug(&name, false)?,
            EpisodeKind::CutOff => {
                let [v4, v6] = node_addresses(fault.node);
                let hooks = ["input", "output"].map(|hook| {
                    let end = if hook == "input" { "saddr" } else { "daddr" };
                    format!("chain {hook} {{ type filter hook {hook} priority 0; ip {end} {v4} drop; ip6 {end} {v6} drop; }}")
                });
                let rules = format!("table inet soak-{name} {{\n{}\n{}\n}}\n", hooks[0], hooks[1]);
                crate::host::kernel::load(&stage.cluster.topology.control, &rules)?;
            }
            EpisodeKind::Reset => {
                let [first, last] = [1, 3].map(|index| node_addresses(index)[0]);
                let rules = format!(
                    "table inet soak-reset {{\nchain input {{ type filter hook input priority 0; \
                     ip saddr {first}-{last} tcp dport 7440 reject with tcp reset; }}\n}}\n"
                );
                crate::host::kernel::load(&stage.cluster.topology.control, &rules)?;
            }
            EpisodeKind::RulesFlushed => _ = stage.cluster.place(&name)?.run("nft", &["flush", "ruleset"])?,
            EpisodeKind::RuleDeleted => self.delete_some_rule(stage, &name)?,
            EpisodeKind::RelayKilled => {
                let relay = stage::relay(stage.cluster.place(&name)?)?;
                if let Some(pid) = relay {
                    let pid = crate::host::registry::as_pid(pid);
                    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
                        .context("killing the relay")?;
                }
            }
            EpisodeKind::FlowsFlushed => _ = stage.cluster.place(&name)?.run("conntrack", &["-F"])?,
            EpisodeKind::MemberKilled => {
                // One at a time: with two of three killed, the store would lose its quorum.
                let at = self.random.index(stage.cluster.members.len());
                stage.cluster.members.get_mut(at).context("the store has no members")?.kill();
            }
        }
        Ok(())
    }

    fn mend(&mut self, stage: &mut Stage, open: &Open) -> Result<()> {
        let name = format!("node{}", open.fault.node);
        match open.fault.kind {
            EpisodeKind::ControlKilled => stage.cluster.server.start_again()?,
            EpisodeKind::ControlPaused => stage.cluster.server.go_on()?,
            EpisodeKind::AgentKilled => agent(stage, &name)?.start_again()?,
            EpisodeKind::AgentPaused => agent(stage, &name)?.go_on()?,
            EpisodeKind::Unplugged => stage.cluster.topology.plug(&name, true)?,
            EpisodeKind::CutOff => delete_table(stage, &format!("soak-{name}"))?,
            EpisodeKind::Reset => delete_table(stage, "soak-reset")?,
            EpisodeKind::MemberKilled => {
                for member in stage.cluster.members.iter_mut().filter(|member| member.pid().is_none()) {
                    member.start_again()?;
                }
            }
            EpisodeKind::RulesFlushed
            | EpisodeKind::RuleDeleted
            | EpisodeKind::RelayKilled
            | EpisodeKind::FlowsFlushed => {}
        }
        self.timeline.end(open.place);
        self.rest(open.fault);
        Ok(())
    }

    fn rest(&mut self, fault: EpisodeFault) {
        self.rested[usize::from(fault.node)] = Instant::now() + Duration::from_millis(self.rhythm.rest_ms);
    }

    /// Damages the agent's nftables or iptables rules on a node: flushes a random chain or map, or deletes
    /// the first rule of a chain. If the selected object disappears meanwhile, another one is selected.
    fn delete_some_rule(&mut self, stage: &Stage, node: &str) -> Result<()> {
        // Drawn once, so that later decisions do not depend on the number of attempts.
        let (mut random, is_emptied) = (Random::new(self.random.below(u64::MAX), 0), self.random.chance(50));
        let mut tries_left = BLOWS_MAX;
        loop {
            tries_left -= 1;
            match delete_some_rule(stage.cluster.place(node)?, node, &mut random, is_emptied) {
                Err(_) if tries_left > 0 => {}
                done => return done,
            }
        }
    }

    /// Returns true if an active fault has killed or suspended the control server, so that it cannot respond.
    pub(super) fn is_control_away(&self) -> bool {
        let is_away =
            |kind: EpisodeKind| matches!(kind, EpisodeKind::ControlKilled | EpisodeKind::ControlPaused);
        self.open.iter().any(|open| is_away(open.fault.kind))
    }

    /// Returns true if an active fault has killed the agent of this node or, for node 0, the control server,
    /// so that the end of the process is no defect.
    pub(super) fn is_killed(&self, node: u8) -> bool {
        let is_death =
            |kind: EpisodeKind| matches!(kind, EpisodeKind::ControlKilled | EpisodeKind::AgentKilled);
        self.open.iter().any(|open| open.fault.node == node && is_death(open.fault.kind))
    }
}

/// Returns the kinds of fault that a cluster with `members` etcd members can have.
pub fn kinds(members: u8) -> Vec<EpisodeKind> {
    KINDS.into_iter().filter(|kind| *kind != EpisodeKind::MemberKilled || members > 0).collect()
}

fn agent<'a>(stage: &'a mut Stage, name: &str) -> Result<&'a mut Process> {
    stage.cluster.agents.get_mut(name).with_context(|| format!("no agent was started on {name}"))
}

fn delete_table(stage: &Stage, table: &str) -> Result<()> {
    stage.cluster.topology.control.run("nft", &["delete", "table", "inet", table]).map(drop)
}

fn delete_some_rule(place: &Namespace, node: &str, random: &mut Random, is_emptied: bool) -> Result<()> {
    let turn = MODES.iter().zip(1..).find(|(_, number)| node == format!("node{number}"));
    if turn.is_some_and(|(mode, _)| *mode == "iptables") {
        let saved = place.run("iptables-nft-save", &["-t", "nat"])?;
        let mut chains: Vec<_> =
            saved.lines().filter_map(|line| line.strip_prefix("-A ")?.split(' ').next()).collect();
        chains.dedup();
        ensure!(!chains.is_empty(), "{node} has no rules");
        let chain = chains[random.index(chains.len())];
        let words =
            if is_emptied { vec!["-t", "nat", "-F", chain] } else { vec!["-t", "nat", "-D", chain, "1"] };
        return place.run("iptables-nft", &words).map(drop);
    }
    let table = if node == "node3" { "tidegate-userspace" } else { "tidegate" };
    let listing = place.run("nft", &["-t", "list", "table", "inet", table])?;
    let is_meant =
        |line: &&str| line.starts_with("map ") || line.starts_with("set ") || line.starts_with("chain ");
    let things: Vec<_> =
        listing.lines().map(str::trim).filter(is_meant).filter_map(|line| line.strip_suffix(" {")).collect();
    ensure!(!things.is_empty(), "{node} has no table {table}");
    let (kind, name) = things[random.index(things.len())].split_once(' ').context("a kind and a name")?;
    place.run("nft", &["flush", kind, "inet", table, name]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_faults_and_all_kinds_come_by_turns() {
        let rhythm = Rhythm { between_ms: (1, 2), lasts_ms: (1, 2), rest_ms: 1 };
        let chosen = |seed| {
            let mut faults = Faults::new(seed, &rhythm, 3, &Arc::default());
            (0..KINDS.len() * 3).map(|_| faults.choose()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(3), chosen(3));
        assert_ne!(chosen(3), chosen(4));
        for turn in chosen(3).chunks(KINDS.len()) {
            assert!(KINDS.iter().all(|kind| turn.iter().any(|fault| fault.kind == *kind)));
        }
        let survivor = Faults::new(3, &rhythm, 3, &Arc::default()).survivor;
        let is_spared =
            |fault: &EpisodeFault| fault.kind != EpisodeKind::AgentKilled || fault.node != survivor;
        assert!(chosen(3).iter().all(is_spared));
        let mut gentle = Faults { processes_die: false, ..Faults::new(3, &rhythm, 0, &Arc::default()) };
        let is_death = |kind| {
            [
                EpisodeKind::ControlKilled,
                EpisodeKind::AgentKilled,
                EpisodeKind::RelayKilled,
                EpisodeKind::MemberKilled,
            ]
            .contains(&kind)
        };
        assert!((0..KINDS.len() * 3).all(|_| !is_death(gentle.choose().kind)));
    }
}
