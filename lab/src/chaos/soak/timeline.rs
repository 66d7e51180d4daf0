//! Which fault was in force when, and what each of them may cost clients.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// The control server gets SIGKILL, and is started again.
    ControlKilled,
    /// The control server is stopped (SIGSTOP), and goes on.
    ControlPaused,
    /// An agent gets SIGKILL, and is started again.
    AgentKilled,
    /// An agent is stopped (SIGSTOP), and goes on.
    AgentPaused,
    /// A Node's cable is pulled, and put back.
    Unplugged,
    /// A Node and the control server do not hear each other.
    CutOff,
    /// All connections of agents to the control server are reset.
    Reset,
    /// Somebody removes all rules of a Node, ours too.
    RulesFlushed,
    /// Somebody deletes one of our rules, or empties one of our chains or maps.
    RuleDeleted,
    /// The relay of a Node in userspace mode gets SIGKILL.
    RelayKilled,
    /// Somebody empties the connection tracking of a Node.
    FlowsFlushed,
    /// A member of the store, which is etcd, gets SIGKILL, and is started again.
    MemberKilled,
}

/// All kinds; the last one takes a store that has members.
pub const KINDS: [Kind; 12] = [
    Kind::ControlKilled,
    Kind::ControlPaused,
    Kind::AgentKilled,
    Kind::AgentPaused,
    Kind::Unplugged,
    Kind::CutOff,
    Kind::Reset,
    Kind::RulesFlushed,
    Kind::RuleDeleted,
    Kind::RelayKilled,
    Kind::FlowsFlushed,
    Kind::MemberKilled,
];

/// Which clients may lose connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Nobody.
    Nobody,
    /// Those who come by an address that is announced: another Node has to take it over.
    Announced,
    /// Those whose traffic goes through that Node, and those who come by an announced address, because that may be there.
    ThroughNode,
    /// Everybody: endpoints are out of reach, and nobody says so.
    Everybody,
}

impl Kind {
    /// Which clients it may cost connections.
    #[must_use]
    pub const fn harm(self) -> Harm {
        match self {
            Self::ControlKilled | Self::ControlPaused | Self::CutOff | Self::Reset | Self::MemberKilled => {
                Harm::Nobody
            }
            Self::AgentKilled | Self::AgentPaused => Harm::Announced,
            Self::RulesFlushed | Self::RuleDeleted | Self::RelayKilled | Self::FlowsFlushed => {
                Harm::ThroughNode
            }
            Self::Unplugged => Harm::Everybody,
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ControlKilled => "control killed",
            Self::ControlPaused => "control stopped",
            Self::AgentKilled => "agent killed",
            Self::AgentPaused => "agent stopped",
            Self::Unplugged => "cable pulled",
            Self::CutOff => "cut off from control",
            Self::Reset => "connections to control reset",
            Self::RulesFlushed => "rules flushed",
            Self::RuleDeleted => "rules deleted",
            Self::RelayKilled => "relay killed",
            Self::FlowsFlushed => "connection tracking emptied",
            Self::MemberKilled => "member of the store killed",
        }
    }

    /// Whether it is over at once; only what it did has to be repaired.
    #[must_use]
    pub const fn is_moment(self) -> bool {
        matches!(self, Self::RulesFlushed | Self::RuleDeleted | Self::RelayKilled | Self::FlowsFlushed)
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// The number of the Node; 0 for the control server and its store.
    pub node: u8,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            0 => f.write_str(self.kind.name()),
            node => write!(f, "node{node}: {}", self.kind.name()),
        }
    }
}

/// How long after a fault connections may still be lost, on a busy machine: rules are read again, peers and routers notice, agents
/// start.
const AFTERMATH: Duration = Duration::from_secs(15);

/// By which way a client reaches a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The number of the Node whose rules decide; 0: any, by an address that is announced.
    pub node: u8,
}

/// A fault and its time.
#[derive(Debug, Clone, Copy)]
pub struct Episode {
    /// What.
    pub fault: Fault,
    /// When it was done.
    pub begun: Instant,
    /// When it was undone.
    pub ended: Option<Instant>,
}

impl Episode {
    /// Whether a connection that failed between two times may have been lost because of this.
    fn excuses(&self, way: Way, begun: Instant, ended: Instant) -> bool {
        let is_then = self.begun <= ended && self.ended.is_none_or(|over| begun <= over + AFTERMATH);
        let is_hit = match self.fault.kind.harm() {
            Harm::Nobody => false,
            Harm::Announced => way.node == 0,
            Harm::ThroughNode => way.node == 0 || way.node == self.fault.node,
            Harm::Everybody => true,
        };
        is_then && is_hit
    }
}

/// All faults so far.
#[derive(Debug, Default)]
pub struct Timeline(Mutex<Vec<Episode>>);

impl Timeline {
    /// A fault begins; answers its place.
    pub fn begin(&self, fault: Fault) -> usize {
        let mut all = self.lock();
        all.push(Episode { fault, begun: Instant::now(), ended: None });
        all.len() - 1
    }

    /// The fault of a place is over.
    pub fn end(&self, place: usize) {
        if let Some(episode) = self.lock().get_mut(place) {
            episode.ended = Some(Instant::now());
        }
    }

    /// All of them, in the order of their beginnings.
    #[must_use]
    pub fn all(&self) -> Vec<Episode> {
        self.lock().clone()
    }

    /// The kind of the last fault that may have cost a connection.
    #[must_use]
    pub fn excuse(&self, way: Way, begun: Instant, ended: Instant) -> Option<Kind> {
        let all = self.lock();
        let excuse = all.iter().rev().find(|episode| episode.excuses(way, begun, ended));
        excuse.map(|episode| episode.fault.kind)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Episode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_fault_may_cost_is_excused() {
        let timeline = Timeline::default();
        let now = Instant::now;
        let (first, second, announced) = (Way { node: 1 }, Way { node: 2 }, Way { node: 0 });
        timeline.begin(Fault { kind: Kind::ControlKilled, node: 0 });
        assert_eq!(timeline.excuse(announced, now(), now()), None);
        let begun = now();
        let place = timeline.begin(Fault { kind: Kind::RulesFlushed, node: 1 });
        timeline.end(place);
        assert_eq!(timeline.excuse(first, begun, now()), Some(Kind::RulesFlushed));
        assert_eq!(timeline.excuse(second, begun, now()), None);
        assert_eq!(timeline.excuse(announced, begun, now()), Some(Kind::RulesFlushed));
        let later = now() + AFTERMATH + Duration::from_secs(1);
        assert_eq!(timeline.excuse(first, later, later), None);
    }
}
