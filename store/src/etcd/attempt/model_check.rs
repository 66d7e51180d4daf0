//! Bounded model checking of commits: several processes execute [`Attempt`] against a model of etcd, in every
//! order of steps. Requests may be delayed, replies may be lost, processes may stop at any time, leaders fold and
//! trim the log, and etcd may be compacted.
//!
//! The state machine is the real one. The keys `head`, `log` and `base` and their transactions are modeled; the
//! tests in `replay` execute traces of the model with etcd and compare.

use model::primitives::quantity::{Epoch, Position, Revision};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use super::{Attempt, Outcome, Reply, Request, SeenEntry, SeenState, Step};
use crate::etcd::read::Head;

/// Number of commits that trimming keeps in the log.
pub(super) const LOG_KEPT: u64 = 1;

/// Bounds and rules of the model.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    /// Numbers of commits of the groups of each process, in order. A process decides a group anew after a
    /// conflict, as the control server does.
    pub(super) groups: Vec<Vec<u64>>,
    /// Maximum number of groups decided by each process.
    pub(super) decisions_max: u8,
    /// Maximum number of requests without a reply.
    pub(super) losses_max: u8,
    /// Number of leaders at the same time.
    pub(super) leaders: usize,
    /// Rule that is broken, or `None` for the rules of the product.
    pub(super) broken: Option<BrokenRule>,
}

/// Rule of the protocol that a mutant of the model breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrokenRule {
    /// A missing log entry counts as a conflict even if the log was trimmed.
    TrimmedIsLost,
    /// A lost reply counts as a conflict, without fencing.
    LostReplyIsLost,
    /// Any log entry at the revision counts as one of this commit.
    EveryEntryIsOwn,
    /// Commits do not compare the version of `head`.
    CommitWithoutComparison,
    /// Folding does not compare the version of `base`.
    FoldWithoutComparison,
    /// Trimming deletes log entries that were not folded.
    TrimBeyondBase,
}

/// State of etcd, of the processes that use the store, and of the network between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    pub(super) etcd: EtcdModel,
    pub(super) writers: Vec<WriterModel>,
    /// Requests without a reply that etcd may still execute.
    pub(super) delayed: Vec<CommitRequest>,
    pub(super) leaders: Vec<Leader>,
    losses: u8,
    /// Reports to the callers of commits.
    reports: Vec<(GroupId, Report)>,
}

/// Modeled content of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EtcdModel {
    /// Revision of etcd, counted from the creation of the store.
    pub(super) revision: i64,
    /// Oldest etcd revision that can be read.
    compacted: i64,
    pub(super) head: Head,
    /// Groups that were committed, in this order. Contains the log and etcd's history.
    pub(super) groups: Vec<StoredGroup>,
    /// Folded revision, with the version of the key `base`.
    pub(super) base: (u64, i64),
    /// Revision of the newest change in the folded objects.
    pub(super) objects: u64,
}

/// Identity of a group that a process decided: process, and number of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GroupId(pub(super) usize, pub(super) u8);

/// Request of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CommitRequest {
    pub(super) id: GroupId,
    /// Revision of the position of the decision.
    pub(super) at: u64,
    /// Revision of the last commit of the group.
    pub(super) last: u64,
    pub(super) request: Request,
}

/// Group that was committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StoredGroup {
    pub(super) id: GroupId,
    first: u64,
    pub(super) last: u64,
    version: i64,
    trimmed_at: Option<i64>,
}

/// Process that commits groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WriterModel {
    decided: u8,
    /// Number of groups that were committed or given up.
    finished: usize,
    pub(super) attempt: Option<Attempt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Leader {
    Idle,
    /// The log was read up to this revision, when `base` had this version.
    Read {
        through: u64,
        base_version: i64,
    },
    /// The log was folded, with this version of `base`.
    Folded {
        base: u64,
        base_version: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Report {
    /// Success, with the correct or a wrong etcd revision.
    Committed {
        is_version_correct: bool,
    },
    Conflict,
    Unknown,
}

/// Step of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A process reads the head and decides its next group.
    Decide(usize),
    /// etcd executes the request of a process and replies.
    Execute(usize),
    /// etcd executes the request of a process; the reply is lost.
    LoseReply(usize),
    /// The request of a process is delayed beyond the timeout of the call.
    Delay(usize),
    /// etcd executes a delayed request.
    ExecuteDelayed(usize),
    /// A process stops, or its patience ends; the caller learns no outcome.
    Stop(usize),
    /// A leader reads base and log.
    ReadLog(usize),
    /// A leader writes objects and base.
    Fold(usize),
    /// A leader deletes old log entries.
    Trim(usize),
    /// etcd deletes its history before the present.
    Compact,
}

fn position(revision: u64) -> Position {
    Position { epoch: Epoch(1), revision: Revision(revision) }
}

impl EtcdModel {
    fn new() -> Self {
        let head = Head { position: position(0), version: 1, at: 1 };
        Self { revision: 1, compacted: 0, head, groups: Vec::new(), base: (0, 1), objects: 0 }
    }

    fn next(&mut self) -> i64 {
        self.revision += 1;
        self.revision
    }

    pub(super) fn log(&self) -> impl Iterator<Item = &StoredGroup> {
        self.groups.iter().filter(|group| group.trimmed_at.is_none())
    }

    pub(super) fn execute(&mut self, broken: Option<BrokenRule>, sent: CommitRequest) -> Reply {
        let CommitRequest { id, at: before, last, request } = sent;
        let has_version = |expected| expected == self.head.version;
        match request {
            Request::Commit { head_version }
                if has_version(head_version) || broken == Some(BrokenRule::CommitWithoutComparison) =>
            {
                let version = self.next();
                self.head = Head { position: position(last), version, at: version };
                self.groups.push(StoredGroup { id, first: before + 1, last, version, trimmed_at: None });
                Reply::Written(version)
            }
            Request::Fence { head_version } if has_version(head_version) => {
                self.head.version = self.next();
                Reply::Written(self.head.version)
            }
            Request::Commit { .. } | Request::Fence { .. } => Reply::Seen(self.seen(id, last, self.revision)),
            Request::Read { at } if at < self.compacted => Reply::Compacted,
            Request::Read { at } => Reply::Seen(self.seen(id, last, at)),
        }
    }

    /// Returns the state of the store as of an etcd revision.
    fn seen(&self, id: GroupId, last: u64, at: i64) -> SeenState {
        let exists =
            |group: &&StoredGroup| group.version <= at && group.trimmed_at.is_none_or(|trimmed| trimmed > at);
        let log = || self.groups.iter().filter(exists);
        let entry = log().rfind(|group| group.last == last);
        let revision = self.groups.iter().rfind(|group| group.version <= at).map_or(0, |group| group.last);
        // The version of a past head is not used.
        let version = if at == self.revision { self.head.version } else { 0 };
        SeenState {
            head: Head { position: position(revision), version, at },
            entry: entry.map(|group| SeenEntry { is_own: group.id == id, version: group.version }),
            log_start: log().map(|group| Revision(group.last)).min(),
        }
    }

    /// Returns the revision of the newest change that a reader finds, or `None` if the log has a gap.
    pub(super) fn loaded(&self) -> Option<u64> {
        let mut newest = self.base.0.max(self.objects);
        let mut through = self.base.0;
        for group in self.log().filter(|group| group.last > self.base.0) {
            if group.first > through + 1 {
                return None;
            }
            (newest, through) = (group.last, group.last);
        }
        (through == self.head.position.revision.0).then_some(newest)
    }
}

impl ModelState {
    /// Returns the groups that are searched in etcd's history.
    fn searched(&self) -> impl Iterator<Item = GroupId> {
        let searching = self.writers.iter().enumerate().filter(|(_, writer)| writer.is_searching());
        searching.map(|(number, writer)| GroupId(number, writer.decided))
    }
}

impl WriterModel {
    /// True if the process searches its group in etcd's history.
    pub(super) fn is_searching(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| matches!(attempt.step, Step::Search(_)))
    }

    /// Returns the request of the process `number`.
    pub(super) fn sent(&self, number: usize) -> Option<CommitRequest> {
        let attempt = self.attempt.as_ref()?;
        let (at, last) = (attempt.at.revision.0, attempt.last.0);
        Some(CommitRequest { id: GroupId(number, self.decided), at, last, request: attempt.request() })
    }
}

impl Cluster {
    /// Passes a reply to the state machine of a process, and records the report to the caller.
    fn reply(&self, state: &mut ModelState, writer: usize, reply: Reply) {
        let id = GroupId(writer, state.writers[writer].decided);
        let Some(attempt) = &mut state.writers[writer].attempt else { return };
        let mut reply = reply;
        if let (Some(BrokenRule::EveryEntryIsOwn), Reply::Seen(SeenState { entry: Some(entry), .. })) =
            (self.broken, &mut reply)
        {
            entry.is_own = true;
        }
        let mut outcome = attempt.handle(reply);
        match (self.broken, attempt.step) {
            (Some(BrokenRule::TrimmedIsLost), Step::Search(search)) => {
                outcome = Some(Outcome::Lost(search.now))
            }
            (Some(BrokenRule::LostReplyIsLost), Step::Fence { .. }) => {
                outcome = Some(Outcome::Lost(state.etcd.head));
            }
            (_, Step::Commit { .. } | Step::Fence { .. } | Step::Search(_)) => {}
        }
        let Some(outcome) = outcome else { return };
        let report = match outcome {
            Outcome::Landed(version) => {
                let landed = state.etcd.groups.iter().find(|group| group.id == id);
                let is_version_correct = landed.is_some_and(|group| group.version == version);
                Report::Committed { is_version_correct }
            }
            Outcome::Lost(_) => Report::Conflict,
            Outcome::Unknown => Report::Unknown,
        };
        let writer = &mut state.writers[writer];
        writer.attempt = None;
        writer.finished += usize::from(report != Report::Conflict);
        state.reports.push((id, report));
        state.reports.sort_by_key(|(id, _)| (id.0, id.1));
    }

    fn lead(&self, state: &mut ModelState, action: &Action) {
        let etcd = &mut state.etcd;
        match *action {
            Action::ReadLog(leader) => {
                let (through, base_version) = (etcd.head.position.revision.0, etcd.base.1);
                state.leaders[leader] = Leader::Read { through, base_version };
            }
            Action::Fold(leader) => {
                let Leader::Read { through, base_version } = state.leaders[leader] else { return };
                state.leaders[leader] = Leader::Idle;
                if base_version == etcd.base.1 || self.broken == Some(BrokenRule::FoldWithoutComparison) {
                    let version = etcd.next();
                    (etcd.base, etcd.objects) = ((through, version), through);
                    state.leaders[leader] = Leader::Folded { base: through, base_version: version };
                }
            }
            Action::Trim(leader) => {
                let Leader::Folded { base, base_version } = state.leaders[leader] else { return };
                state.leaders[leader] = Leader::Idle;
                let before = state.etcd.trim_before(base, self.broken);
                if base_version == state.etcd.base.1 {
                    state.etcd.trim(before);
                }
            }
            Action::Decide(_)
            | Action::Execute(_)
            | Action::LoseReply(_)
            | Action::Delay(_)
            | Action::ExecuteDelayed(_)
            | Action::Stop(_)
            | Action::Compact => {}
        }
    }
}

impl EtcdModel {
    /// Returns the first revision of the log that trimming keeps; groups that end before it are deleted.
    pub(super) fn trim_before(&self, base: u64, broken: Option<BrokenRule>) -> u64 {
        let oldest = (self.head.position.revision.0 + 1).saturating_sub(LOG_KEPT);
        if broken == Some(BrokenRule::TrimBeyondBase) { oldest } else { oldest.min(base + 1) }
    }

    fn trim(&mut self, before: u64) {
        if self.log().any(|group| group.last < before) {
            let at = self.next();
            let outdated = |group: &&mut StoredGroup| group.trimmed_at.is_none() && group.last < before;
            self.groups.iter_mut().filter(outdated).for_each(|group| group.trimmed_at = Some(at));
        }
    }
}

impl Model for Cluster {
    type State = ModelState;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState> {
        let writer = WriterModel { decided: 0, finished: 0, attempt: None };
        vec![ModelState {
            etcd: EtcdModel::new(),
            writers: vec![writer; self.groups.len()],
            delayed: Vec::new(),
            leaders: vec![Leader::Idle; self.leaders],
            losses: 0,
            reports: Vec::new(),
        }]
    }

    fn actions(&self, state: &ModelState, actions: &mut Vec<Action>) {
        for (number, writer) in state.writers.iter().enumerate() {
            match &writer.attempt {
                Some(attempt) => {
                    actions.push(Action::Execute(number));
                    if state.losses < self.losses_max {
                        actions.push(Action::Stop(number));
                        // A read has no effect, so that only its reply matters.
                        actions.push(Action::LoseReply(number));
                        if !matches!(attempt.request(), Request::Read { .. }) {
                            actions.push(Action::Delay(number));
                        }
                    }
                }
                None if writer.decided < self.decisions_max
                    && writer.finished < self.groups[number].len() =>
                {
                    actions.push(Action::Decide(number));
                }
                None => {}
            }
        }
        actions.extend((0..state.delayed.len()).map(Action::ExecuteDelayed));
        for (number, leader) in state.leaders.iter().enumerate() {
            match leader {
                Leader::Idle if state.etcd.base.0 < state.etcd.head.position.revision.0 => {
                    actions.push(Action::ReadLog(number));
                }
                Leader::Idle => {}
                Leader::Read { .. } => actions.push(Action::Fold(number)),
                Leader::Folded { .. } => actions.push(Action::Trim(number)),
            }
        }
        // Compaction matters only for a search in the past.
        let is_searched = state.writers.iter().any(WriterModel::is_searching);
        if is_searched && state.etcd.compacted < state.etcd.revision {
            actions.push(Action::Compact);
        }
    }

    fn next_state(&self, before: &ModelState, action: Action) -> Option<ModelState> {
        let mut state = before.clone();
        match action {
            Action::Decide(number) => {
                let writer = &mut state.writers[number];
                let (head, size) = (state.etcd.head, self.groups[number][writer.finished]);
                let last = Revision(head.position.revision.0 + size);
                writer.decided += 1;
                writer.attempt = Some(Attempt::new(head.position, last, head.version));
            }
            Action::Execute(number) => {
                let sent = state.writers[number].sent(number)?;
                let reply = state.etcd.execute(self.broken, sent);
                self.reply(&mut state, number, reply);
            }
            Action::LoseReply(number) => {
                let sent = state.writers[number].sent(number)?;
                let _ = state.etcd.execute(self.broken, sent);
                state.losses += 1;
                self.reply(&mut state, number, Reply::Lost);
            }
            Action::Delay(number) => {
                state.delayed.push(state.writers[number].sent(number)?);
                state.losses += 1;
                self.reply(&mut state, number, Reply::Lost);
            }
            Action::ExecuteDelayed(number) => {
                let sent = state.delayed.remove(number);
                let _ = state.etcd.execute(self.broken, sent);
            }
            Action::Stop(number) => {
                let writer = &mut state.writers[number];
                writer.attempt = None;
                writer.finished += 1;
                state.losses += 1;
            }
            Action::Compact => state.etcd.compacted = state.etcd.revision,
            Action::ReadLog(_) | Action::Fold(_) | Action::Trim(_) => self.lead(&mut state, &action),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn landed(state: &ModelState, id: GroupId) -> usize {
            state.etcd.groups.iter().filter(|group| group.id == id).count()
        }
        vec![
            Property::always("an acknowledged group is stored exactly once", |_, state: &ModelState| {
                state.reports.iter().all(|(id, report)| match report {
                    Report::Committed { is_version_correct } => {
                        *is_version_correct && landed(state, *id) == 1
                    }
                    Report::Conflict | Report::Unknown => true,
                })
            }),
            Property::always("a group reported as a conflict is never stored", |_, state: &ModelState| {
                state
                    .reports
                    .iter()
                    .all(|(id, report)| *report != Report::Conflict || landed(state, *id) == 0)
            }),
            Property::always("revisions have no gap and no duplicate", |_, state: &ModelState| {
                let mut newest = 0;
                state.etcd.groups.iter().all(|group| {
                    let follows = group.first == newest + 1;
                    newest = group.last;
                    follows
                }) && state.etcd.head.position.revision.0 == newest
            }),
            Property::always("a reader finds every commit", |_, state: &ModelState| {
                state.etcd.loaded() == Some(state.etcd.head.position.revision.0)
            }),
            Property::always("an outcome is unknown only after a compaction", |_, state: &ModelState| {
                state.etcd.compacted > 0 || state.reports.iter().all(|(_, report)| *report != Report::Unknown)
            }),
            Property::sometimes("a stored group is searched", |_, state: &ModelState| {
                state.searched().any(|id| landed(state, id) == 1)
            }),
            Property::sometimes("a group that was not stored is searched", |_, state: &ModelState| {
                state.searched().any(|id| landed(state, id) == 0)
            }),
            Property::sometimes("an outcome is unknown", |_, state: &ModelState| {
                state.reports.iter().any(|(_, report)| *report == Report::Unknown)
            }),
            Property::sometimes(
                "a delayed commit is stored after its process stopped",
                |_, state: &ModelState| {
                    let reported = |id| state.reports.iter().any(|(known, _)| *known == id);
                    let is_active = |id: GroupId| {
                        let writer = &state.writers[id.0];
                        writer.attempt.is_some() && writer.decided == id.1
                    };
                    state.etcd.groups.iter().any(|group| !reported(group.id) && !is_active(group.id))
                },
            ),
        ]
    }
}

/// Explores the model. Prints the number of its states, and the steps to each failure. Returns the names of the
/// properties that failed: those that must hold always and were refuted, and those that must hold sometimes and
/// never did.
fn explore(cluster: Cluster) -> Vec<&'static str> {
    let broken = cluster.broken;
    let mut builder = cluster.checker().threads(2);
    if broken.is_some() {
        builder = builder.finish_when(HasDiscoveries::AnyFailures);
    }
    let checker = builder.spawn_bfs().join();
    let mut discoveries = checker.discoveries();
    let mut failed = Vec::new();
    for property in checker.model().properties() {
        match (property.expectation, discoveries.remove(property.name)) {
            (Expectation::Always | Expectation::Eventually, None) | (Expectation::Sometimes, Some(_)) => {}
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                eprintln!("{}: {:?}", property.name, path.into_actions());
                failed.push(property.name);
            }
            // The search for the failure of a mutant ends before everything was met.
            (Expectation::Sometimes, None) if broken.is_some() => {}
            (Expectation::Sometimes, None) => failed.push(property.name),
        }
    }
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    eprintln!("{:?}: {states} states, at most {depth} steps", checker.model());
    failed
}

/// Returns the model of two processes with one group each, the second of two commits.
pub(super) fn two_processes(broken: Option<BrokenRule>) -> Cluster {
    Cluster { groups: vec![vec![1], vec![2]], decisions_max: 2, losses_max: 2, leaders: 1, broken }
}

#[test]
fn commits_are_stored_once_and_reported_correctly() {
    let small = two_processes(None);
    let mut models = vec![
        Cluster { leaders: 2, ..small.clone() },
        Cluster { groups: vec![vec![1, 1], vec![1]], ..small.clone() },
        Cluster { groups: vec![vec![1, 1], vec![2]], ..small.clone() },
    ];
    if std::env::var_os("TIDEGATE_SOAK").is_some() {
        models.push(Cluster { groups: vec![vec![2, 1], vec![1, 2]], ..small.clone() });
        models.push(Cluster { groups: vec![vec![1, 1], vec![2]], leaders: 2, ..small.clone() });
        models.push(Cluster { groups: vec![vec![1], vec![2], vec![1]], ..small });
    }
    for model in models {
        assert_eq!(explore(model), [""; 0]);
    }
}

#[test]
fn each_broken_rule_is_found() {
    use BrokenRule::{
        CommitWithoutComparison, EveryEntryIsOwn, FoldWithoutComparison, LostReplyIsLost, TrimBeyondBase,
        TrimmedIsLost,
    };
    const STORED: &str = "an acknowledged group is stored exactly once";
    const CONFLICT: &str = "a group reported as a conflict is never stored";
    const FOLLOW: &str = "revisions have no gap and no duplicate";
    const FOUND: &str = "a reader finds every commit";
    for (broken, expected) in [
        (TrimmedIsLost, CONFLICT),
        (LostReplyIsLost, CONFLICT),
        (EveryEntryIsOwn, STORED),
        (CommitWithoutComparison, FOLLOW),
        (FoldWithoutComparison, FOUND),
        (TrimBeyondBase, FOUND),
    ] {
        let mut cluster = two_processes(Some(broken));
        if matches!(broken, FoldWithoutComparison | TrimBeyondBase) {
            // A leader works on a log that has grown by two groups since.
            cluster = Cluster { groups: vec![vec![1, 1], vec![1]], leaders: 2, losses_max: 0, ..cluster };
        }
        if broken == EveryEntryIsOwn {
            // Two processes compete for the same log entry.
            cluster.groups = vec![vec![1], vec![1]];
        }
        let failed = explore(cluster);
        assert!(failed.contains(&expected), "{broken:?}: {failed:?}");
    }
}
