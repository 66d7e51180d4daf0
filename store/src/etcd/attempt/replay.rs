//! Comparison of the model with etcd: random traces of the model are executed with the transactions of the product
//! on a real etcd, and each reply must be the same.

use std::collections::BTreeMap;

use model::{
    cluster::change::{Change, ChangeKind, Commit},
    kinds::{
        metadata::Metadata,
        resource::{Object, Spec},
        workload::WorkloadSpec,
    },
    primitives::{
        name::{Label, Name},
        quantity::{Epoch, Position, Revision, Timestamp},
    },
};
use stateright::{Checker, Model};
use tokio::sync::watch;

use super::{
    Outcome, Reply, Request,
    model_check::{
        Action, Cluster, CommitRequest, GroupId, LOG_KEPT, ModelState, WriterModel, two_processes,
    },
};
use crate::{
    etcd::{
        Core, EtcdOptions,
        fold::{self, Base},
        history,
        keys::Keys,
        link::{Failure, Link},
        mirror::LogGroup,
        options, prepare, read, trim,
        write::{self, EncodedGroup, SendError},
    },
    group::{self, Group},
};

#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "shared with the integration tests"
)]
#[path = "../../../tests/it/suite/etcd.rs"]
mod servers;

/// Number of random traces after each prefix.
const TRACES: u64 = 10;
/// Maximum number of steps of a trace.
const STEPS_MAX: usize = 60;

/// Store in etcd, on which a trace is executed.
struct Real {
    core: Core,
    epoch: Epoch,
    /// Difference of etcd's revisions and those of the model.
    offset: i64,
    groups: BTreeMap<(usize, u8), (Group, EncodedGroup)>,
    /// State of each leader.
    bases: BTreeMap<usize, (Base, Vec<LogGroup>)>,
}

/// Generator of random numbers (xorshift), so that a trace can be repeated.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // The multiplication spreads small seeds over all bits.
        Self((seed | 1 << 63).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

fn commit(revision: u64) -> Commit {
    let name = Name::parse("changed").unwrap();
    let mut metadata = Metadata::named(name, Some(Label::parse("default").unwrap()));
    metadata.resource_version = Some(revision.to_string());
    let object = Object { metadata, spec: Spec::Workload(WorkloadSpec::default()) };
    let kind = if revision == 1 { ChangeKind::Added } else { ChangeKind::Modified };
    let changes = vec![Change { kind, object: object.into() }];
    Commit { revision: Revision(revision), at: Timestamp::from_unix_seconds(1_795_219_200), changes }
}

impl Real {
    async fn open(members: &str, prefix: String) -> Self {
        let options = EtcdOptions { prefix, ..EtcdOptions::default() };
        let (link, keys) =
            (Link::new(options::check(members, &options).unwrap()), Keys::new(&options.prefix));
        let now = Timestamp::from_unix_seconds(1_795_219_200);
        let position = prepare::prepare(&link, &keys, now).await.unwrap();
        let version = read::head(&link, &keys).await.unwrap().version;
        let core = Core {
            link,
            keys,
            mirror: std::sync::Arc::default(),
            history: history::Index::default(),
            head: watch::Sender::new(position),
        };
        let (groups, bases) = (BTreeMap::new(), BTreeMap::new());
        // The model begins at revision 1 with the creation of the store.
        Self { core, epoch: position.epoch, offset: version - 1, groups, bases }
    }

    fn position(&self, revision: u64) -> Position {
        Position { epoch: self.epoch, revision: Revision(revision) }
    }

    /// Executes the request of a commit. Returns the reply in terms of the model.
    async fn send(&mut self, sent: &CommitRequest) -> Reply {
        let CommitRequest { id: GroupId(writer, number), at, last, request } = *sent;
        let before = self.position(at);
        let encoded = self.groups.entry((writer, number)).or_insert_with(|| {
            let commits: Vec<_> = (at + 1..=last).map(commit).collect();
            let group = group::encode(before, &commits, &[]).unwrap();
            let encoded = write::encode(&group);
            (group, encoded)
        });
        let request = match request {
            Request::Commit { head_version } => Request::Commit { head_version: head_version + self.offset },
            Request::Fence { head_version } => Request::Fence { head_version: head_version + self.offset },
            Request::Read { at } => Request::Read { at: at + self.offset },
        };
        match write::send(&self.core, before, request, &encoded.0, &encoded.1).await {
            Ok(reply) => translate(reply, self.offset),
            Err(SendError::Failed(Failure::Compacted { .. })) => Reply::Compacted,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Executes a step of the model in etcd, except for requests of commits.
    async fn step(&mut self, before: &ModelState, action: &Action) {
        match *action {
            Action::ReadLog(leader) => {
                let base = fold::base(&self.core).await.unwrap();
                assert_eq!((base.revision.0, base.version - self.offset), before.etcd.base);
                let groups = fold::unfolded(&self.core, &base).await.unwrap();
                self.bases.insert(leader, (base, groups));
            }
            Action::Fold(leader) => {
                let (base, groups) = self.bases.remove(&leader).unwrap();
                if let Ok(folded) = fold::write(&self.core, base, &groups).await {
                    self.bases.insert(leader, (folded, Vec::new()));
                }
            }
            Action::Trim(leader) => {
                let (base, _) = self.bases.remove(&leader).unwrap();
                let oldest = Revision(before.etcd.head.position.revision.0 + 1 - LOG_KEPT);
                trim::trim_before(&self.core, &base, Some(oldest)).await.unwrap();
            }
            Action::Compact => {
                self.core.link.compact(before.etcd.revision + self.offset).await.unwrap();
            }
            Action::Decide(_)
            | Action::Stop(_)
            | Action::Execute(_)
            | Action::LoseReply(_)
            | Action::Delay(_)
            | Action::ExecuteDelayed(_) => {}
        }
    }

    /// Compares the state that a starting server reads with the model.
    async fn compare(&self, state: &ModelState) {
        let (loaded, _) = read::load(&self.core.link, &self.core.keys).await.unwrap();
        assert_eq!(loaded.position, self.position(state.etcd.head.position.revision.0));
        let newest = loaded.objects.first().map_or(0, |object| object.metadata.revision().0);
        assert_eq!(Some(newest), state.etcd.loaded());
        let log: Vec<_> = state.etcd.log().map(|group| group.last).collect();
        let head = read::head(&self.core.link, &self.core.keys).await.unwrap();
        let groups = read::groups(&self.core.link, &self.core.keys, Revision(0), head.at).await;
        let groups = groups.unwrap_or_else(|_| panic!("the log is unreadable"));
        assert_eq!(groups.iter().map(|group| group.last.0).collect::<Vec<_>>(), log);
        let (version, at) = (head.version - self.offset, head.at - self.offset);
        assert_eq!((version, at), (state.etcd.head.version, state.etcd.revision));
    }
}

/// Converts a reply of etcd to the epoch and the revisions of the model.
fn translate(reply: Reply, offset: i64) -> Reply {
    match reply {
        Reply::Written(version) => Reply::Written(version - offset),
        Reply::Seen(mut seen) => {
            seen.head.position.epoch = Epoch(1);
            seen.head.version -= offset;
            seen.head.at -= offset;
            if let Some(entry) = &mut seen.entry {
                entry.version -= offset;
            }
            Reply::Seen(seen)
        }
        Reply::Compacted => Reply::Compacted,
        Reply::Lost => Reply::Lost,
    }
}

/// Removes the parts of a reply that a read of the past does not determine: the version of the head, and the time
/// of the read.
fn comparable(request: Request, reply: Reply) -> Reply {
    match (request, reply) {
        (Request::Read { .. }, Reply::Seen(mut seen)) => {
            (seen.head.version, seen.head.at) = (0, 0);
            Reply::Seen(seen)
        }
        (Request::Commit { .. } | Request::Fence { .. } | Request::Read { .. }, reply) => reply,
    }
}

/// Returns the request that etcd executes in a step of the model.
fn executed(state: &ModelState, action: &Action) -> Option<CommitRequest> {
    match *action {
        Action::Execute(number) | Action::LoseReply(number) => state.writers[number].sent(number),
        Action::ExecuteDelayed(number) => Some(state.delayed[number]),
        Action::Decide(_)
        | Action::Delay(_)
        | Action::Stop(_)
        | Action::ReadLog(_)
        | Action::Fold(_)
        | Action::Trim(_)
        | Action::Compact => None,
    }
}

/// Executes a trace, which begins with the steps `prefix`, in the model and in etcd. Then it continues at random, or
/// with searches in etcd's history if `random` is `None`. Returns the outcomes of searches.
async fn run(
    real: &mut Real,
    cluster: &Cluster,
    prefix: &[Action],
    mut random: Option<Random>,
) -> Vec<Outcome> {
    let mut state = cluster.init_states().remove(0);
    let (mut steps, mut outcomes) = (Vec::new(), Vec::new());
    while steps.len() < STEPS_MAX {
        let mut actions = Vec::new();
        cluster.actions(&state, &mut actions);
        let next = match (prefix.get(steps.len()), &mut random) {
            (Some(action), _) => Some(action.clone()),
            (None, None) => state.writers.iter().position(WriterModel::is_searching).map(Action::Execute),
            (None, Some(_)) if actions.is_empty() => None,
            (None, Some(random)) => Some(actions.swap_remove(random.below(actions.len()))),
        };
        let Some(action) = next else { break };
        steps.push(action.clone());
        if let Some(sent) = executed(&state, &action) {
            let expected = state.etcd.clone().execute(None, sent);
            let found = real.send(&sent).await;
            let [expected, found] = [expected, found].map(|reply| comparable(sent.request, reply));
            assert_eq!(found, expected, "{steps:?}");
            if let (Action::Execute(number), Request::Read { .. }) = (&action, sent.request) {
                let attempt = &mut state.writers[*number].attempt.clone().unwrap();
                outcomes.extend(attempt.handle(found));
            }
        }
        real.step(&state, &action).await;
        state = cluster.next_state(&state, action).unwrap();
    }
    real.compare(&state).await;
    outcomes
}

#[tokio::test]
async fn etcd_replies_to_the_transactions_as_the_model() {
    let server = servers::Cluster::start(1, &[]);
    let members = server.url();
    let members = members.strip_prefix("etcd:").unwrap();
    let cluster = Cluster { leaders: 2, ..two_processes(None) };
    // Shortest traces to rare states, such as a search for a trimmed group.
    let checker = cluster.clone().checker().spawn_bfs().join();
    let mut prefixes = vec![Vec::new()];
    prefixes.extend(checker.discoveries().into_values().map(stateright::Path::into_actions));
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("TIDEGATE_SEED={seed}");
    let mut outcomes = Vec::new();
    for (number, prefix) in prefixes.iter().enumerate() {
        for trace in 0..=TRACES {
            let mut real = Real::open(members, format!("/replay-{number}-{trace}/")).await;
            let random = (trace > 0).then(|| Random::new(seed + trace));
            outcomes.extend(run(&mut real, &cluster, prefix, random).await);
        }
    }
    let count = |is_counted: fn(&Outcome) -> bool| outcomes.iter().filter(|one| is_counted(one)).count();
    let landed = count(|outcome| matches!(outcome, Outcome::Landed(_)));
    let lost = count(|outcome| matches!(outcome, Outcome::Lost(_)));
    let unknown = count(|outcome| matches!(outcome, Outcome::Unknown));
    let traces = prefixes.len() as u64 * (TRACES + 1);
    eprintln!("{traces} traces; outcomes of searches: {landed} landed, {lost} lost, {unknown} unknown");
    assert!(landed > 0 && lost > 0 && unknown > 0, "{landed} landed, {lost} lost, {unknown} unknown");
}
