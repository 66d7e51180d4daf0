//! Test of a control server with a file store that is killed at random times under write load: every
//! acknowledged write exists afterwards at its revision, once, and no write exists in part.
//!
//! The test prints a seed. The variable `TIDEGATE_SEED` repeats the requests and the times of that seed.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use lab::{
    chaos::{
        histories::{ChangeEvent, Freshness, History, Operation, RequestOutcome, WatchStep, check},
        servers::{
            site::{Site, client},
            watchers::{self, Course},
            writers::ClientWriter,
        },
    },
    cluster::machines::{self, Fabric, Program, ProgramMachine},
    host::random::{self, Random},
    processes::binaries,
};
use tokio::{sync::watch, task::JoinSet};

/// Number of times that the server is killed.
const KILLS: usize = 200;
/// Number of kills after which the recorded requests and responses of all clients (a history) are compared
/// with the server's change log. Small enough that the change log still holds all writes of the history.
const KILLS_PER_HISTORY: usize = 20;
/// Number of writing clients.
const WRITERS: usize = 6;
/// Maximum time in milliseconds from the readiness of the server to its kill: enough for some dozens of
/// groups of commits that share one fsync.
const LIFE_MS_MAX: u64 = 120;
/// Probability in percent that the server is killed during its startup.
const WHILE_STARTING_PERCENT: u64 = 15;
/// Approximate startup time of the server in milliseconds. Kills during startup occur at a random time within
/// it.
const START_MS: u64 = 80;

/// Control server in one network namespace, and a second namespace for its clients.
struct Stage {
    server: ProgramMachine,
    clients: lab::host::netns::Namespace,
    _fabric: Fabric,
}

fn stage(directory: &Path) -> Stage {
    let fabric = Fabric::new().unwrap();
    let address = SocketAddr::new(Fabric::address(11), 7440);
    let program = Program {
        label: "control".to_owned(),
        path: binaries::find("tidegate-api").unwrap(),
        arguments: vec![
            format!("--listen={address}"),
            format!("--store=sqlite:{}", directory.join("control.sqlite").display()),
            "--insecure".to_owned(),
            "--guard-vips-percent=100".to_owned(),
        ],
        address,
        environment: Vec::new(),
    };
    let server = fabric.start(11, program, directory).unwrap();
    let clients = fabric.place("clients", 200).unwrap();
    Stage { server, clients, _fabric: fabric }
}

/// After 200 kills of the control server while six clients write, no acknowledged write is lost or
/// duplicated.
#[test]
fn what_was_acknowledged_survives_two_hundred_kills_of_the_server_under_load() {
    let directory = machines::directory().unwrap();
    let mut stage = stage(directory.path());
    stage.server.wait_serving().unwrap();
    let (seed, _) = random::seed().unwrap();
    eprintln!("TIDEGATE_SEED={seed}");
    let mut random = Random::new(seed, 1);
    let (mut kills, mut acknowledged, mut unknown, mut without_answer) = (0, 0, 0, 0);
    while kills < KILLS {
        let began = Instant::now();
        let history = interrupted(&mut stage, seed + kills as u64, &mut random);
        kills += KILLS_PER_HISTORY;
        let count = |is: fn(&RequestOutcome) -> bool| {
            history.operations.iter().filter(|operation| is(&operation.answer)).count()
        };
        acknowledged += count(|answer| matches!(answer, RequestOutcome::Accepted(_)));
        unknown += count(|answer| matches!(answer, RequestOutcome::Unknown));
        without_answer += happened_without_answer(&history);
        let violations = check(&history);
        let shown: Vec<_> = violations.iter().take(8).map(ToString::to_string).collect();
        assert!(violations.is_empty(), "TIDEGATE_SEED={seed}, after {kills} kills:\n{}", shown.join("\n"));
        eprintln!("{kills} kills, {:.1} s", began.elapsed().as_secs_f64());
    }
    eprintln!(
        "{kills} kills: {acknowledged} writes acknowledged, 0 lost, 0 twice; {unknown} requests without an answer, of which \
         {without_answer} had happened"
    );
    assert!(acknowledged > kills, "the server lived too short to be asked for anything");
    assert!(unknown > 0, "no kill met a request");
}

/// Kills and restarts the server repeatedly while clients write, and returns all their observations.
fn interrupted(stage: &mut Stage, seed: u64, random: &mut Random) -> History {
    let stop = Arc::new(AtomicBool::new(false));
    let (calm, is_calm) = watch::channel(false);
    let (servers, clients) = (vec![stage.server.address], stage.clients.clone());
    let (begun, has_begun) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (stop, stopping) = (Arc::clone(&stop), stop);
        let gathering = scope.spawn(move || {
            clients.inside(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(gather(&servers, seed, stop, is_calm, begun))
            })
        });
        // A panic of the clients ends the wait; the join reports it.
        let _ = has_begun.recv();
        for _ in 0..KILLS_PER_HISTORY {
            let is_starting = random.chance(WHILE_STARTING_PERCENT);
            if !is_starting {
                stage.server.wait_serving().unwrap();
            }
            thread::sleep(random.millis(0, if is_starting { START_MS } else { LIFE_MS_MAX }));
            stage.server.process.kill();
            stage.server.process.start_again().unwrap();
        }
        stage.server.wait_serving().unwrap();
        stopping.store(true, Ordering::Relaxed);
        let _ = calm.send(true);
        gathering.join().unwrap()
    })
}

async fn gather(
    servers: &[SocketAddr],
    seed: u64,
    stop: Arc<AtomicBool>,
    mut is_calm: watch::Receiver<bool>,
    begun: std::sync::mpsc::Sender<()>,
) -> History {
    let site = Arc::new(Site::new(servers, seed).await.unwrap());
    begun.send(()).unwrap();
    let mut writers = JoinSet::new();
    for index in 0..WRITERS {
        writers.spawn(ClientWriter::new(&site, index, seed).unwrap().run(Arc::clone(&stop)));
    }
    let mut operations: Vec<Operation> = writers.join_all().await.into_iter().flatten().collect();
    is_calm.wait_for(|calm| *calm).await.unwrap();
    let mut last = ClientWriter::new(&site, WRITERS, seed).unwrap();
    let head = last.mark(0, 0).await.expect("the server serves, and nobody strikes it");
    last.list(0, Freshness::AtLeast(head)).await;
    operations.extend(last.into_operations());
    let (_goal, goals) = watch::channel(Some(head));
    let log = watchers::watch(Arc::clone(&site), "the log".to_owned(), Course::Server(0), goals);
    let log = log.await.unwrap();
    let event = |step: &WatchStep| -> Option<ChangeEvent> {
        match step {
            WatchStep::Event(event) => Some(event.clone()),
            WatchStep::Reached(_) => None,
            WatchStep::Listed { .. } => panic!("the change log has lost its beginning"),
        }
    };
    site.clear(&client().unwrap()).await.unwrap();
    let events = log.steps.iter().filter_map(event).collect();
    History { start: site.start, operations, log: events, head, watches: vec![log], feeds: Vec::new() }
}

/// Returns the number of writes that got no response but were committed, according to the change log.
fn happened_without_answer(history: &History) -> usize {
    use lab::chaos::histories::ClientRequest;
    let unknown = history.operations.iter().filter(|operation| operation.answer == RequestOutcome::Unknown);
    let values = unknown.filter_map(|operation| match &operation.asked {
        ClientRequest::Write { changes, .. } => changes.first()?.value.as_ref(),
        ClientRequest::Read { .. } | ClientRequest::List { .. } => None,
    });
    values.filter(|value| history.log.iter().any(|event| event.value == **value)).count()
}
