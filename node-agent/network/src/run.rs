//! Thread of the workload network: the only one that uses the engine. Requests and state changes reach it through one queue.
//!
//! ```text
//!  feed ──desired──▶ ┐
//!  socket ──tasks──▶ ├─▶ thread ──▶ engine ──▶ kernel
//!  kernel events ──▶ ┘      └──▶ shown (status, attachments)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use attach_socket::{
    AttachProblem, AttachRequest, AttachedList, AttachedWorkload, AttachmentKey, CollectRequest,
    DetachedCount, NetworkStatus, ProblemCode,
};
use model::{
    kinds::attachment::WorkloadKey,
    primitives::{name::Name, net::IpFamily},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot, watch},
    time::timeout,
};
use tracing::{info, warn};

use crate::{
    attach::{declared::ShownInterface, engine::NetworkEngine, gate::AttachGate},
    desired::DesiredNetwork,
    refusals::RecordRefusals,
    routes::{forwarding, keeper::RoutePass},
};

/// Maximum number of waiting requests; further ones are rejected.
const TASKS_WAITING_MAX: usize = 256;
/// Delay between an event of the kernel and the comparison with the plan, so that one comparison covers many events.
const EVENT_DELAY: Duration = Duration::from_millis(50);
/// Interval at which rejected routes are tried again, and failed passes are repeated, if no event comes before.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which the table of nf_tables is compared, which has no events: the maximum time for which a removed table goes
/// unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which all routes are compared although the kernel has reported no change of them. A machine can have many routes.
const FULL_INTERVAL: Duration = Duration::from_secs(300);
/// Longest time without a look at the queue on a node without workload networks.
const IDLE_TIME: Duration = Duration::from_secs(3600);

/// Request that the thread answers.
enum NetworkTask {
    Attach(Box<AttachRequest>, oneshot::Sender<Result<AttachedWorkload, AttachProblem>>),
    Check(AttachmentKey, oneshot::Sender<Result<AttachedWorkload, AttachProblem>>),
    Detach(AttachmentKey, oneshot::Sender<Result<DetachedCount, AttachProblem>>),
    Status(Option<String>, oneshot::Sender<Result<NetworkStatus, AttachProblem>>),
    Collect(CollectRequest, oneshot::Sender<Result<DetachedCount, AttachProblem>>),
}

/// State that the thread publishes after each step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkShown {
    /// State of the workload network.
    pub status: NetworkStatus,
    /// Complete attachments.
    pub attachments: Arc<AttachedList>,
    /// Last comparison of the kernel with the plan.
    pub passed: Arc<RoutePass>,
    /// Number of changes of routes and links in the kernel since the start.
    pub writes: u64,
    /// True if a workload network exists.
    pub has_networks: bool,
    /// Networks and families of which this node has few free addresses.
    pub wanted: BTreeSet<(Name, IpFamily)>,
    /// Interfaces that Workloads declare on this node.
    pub interfaces: Arc<BTreeMap<WorkloadKey, ShownInterface>>,
}

/// Handle by which tasks use the thread. Clones use the same thread.
#[derive(Debug, Clone)]
pub struct NetworkHandle {
    tasks: mpsc::Sender<NetworkTaskBox>,
    shown: watch::Receiver<NetworkShown>,
    refusals: watch::Sender<RecordRefusals>,
    failure: watch::Receiver<Option<String>>,
}

/// Request without its type, so that the handle can be printed.
struct NetworkTaskBox(NetworkTask);

impl NetworkHandle {
    /// Attaches a network namespace. The answer to a repeated request says if the control server refuses to record the
    /// attachment.
    ///
    /// # Errors
    /// Returns the reason if the attachment is impossible, or the thread is busy or has ended.
    pub async fn attach(&self, request: AttachRequest) -> Result<AttachedWorkload, AttachProblem> {
        let attached = self.ask(|answer| NetworkTask::Attach(Box::new(request), answer)).await?;
        Ok(self.refusals.borrow().marked(attached))
    }

    /// Returns all complete attachments, with the refusals of the control server.
    #[must_use]
    pub fn attachments(&self) -> AttachedList {
        let all = Arc::clone(&self.shown.borrow().attachments);
        let refusals = self.refusals.borrow();
        AttachedList { attachments: all.attachments.iter().map(|one| refusals.marked(one.clone())).collect() }
    }

    /// Returns the sender of the refusals of the control server. Its clones belong to the same thread.
    #[must_use]
    pub fn refusals(&self) -> watch::Sender<RecordRefusals> {
        self.refusals.clone()
    }

    /// Returns the receiver of the reason why the last comparison has left the kernel different from the plan; `None` if it
    /// has not.
    #[must_use]
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.clone()
    }

    /// Compares an attachment with the kernel.
    ///
    /// # Errors
    /// Returns the difference, or the reason if the thread is busy or has ended.
    pub async fn check(&self, key: AttachmentKey) -> Result<AttachedWorkload, AttachProblem> {
        self.ask(|answer| NetworkTask::Check(key, answer)).await
    }

    /// Removes an attachment.
    ///
    /// # Errors
    /// Returns the reason if the removal failed, or the thread is busy or has ended.
    pub async fn detach(&self, key: AttachmentKey) -> Result<DetachedCount, AttachProblem> {
        self.ask(|answer| NetworkTask::Detach(key, answer)).await
    }

    /// Returns the state of the workload network, with the reason why nothing can be attached to the network of this name, or
    /// without a name to the only one.
    ///
    /// # Errors
    /// Returns the reason if the thread is busy or has ended.
    pub async fn status(&self, network: Option<String>) -> Result<NetworkStatus, AttachProblem> {
        self.ask(|answer| NetworkTask::Status(network, answer)).await
    }

    /// Removes the attachments of a manager that are not listed.
    ///
    /// # Errors
    /// Returns the reason if a removal failed, or the thread is busy or has ended.
    pub async fn collect(&self, request: CollectRequest) -> Result<DetachedCount, AttachProblem> {
        self.ask(|answer| NetworkTask::Collect(request, answer)).await
    }

    /// Returns the receiver of the published state.
    #[must_use]
    pub fn shown(&self) -> watch::Receiver<NetworkShown> {
        self.shown.clone()
    }

    async fn ask<T>(
        &self,
        task: impl FnOnce(oneshot::Sender<Result<T, AttachProblem>>) -> NetworkTask,
    ) -> Result<T, AttachProblem> {
        let (answer, answered) = oneshot::channel();
        let busy = |message: &str| AttachProblem { code: ProblemCode::Busy, message: message.to_owned() };
        let sent = self.tasks.try_send(NetworkTaskBox(task(answer)));
        sent.map_err(|_| busy("the agent has too many waiting requests, or is stopping; try again"))?;
        answered.await.unwrap_or_else(|_| Err(busy("the agent is stopping; try again")))
    }
}

/// Parameters of the thread.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// Name of this node.
    pub own: Name,
    /// State directory with the journal of attachments.
    pub state_dir: PathBuf,
    /// Identifier of the running boot of the machine.
    pub boot: String,
}

/// Starts the thread in the network namespace of the calling thread. `desired` is `None` until the first state. The thread
/// ends when all handles and the sender of `desired` are dropped. Must be called inside a tokio runtime.
///
/// # Errors
/// Returns an error if the journal or the kernel cannot be used, or the thread cannot be created.
pub fn start(
    config: &NetworkConfig,
    desired: watch::Receiver<Option<DesiredNetwork>>,
    events: Arc<Notify>,
) -> io::Result<(NetworkHandle, JoinHandle<()>)> {
    start_behind(config, desired, events, AttachGate::default())
}

/// Starts the thread as [`start`] does, with a gate that each attachment passes before its interface exists.
///
/// # Errors
/// Same as [`start`].
pub fn start_behind(
    config: &NetworkConfig,
    desired: watch::Receiver<Option<DesiredNetwork>>,
    events: Arc<Notify>,
    gate: AttachGate,
) -> io::Result<(NetworkHandle, JoinHandle<()>)> {
    let NetworkConfig { own, state_dir, boot } = config;
    let mut engine = NetworkEngine::open(own.clone(), state_dir, boot, now())?;
    engine.gate_by(gate);
    let (tasks, received) = mpsc::channel(TASKS_WAITING_MAX);
    let mut inputs = Inputs { desired, tasks: received, events };
    if let Some(first) = inputs.desired.borrow_and_update().clone() {
        engine.desire(first);
    }
    let (publish, shown) = watch::channel(shown(&engine));
    let (publish_failure, failure) = watch::channel(None);
    let runtime = Handle::current();
    let thread = std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        Worker { engine, publish, failure: publish_failure, passed_at: Instant::now() }
            .run(&mut inputs, &runtime)
    })?;
    let (refusals, _) = watch::channel(RecordRefusals::default());
    Ok((NetworkHandle { tasks, shown, refusals, failure }, thread))
}

struct Inputs {
    desired: watch::Receiver<Option<DesiredNetwork>>,
    tasks: mpsc::Receiver<NetworkTaskBox>,
    events: Arc<Notify>,
}

/// Next input of the thread.
enum NetworkInput {
    Task(NetworkTask),
    Desired,
    Event,
    End,
}

impl Inputs {
    async fn next(&mut self) -> NetworkInput {
        tokio::select! {
            biased;
            task = self.tasks.recv() => task.map_or(NetworkInput::End, |task| NetworkInput::Task(task.0)),
            Ok(()) = self.desired.changed() => NetworkInput::Desired,
            () = self.events.notified() => NetworkInput::Event,
        }
    }
}

struct Worker {
    engine: NetworkEngine,
    publish: watch::Sender<NetworkShown>,
    /// Reason why the last pass has left the kernel different from the plan.
    failure: watch::Sender<Option<String>>,
    /// Time of the last pass.
    passed_at: Instant,
}

impl Worker {
    fn run(mut self, inputs: &mut Inputs, runtime: &Handle) {
        let mut is_settled = self.pass();
        let mut look_at: Option<Instant> = None;
        loop {
            let is_complete = is_settled && !self.engine.has_faults();
            let patience = match (look_at, is_complete, self.engine.is_idle()) {
                (Some(at), _, _) => at.saturating_duration_since(Instant::now()),
                (None, false, _) => RETRY_INTERVAL,
                (None, true, false) => CHECK_INTERVAL,
                (None, true, true) => IDLE_TIME,
            };
            // The timeout is created inside the runtime, because it needs the runtime's clock.
            match runtime.block_on(async { timeout(patience, inputs.next()).await }) {
                Ok(NetworkInput::Task(task)) => self.answer(task),
                Ok(NetworkInput::Event) => {
                    look_at.get_or_insert_with(|| Instant::now() + EVENT_DELAY);
                }
                Ok(NetworkInput::Desired) => {
                    if let Some(desired) = inputs.desired.borrow_and_update().clone() {
                        self.engine.desire(desired);
                    }
                    (look_at, is_settled) = (None, self.pass());
                }
                Ok(NetworkInput::End) => return,
                // Nothing has changed but, perhaps, the table.
                Err(_elapsed) if look_at.is_none() && is_settled && self.is_unchanged() => {}
                Err(_elapsed) => (look_at, is_settled) = (None, self.pass()),
            }
        }
    }

    /// Returns true if the table is as the last pass left it, and that pass is not long ago.
    fn is_unchanged(&mut self) -> bool {
        let is_recent = self.passed_at.elapsed() < FULL_INTERVAL;
        let is_forwarding = forwarding::failure(&self.publish.borrow().passed.plan).is_none();
        let is_unchanged = is_recent
            && is_forwarding
            && (self.engine.is_idle() || self.engine.check_table())
            && (!self.engine.has_declared() || self.are_interfaces_unchanged());
        // The end of a cooldown changes the published state too.
        self.publish_state(None);
        is_unchanged
    }

    /// Compares the declared interfaces, of which most settings have no events, and repairs them. Returns true if they were as
    /// the last pass left them.
    fn are_interfaces_unchanged(&mut self) -> bool {
        let is_decided = self.engine.plan_declared(now()).is_ok_and(|is_changed| !is_changed);
        // A new decision needs the table before the settings.
        is_decided && self.engine.configure_declared(now()).is_ok_and(|is_changed| !is_changed)
    }

    fn answer(&mut self, task: NetworkTask) {
        // A caller that has gone away gets the same answer when it repeats its request.
        let _gone = match task {
            NetworkTask::Attach(request, answer) => answer.send(self.engine.attach(*request, now())).is_err(),
            NetworkTask::Check(key, answer) => answer.send(self.engine.check(&key)).is_err(),
            NetworkTask::Detach(key, answer) => answer.send(self.engine.detach(&key, now())).is_err(),
            NetworkTask::Status(network, answer) => {
                answer.send(Ok(self.engine.status_of(network.as_deref()))).is_err()
            }
            NetworkTask::Collect(request, answer) => {
                answer.send(self.engine.collect(&request, now())).is_err()
            }
        };
        self.publish_state(None);
    }

    /// Publishes the state of the engine, and the result of a pass.
    fn publish_state(&self, passed: Option<RoutePass>) {
        let state = shown(&self.engine);
        self.publish.send_if_modified(|shown| {
            let writes = shown.writes + passed.as_ref().map_or(0, |passed| passed.writes);
            let passed = passed.map_or_else(|| Arc::clone(&shown.passed), Arc::new);
            let state = NetworkShown { passed, writes, ..state };
            let is_different = *shown != state;
            *shown = state;
            is_different
        });
    }

    /// Compares the kernel with the plan, declared interfaces included. Returns true if there is nothing to repeat.
    fn pass(&mut self) -> bool {
        self.passed_at = Instant::now();
        // Without the decision, the routes to declared Workloads would be removed.
        if let Err(error) = self.engine.plan_declared(now()) {
            self.note(Some(format!("the declared interfaces cannot be examined: {error}")));
            return false;
        }
        let mut is_settled = self.pass_routes();
        match self.engine.configure_declared(now()) {
            Ok(true) => is_settled &= self.pass_routes(),
            Ok(false) => {}
            Err(error) => {
                self.note(Some(format!("the declared interfaces cannot be configured: {error}")));
                is_settled = false;
            }
        }
        self.publish_state(None);
        is_settled
    }

    /// Compares the table and the routes with the plan. Returns true if there is nothing to repeat.
    fn pass_routes(&mut self) -> bool {
        let passed = match self.engine.pass() {
            Ok(Some(passed)) => passed,
            Ok(None) => return true,
            Err(error) => {
                self.note(Some(format!("the routes of the workload network cannot be kept: {error}")));
                return false;
            }
        };
        let rejected = passed.rejected.iter().next().map(|(route, errno)| {
            let (error, others) = (io::Error::from_raw_os_error(*errno), passed.rejected.len() - 1);
            format!("the kernel rejected the route to {route} ({error}), and {others} others")
        });
        let rejected = passed.failure.clone().or(rejected).or_else(|| forwarding::failure(&passed.plan));
        let is_settled = rejected.is_none() && !passed.is_pending;
        self.note(rejected);
        if passed.writes > 0 {
            info!(changes = passed.writes, "the routes of the workload network have changed");
        }
        self.publish_state(Some(passed));
        is_settled
    }

    /// Publishes a failure, and logs it if it differs from the last one.
    fn note(&self, failure: Option<String>) {
        self.failure.send_if_modified(|shown| {
            let is_different = *shown != failure;
            if let Some(text) = failure.as_ref().filter(|_| is_different) {
                warn!("{text}");
            }
            *shown = failure;
            is_different
        });
    }
}

fn shown(engine: &NetworkEngine) -> NetworkShown {
    NetworkShown {
        status: engine.status(),
        attachments: Arc::new(engine.list()),
        has_networks: engine.has_networks(),
        wanted: engine.wanted(now()),
        interfaces: Arc::new(engine.shown_interfaces()),
        ..NetworkShown::default()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
