//! Log of the faults in a soak test, used to determine if a fault explains a lost connection of a client.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Kind of fault in a soak test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EpisodeKind {
    /// Kill (SIGKILL) of the control server, which is then restarted.
    ControlKilled,
    /// Suspension (SIGSTOP) of the control server, which is then resumed.
    ControlPaused,
    /// Kill (SIGKILL) of an agent, which is then restarted.
    AgentKilled,
    /// Suspension (SIGSTOP) of an agent, which is then resumed.
    AgentPaused,
    /// Loss of a Node's link, which is set down and later up again.
    Unplugged,
    /// Loss of all packets between a Node and the control server.
    CutOff,
    /// Reset of all existing connections between agents and the control server.
    Reset,
    /// Flush of all rules of a Node, including those of Tidegate.
    RulesFlushed,
    /// Deletion of one of Tidegate's rules, or flush of one of its chains or maps.
    RuleDeleted,
    /// Kill (SIGKILL) of the relay of a Node in userspace mode.
    RelayKilled,
    /// Flush of the conntrack table of a Node.
    FlowsFlushed,
    /// Kill (SIGKILL) of a member of the etcd store, which is then restarted.
    MemberKilled,
}

/// Every kind of fault; the last one requires an etcd store.
pub const KINDS: [EpisodeKind; 12] = [
    EpisodeKind::ControlKilled,
    EpisodeKind::ControlPaused,
    EpisodeKind::AgentKilled,
    EpisodeKind::AgentPaused,
    EpisodeKind::Unplugged,
    EpisodeKind::CutOff,
    EpisodeKind::Reset,
    EpisodeKind::RulesFlushed,
    EpisodeKind::RuleDeleted,
    EpisodeKind::RelayKilled,
    EpisodeKind::FlowsFlushed,
    EpisodeKind::MemberKilled,
];

/// Group of clients that may lose connections because of a fault. All other clients must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// No client, because the fault does not affect traffic.
    Nobody,
    /// Clients of announced addresses, until another Node announces them.
    Announced,
    /// Clients whose traffic passes the Node, and clients of announced addresses, because the Node may be
    /// their announcer.
    ThroughNode,
    /// All clients, because endpoints become unreachable and the control server does not detect this.
    Everybody,
}

impl EpisodeKind {
    /// Returns the clients that may lose connections because of the fault.
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

    /// Returns the name of the kind in messages and tables.
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

    /// Returns true if the fault has no duration, such as a flush of rules, so that it need not be ended but
    /// only repaired.
    #[must_use]
    pub const fn is_moment(self) -> bool {
        matches!(self, Self::RulesFlushed | Self::RuleDeleted | Self::RelayKilled | Self::FlowsFlushed)
    }
}

/// Fault and the node that it affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeFault {
    /// Kind of the fault.
    pub kind: EpisodeKind,
    /// Index of the Node; 0 for the control server and its store.
    pub node: u8,
}

impl fmt::Display for EpisodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            0 => f.write_str(self.kind.name()),
            node => write!(f, "node{node}: {}", self.kind.name()),
        }
    }
}

/// Time after a fault in which connections may still be lost on a busy machine, because rules are repaired,
/// peers and routers detect the failure, or agents start.
const AFTERMATH: Duration = Duration::from_secs(15);

/// Path of a client's connections to a Service. Determines the faults that can interrupt them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Index of the Node whose rules select the endpoint; 0 for an announced address, because any Node may
    /// announce it.
    pub node: u8,
}

/// Fault with the times of its start and end.
#[derive(Debug, Clone, Copy)]
pub struct Episode {
    /// Fault with its kind and node.
    pub fault: EpisodeFault,
    /// Start of the fault.
    pub begun: Instant,
    /// End of the fault; `None` while it is active.
    pub ended: Option<Instant>,
}

impl Episode {
    /// Returns true if this fault may explain that a connection over the path `way` failed between `begun`
    /// and `ended`.
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

/// Faults of the test so far, in the order of their starts, shared by all threads.
#[derive(Debug, Default)]
pub struct EpisodeTimeline(Mutex<Vec<Episode>>);

impl EpisodeTimeline {
    /// Records the start of a fault and returns its index.
    pub fn begin(&self, fault: EpisodeFault) -> usize {
        let mut all = self.lock();
        all.push(Episode { fault, begun: Instant::now(), ended: None });
        all.len() - 1
    }

    /// Records the end of the fault with the index that [`Self::begin`] returned.
    pub fn end(&self, place: usize) {
        if let Some(episode) = self.lock().get_mut(place) {
            episode.ended = Some(Instant::now());
        }
    }

    /// Returns all faults in the order of their starts.
    #[must_use]
    pub fn all(&self) -> Vec<Episode> {
        self.lock().clone()
    }

    /// Returns the kind of the last fault that may explain that a connection over the path `way` failed
    /// between `begun` and `ended`; `None` if no fault explains it.
    #[must_use]
    pub fn excuse(&self, way: Way, begun: Instant, ended: Instant) -> Option<EpisodeKind> {
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
        let timeline = EpisodeTimeline::default();
        let now = Instant::now;
        let (first, second, announced) = (Way { node: 1 }, Way { node: 2 }, Way { node: 0 });
        timeline.begin(EpisodeFault { kind: EpisodeKind::ControlKilled, node: 0 });
        assert_eq!(timeline.excuse(announced, now(), now()), None);
        let begun = now();
        let place = timeline.begin(EpisodeFault { kind: EpisodeKind::RulesFlushed, node: 1 });
        timeline.end(place);
        assert_eq!(timeline.excuse(first, begun, now()), Some(EpisodeKind::RulesFlushed));
        assert_eq!(timeline.excuse(second, begun, now()), None);
        assert_eq!(timeline.excuse(announced, begun, now()), Some(EpisodeKind::RulesFlushed));
        let later = now() + AFTERMATH + Duration::from_secs(1);
        assert_eq!(timeline.excuse(first, later, later), None);
    }
}
