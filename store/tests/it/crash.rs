//! A committing process is killed at random times: acknowledged commits survive, and none is applied
//! partially.
//!
//! The test runs itself as the process to be killed. The changes of a commit follow from a seed, its revision
//! and the previous objects, so that the parent can compute the state after any revision.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::{
    cluster::{
        change::{
            ChangeKind::{Added, Deleted, Modified},
            Commit,
        },
        history::Maker,
    },
    kinds::resource::Object,
    primitives::quantity::Timestamp,
};
use store::{CHANGES_KEPT, HISTORY_KEPT, HistoryQuery, ObjectFilter, Store, StoredState};

use crate::suite::{BIRTH, Place, at, commit, history::entry, key};

use crate::suite;

/// Store address; set in the process to be killed.
const CHILD_STORE: &str = "TIDEGATE_CRASH_STORE";
/// Environment variable with the seed of the commits, to repeat a run. By default the clock provides a seed,
/// which is printed.
const SEED: &str = "TIDEGATE_SEED";
/// Environment variable that increases the number of rounds to [`ROUNDS_SOAK`].
const SOAK: &str = "TIDEGATE_SOAK";
const ROUNDS: u64 = 24;
const ROUNDS_SOAK: u64 = 200;
/// Number of rounds on one database file. New files are used regularly, so that the creation of stores is
/// interrupted as well.
const ROUNDS_PER_FILE: u64 = 6;
/// Maximum lifetime of the killed process in milliseconds; enough for hundreds of commit groups.
const LIFE_MS_MAX: u64 = 250;
const OBJECTS: u64 = 40;
const GROUP_COMMITS: u64 = 6;

type Objects = BTreeMap<u32, Arc<Object>>;

#[test]
fn acknowledged_commits_survive_a_killed_process_and_groups_are_whole() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let seed = env::var(SEED).map_or_else(|_| clock_nanos(), |text| text.parse().unwrap());
    if let Ok(url) = env::var(CHILD_STORE) {
        runtime.block_on(commit_until_killed(&url, seed));
    }
    let rounds = if env::var_os(SOAK).is_some() { ROUNDS_SOAK } else { ROUNDS };
    eprintln!("{SEED}={seed} rounds={rounds}");
    let mut random = Random(seed);
    let mut acknowledged_total = 0;
    let mut torn_groups = 0;
    let mut place = Place::sqlite();
    let mut expected = Expected::default();
    for round in 0..rounds {
        if round % ROUNDS_PER_FILE == 0 {
            (place, expected) = (Place::sqlite(), Expected::default());
        }
        let life = Duration::from_micros(random.below(LIFE_MS_MAX * 1000));
        let told = run_and_kill(&place.url(), seed, life);
        let head = runtime.block_on(expected.check(&place, seed, &told));
        acknowledged_total += told.acknowledged.unwrap_or(0).saturating_sub(told.first);
        torn_groups += u64::from(told.attempted.is_some_and(|attempted| Some(attempted) > told.acknowledged));
        eprintln!("round {round}: killed after {life:?}, acknowledged {:?}, found {head}", told.acknowledged);
    }
    eprintln!("{acknowledged_total} commits acknowledged, {torn_groups} groups under way when killed");
    assert!(acknowledged_total > 0, "no process lived long enough to commit");
}

/// Last revisions and statuses that the killed child process printed.
#[derive(Debug, Default)]
struct Told {
    /// Revision of the store when the process started.
    first: u64,
    /// Store revision after the last commit group (commits written together) that the process tried to
    /// commit.
    attempted: Option<u64>,
    /// Store revision after the last commit group whose commit the store acknowledged.
    acknowledged: Option<u64>,
    /// Number of the last status whose write was acknowledged.
    status: Option<u64>,
}

/// Expected contents of the store, which each round (one child process) extends.
#[derive(Default)]
struct Expected {
    revision: u64,
    objects: Objects,
    log: Vec<Commit>,
    status: u64,
}

impl Expected {
    async fn check(&mut self, place: &Place, seed: u64, told: &Told) -> u64 {
        let store = place.open().await;
        let loaded = store.load().await.unwrap();
        let head = loaded.position.revision.0;
        let least = told.acknowledged.unwrap_or(self.revision);
        let whole = head == least || Some(head) == told.attempted;
        assert!(whole, "acknowledged {least}, attempted {:?}, found {head}", told.attempted);
        while self.revision < head {
            self.revision += 1;
            self.log.push(next(seed, self.revision, &mut self.objects));
        }
        self.check_state(&loaded);
        let newest = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: HISTORY_KEPT };
        let history = store.history(&newest).await.unwrap();
        let kept: Vec<_> = history.heads.iter().map(|head| head.revision.0).collect();
        assert!(kept.into_iter().eq((history.floor.0 + 1..=head).rev()), "history is that of the commits");
        let statuses = store.statuses().await.unwrap();
        let status = statuses.get("child").map_or(0, |body| String::from_utf8_lossy(body).parse().unwrap());
        let least = told.status.unwrap_or(self.status);
        assert!(status == least || status == least + 1, "acknowledged status {least}, found {status}");
        self.status = status;
        head
    }

    fn check_state(&self, loaded: &StoredState) {
        let mut objects: Vec<_> = self.objects.values().cloned().collect();
        objects.sort_by_key(|object| key(object));
        assert_eq!(loaded.objects, objects);
        let kept = self.log.len().saturating_sub(CHANGES_KEPT);
        assert_eq!(loaded.recent, self.log[kept..]);
    }
}

fn run_and_kill(url: &str, seed: u64, life: Duration) -> Told {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([
        "--exact",
        "--nocapture",
        "crash::acknowledged_commits_survive_a_killed_process_and_groups_are_whole",
    ]);
    command.env(CHILD_STORE, url).env(SEED, seed.to_string());
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // The lines are read concurrently: a full pipe would always stop the process at the same point.
    let reader = std::thread::spawn(move || {
        let mut told = Told::default();
        for line in lines.map_while(Result::ok) {
            told.hear(&line);
        }
        told
    });
    std::thread::sleep(life);
    drop(child);
    reader.join().unwrap()
}

impl Told {
    /// Parses one line of the child's output. Lines of the test harness and an incomplete last line are
    /// ignored.
    fn hear(&mut self, line: &str) {
        let Some((word, number)) = line.strip_suffix('.').and_then(|line| line.split_once(' ')) else {
            return;
        };
        let Ok(number) = number.parse() else { return };
        match word {
            "first" => self.first = number,
            "attempted" => self.attempted = Some(number),
            "acknowledged" => self.acknowledged = Some(number),
            "status" => self.status = Some(number),
            _ => {}
        }
    }
}

/// Child process that is killed with SIGKILL and awaited on drop, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let status = self.0.wait();
        let signal = status.ok().and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status));
        if !std::thread::panicking() {
            assert_eq!(signal, Some(9), "the process ended before it was killed");
        }
    }
}

async fn commit_until_killed(url: &str, seed: u64) -> ! {
    let store = store::open(url, Timestamp::from_unix_seconds(BIRTH)).await.unwrap();
    let loaded = store.load().await.unwrap();
    let status = tokio::spawn(put_statuses(Arc::clone(&store)));
    let mut objects: Objects = loaded.objects.into_iter().map(|object| (number(&object), object)).collect();
    let mut head = loaded.position.revision.0;
    say("first", head);
    while !status.is_finished() {
        let commits = 1 + Random(seed ^ head).below(GROUP_COMMITS);
        let group: Vec<_> =
            (head + 1..=head + commits).map(|revision| next(seed, revision, &mut objects)).collect();
        say("attempted", head + commits);
        let history: Vec<_> = group.iter().map(|commit| entry(Maker::Client, commit, &[])).collect();
        store.commit_with_history(at(head), &group, &history).await.unwrap();
        head += commits;
        say("acknowledged", head);
    }
    panic!("statuses could not be written");
}

async fn put_statuses(store: Arc<dyn Store>) {
    let statuses = store.statuses().await.unwrap();
    let mut status = statuses.get("child").map_or(0, |body| String::from_utf8_lossy(body).parse().unwrap());
    loop {
        status += 1;
        store.put_status("child", status.to_string().as_bytes()).await.unwrap();
        say("status", status);
    }
}

/// Returns the commit that the seed determines for a revision, and applies it to the objects.
fn next(seed: u64, revision: u64, objects: &mut Objects) -> Commit {
    let mut random = Random(seed.wrapping_add(revision << 20));
    let mut changes = Vec::new();
    for _ in 0..=random.below(4) {
        let number = u32::try_from(random.below(OBJECTS)).unwrap();
        let kind = match (objects.contains_key(&number), random.below(4)) {
            (false, _) => Added,
            (true, 0) => Deleted,
            (true, _) => Modified,
        };
        let _ = match kind {
            Added | Modified => objects.insert(number, suite::object(number, revision)),
            Deleted => objects.remove(&number),
        };
        changes.push((kind, number));
    }
    commit(revision, changes)
}

fn number(object: &Object) -> u32 {
    object.metadata.name.as_str().trim_start_matches('o').parse().unwrap()
}

/// Prints one line by a single write, so that lines of two tasks do not mix.
fn say(word: &str, number: u64) {
    std::io::stdout().lock().write_all(format!("{word} {number}.\n").as_bytes()).unwrap();
}

fn clock_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs() ^ u64::from(since.subsec_nanos()) << 32
}

/// Pseudorandom numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
