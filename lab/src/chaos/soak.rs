//! Soak test: runs a cluster for a long time under continuous changes and random faults, then removes everything
//! and checks for leaks.
//!
//! 1. *Census*: lists the kernel state, process resources and files of the cluster.
//! 2. *Fill*: creates Services that exist until step 4.
//! 3. For each part of the test: runs writers, clients and faults. Then stops writes and faults until every
//!    node has verified its kernel state, connects to every address and port to check that the right backend
//!    replies, deletes the objects of the writers, and measures memory.
//! 4. Deletes all objects. The census is taken again and must equal the first one.
//! 5. Ends the agents and runs `cleanup` on each node.
//!
//! The seed determines the actions of every writer and the sequence of faults; the progress of a writer before a
//! fault depends on the machine. The test itself asserts nothing: [`SoakOutcome::faults_found`] returns the
//! problems found.

mod census;
mod changes;
mod faults;
mod oracle;
mod outcome;
mod processes;
mod stage;
mod timeline;
mod traffic;
mod writers;

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

use self::{
    census::Census,
    faults::Faults,
    stage::Stage,
    traffic::Traffic,
    writers::{Order, Pace, Writers},
};
pub use self::{
    faults::{Rhythm, kinds},
    outcome::{GROWTH_MAX_PERCENT, Growth, SoakOutcome},
    processes::Sample,
    stage::MODES,
    timeline::{Episode, EpisodeFault, EpisodeKind, EpisodeTimeline, Harm, KINDS, Way},
    traffic::Fates,
};
use crate::{
    cluster::control::number,
    host::{netns::Namespace, random::Random, wait},
};

/// Interval at which the test checks if a fault must start or end, or a sample must be taken.
const TURN: Duration = Duration::from_millis(50);
/// Timeout for all nodes to converge after the faults; connections may have been cut just before.
const CALM: Duration = Duration::from_secs(180);
/// Time for memory to settle without client requests: threads of finished requests end after ten seconds, and
/// UDP flows of a relay after thirty.
const REST: Duration = Duration::from_secs(40);
/// Number of memory samples per measurement, taken without client requests and `BETWEEN_LOOKS` apart. The
/// sample with the median is recorded.
const LOOKS: usize = 11;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Number of concurrent requests that read the history, so that buffers for concurrent requests are all
/// allocated when memory is measured.
const AT_ONCE: usize = 32;
/// Number of etcd members of a soak test with an etcd store.
pub const MEMBERS: u8 = 3;

/// Numbers of requests that fill all limited logs of the control server (such as change history and audit
/// log), so that its memory has its steady-state size and comparable contents whenever it is measured. A
/// server that just started has shorter logs, and random writes vary in size.
#[derive(Debug, Clone, Copy)]
pub struct Memories {
    /// Number of Services that are created and removed.
    pub removals: u32,
    /// Number of requests that change one object, for the audit log.
    pub requests: u32,
    /// Number of dry-run requests. The audit log keeps fewer of these than of other requests.
    pub trials: u32,
    /// Number of object changes by requests that each change many objects, to fill the change history.
    pub changes: u32,
}

/// Parameters of a soak test.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of all random choices of the test.
    pub seed: u64,
    /// Durations of the parts of the test. Each part has writers and faults, and ends with a calm phase
    /// without either. The first part is the warm-up.
    pub parts: Vec<Duration>,
    /// Minimum number of faults per part; a part is extended until this number is reached.
    pub faults_min: usize,
    /// Number of parts after which faults no longer kill processes, so that the final memory is that of a
    /// long-running process.
    pub all_live_after: usize,
    /// Number of client requests per second.
    pub per_second: u32,
    /// Number of etcd members that form the store; 0 selects SQLite.
    pub members: u8,
    /// Number of writers, each with objects of its own.
    pub writers: u64,
    /// Number of permanent Services, which exist during the whole test.
    pub filling: u32,
    /// Frequency and duration of faults.
    pub rhythm: Rhythm,
    /// Interval between two memory samples.
    pub sample_every: Duration,
    /// Requests that fill the memory of the control server just before the two measurements that are compared.
    pub memories: Memories,
    /// True if memory gets time to settle before it is measured.
    pub rests: bool,
}

impl Options {
    /// Returns the options of a soak test of `minutes` in total: a warm-up of a tenth of that time, then
    /// three parts of equal length. In each part writers and faults are active; a calm phase without either
    /// follows.
    #[must_use]
    pub fn long(seed: u64, minutes: u32) -> Self {
        let total = Duration::from_secs(60) * minutes;
        let warm_up = total / 10;
        Self {
            seed,
            parts: vec![warm_up, (total - warm_up) / 3, (total - warm_up) / 3, (total - warm_up) / 3],
            faults_min: 0,
            all_live_after: 2,
            // A net rate of 50, because writes missed while the control server is killed or suspended are not made
            // up.
            per_second: 55,
            members: 0,
            writers: 8,
            filling: 300,
            rhythm: Rhythm { between_ms: (2_000, 12_000), lasts_ms: (500, 8_000), rest_ms: 8_000 },
            sample_every: Duration::from_secs(60),
            // The server's limits are 10,000, 10,000, 2,000 and 32,768.
            memories: Memories { removals: 10_500, requests: 10_500, trials: 2_200, changes: 34_000 },
            rests: true,
        }
    }

    /// Returns the options of a soak test of a few seconds with every kind of fault.
    #[must_use]
    pub fn short(seed: u64) -> Self {
        Self {
            parts: vec![Duration::from_secs(6)],
            faults_min: kinds(0).len(),
            filling: 16,
            rhythm: Rhythm { between_ms: (100, 600), lasts_ms: (200, 800), rest_ms: 1_000 },
            sample_every: Duration::from_secs(4),
            memories: Memories { removals: 8, requests: 8, trials: 4, changes: 32 },
            rests: false,
            ..Self::long(seed, 1)
        }
    }
}

/// Soak test in progress: options, fault scheduler and results so far.
struct Run<'a> {
    options: &'a Options,
    begun: Instant,
    faults: Faults,
    timeline: Arc<EpisodeTimeline>,
    outcome: SoakOutcome,
    say: &'a mut dyn FnMut(&str) -> Result<()>,
}

/// Runs a soak test. `say` receives each progress message as one line.
///
/// # Errors
/// Returns an error if the test environment fails. Defects of the product are part of the outcome.
pub fn run(options: &Options, say: &mut dyn FnMut(&str) -> Result<()>) -> Result<SoakOutcome> {
    let timeline = Arc::new(EpisodeTimeline::default());
    let faults = Faults::new(options.seed, &options.rhythm, options.members, &timeline);
    let outcome = SoakOutcome {
        seed: options.seed,
        survivor: faults.survivor,
        store: if options.members == 0 {
            "SQLite".to_owned()
        } else {
            format!("etcd with {} members", options.members)
        },
        is_growth_judged: options.rests,
        parts: options.parts.len(),
        ..SoakOutcome::default()
    };
    let mut run = Run { options, begun: Instant::now(), faults, timeline, outcome, say };
    let mut stage = Stage::start(options.members)?;
    let mut before = census::of(&stage)?;
    run.prime(&mut stage, &mut before)?;
    stage.fill(options.filling)?;
    run.work(&mut stage)?;
    (run.say)("removing everything")?;
    remove_all(&stage)?;
    run.calm(&mut stage)?;
    if let Err(left) = census::wait_equal(&stage, &before) {
        run.wrong(left)?;
    }
    (run.say)("cleaning up")?;
    census::clean_up(&mut stage)?.into_iter().try_for_each(|left| run.wrong(left))?;
    Ok(run.outcome)
}

impl Run<'_> {
    /// Uses once every feature for which agents allocate memory lazily and keep it, and updates the process
    /// entries of the census `before` (list of resources at the start), so that this memory does not count as
    /// a leak.
    fn prime(&mut self, stage: &mut Stage, before: &mut Census) -> Result<()> {
        stage.fill(0)?;
        stage.cluster.apply_objects(&[stage::first_of_its_kind()])?;
        self.calm(stage)?;
        remove_all(stage)?;
        self.calm(stage)?;
        read_at_once(stage)?;
        census::look_at_processes(stage, before)
    }

    /// Runs all parts of the test: writers and faults, a calm phase without either, a check of all addresses,
    /// and a memory measurement.
    fn work(&mut self, stage: &mut Stage) -> Result<()> {
        let Options { seed, writers, per_second, filling, .. } = *self.options;
        let pace = Pace { seed, writers, per_second, filling };
        let client: Namespace = stage.cluster.topology.client.clone();
        let writers = Writers::start(&client, stage.cluster.api.url(), &pace)?;
        let traffic = Traffic::start(stage, &self.timeline)?;
        let mut random = Random::new(seed, u64::MAX);
        for (part, lasts) in self.options.parts.iter().enumerate() {
            self.faults.processes_die = part < self.options.all_live_after;
            if part == self.options.all_live_after {
                stage.make_memories(self.options.filling, self.options.memories)?;
                self.outcome.warm_since = self.begun.elapsed();
                self.settle(stage, &traffic)?;
            }
            writers.tell(Order::Write)?;
            self.storm(stage, *lasts, &writers, &traffic)?;
            writers.tell(Order::Rest)?;
            self.calm(stage)?;
            match oracle::verify(stage, &mut random) {
                Ok(frontends) => self.outcome.frontends.push(frontends),
                Err(wrong) => self.wrong(format!("at the end of part {part}: {wrong}"))?,
            }
            writers.tell(Order::Tidy)?;
            self.calm(stage)?;
            if part + 1 == self.options.parts.len() {
                // Once without and once with the preparation of the first sample.
                self.settle(stage, &traffic)?;
                stage.make_memories(self.options.filling, self.options.memories)?;
            }
            self.settle(stage, &traffic)?;
        }
        self.outcome.fates = traffic.end();
        let written = writers.end();
        (self.outcome.changes, self.outcome.requests, self.outcome.again) =
            (written.changes, written.requests, written.again);
        written.unexpected.into_iter().try_for_each(|unexpected| self.wrong(unexpected))?;
        for episode in self.timeline.all() {
            *self.outcome.faults.entry(episode.fault.kind).or_default() += 1;
        }
        self.outcome.revisions = revision(stage)?;
        Ok(())
    }

    /// Injects faults while the writers run, for the duration `lasts` and at least until the minimum number
    /// of faults is reached. Then reverts all faults.
    fn storm(
        &mut self,
        stage: &mut Stage,
        lasts: Duration,
        writers: &Writers,
        traffic: &Traffic,
    ) -> Result<()> {
        let begun = Instant::now();
        let (mut looked, mut turned) = (begun, begun);
        let (mut struck, mut told) = (0, [0; 2]);
        while begun.elapsed() < lasts || struck < self.options.faults_min {
            self.look_for_deaths(stage)?;
            struck += usize::from(self.faults.turn(stage)?.is_some());
            let now = Instant::now();
            if !self.faults.is_control_away() {
                self.outcome.control_answered += now - turned;
            }
            turned = now;
            if looked.elapsed() >= self.options.sample_every {
                looked = now;
                self.sample(stage, false)?;
                let fates = traffic.fates();
                let excused: u64 = fates.excused.values().sum();
                let line = format!(
                    "{:>6.0} s: {} requests, {} faults, {} connections ({excused} lost to faults, {} without a reason); {}",
                    self.begun.elapsed().as_secs_f64(),
                    writers.requests(),
                    self.timeline.all().len(),
                    fates.answered,
                    fates.lost,
                    self.memory()
                );
                (self.say)(&line)?;
                for (list, told) in [&fates.told, &fates.again_told].into_iter().zip(&mut told) {
                    for line in list.iter().skip(*told) {
                        (self.say)(&format!("no reply: {line}"))?;
                    }
                    *told = list.len();
                }
            }
            thread::sleep(TURN);
        }
        self.faults.mend_all(stage)?;
        self.outcome.took += begun.elapsed();
        Ok(())
    }

    /// Waits, without faults or writes, until every node has verified the current state in its kernel.
    fn calm(&mut self, stage: &mut Stage) -> Result<()> {
        wait::until_within(CALM, "every node to have verified everything", || {
            let status = stage.cluster.api.get_json("/v1/status")?;
            ensure!(number(&status, "/nodes/converged")? == MODES.len() as u64, "{status:#}");
            Ok(())
        })
    }

    /// Measures the memory of all processes, after a pause of the clients if [`Options::rests`] is set. Each
    /// measurement is made with the same objects, so that the results are comparable.
    fn settle(&mut self, stage: &Stage, traffic: &Traffic) -> Result<()> {
        if self.options.rests {
            traffic.pause(true);
            thread::sleep(REST);
        }
        // All samples carry the same time.
        let at = self.begun.elapsed();
        let mut looks: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for _ in 0..LOOKS {
            for sample in processes::sample(stage, at, true)? {
                looks.entry(sample.process.clone()).or_default().push(sample);
            }
            thread::sleep(if self.options.rests { BETWEEN_LOOKS } else { TURN });
        }
        for (_, mut samples) in looks {
            samples.sort_by_key(|sample| sample.in_use_kib.unwrap_or(sample.anonymous_kib));
            self.outcome.samples.push(samples.swap_remove(samples.len() / 2));
        }
        traffic.pause(false);
        self.outcome.files_kib.push(stage.cluster.files_kib()?);
        let line = format!("{:>6.0} s: settled; {}", self.begun.elapsed().as_secs_f64(), self.memory());
        (self.say)(&line)
    }

    fn sample(&mut self, stage: &Stage, is_settled: bool) -> Result<()> {
        self.outcome.samples.extend(processes::sample(stage, self.begun.elapsed(), is_settled)?);
        Ok(())
    }

    /// Formats the last memory sample of each process: heap in use, or memory allocated from the kernel if
    /// the process does not report its heap.
    fn memory(&self) -> String {
        let mut last = BTreeMap::new();
        for sample in &self.outcome.samples {
            last.insert(&sample.process, (sample.in_use_kib, sample.anonymous_kib));
        }
        let said = |(process, (in_use, taken)): (&&String, &(Option<u64>, u64))| match in_use {
            Some(in_use) => format!("{process} {in_use} of {taken}"),
            None => format!("{process} {taken}"),
        };
        let all: Vec<_> = last.iter().map(said).collect();
        format!("KiB: {}", all.join(", "))
    }

    fn wrong(&mut self, what: String) -> Result<()> {
        (self.say)(&format!("WRONG: {what}"))?;
        self.outcome.wrong.push(what);
        Ok(())
    }

    /// Checks that no process has ended except those that a fault has killed.
    ///
    /// # Errors
    /// Returns an error with the tail of the log if a process has ended, because later results would be
    /// meaningless.
    fn look_for_deaths(&self, stage: &mut Stage) -> Result<()> {
        let server = &mut stage.cluster.server;
        if let Some(status) = server.exit_status().filter(|_| !self.faults.is_killed(0)) {
            bail!("the control server exited unexpectedly ({status}): {}", server.log_tail());
        }
        for (node, agent) in (1..).zip(stage.cluster.agents.values_mut()) {
            if let Some(status) = agent.exit_status().filter(|_| !self.faults.is_killed(node)) {
                bail!("the agent of node{node} exited unexpectedly ({status}): {}", agent.log_tail());
            }
        }
        Ok(())
    }
}

/// Object kinds in deletion order: each before the kinds it depends on.
const COLLECTIONS: [&str; 6] =
    ["services", "endpointsets", "workloads", "advertisements", "bgppeers", "addresspools"];
/// Number of objects per page of a listing.
const PAGE: usize = 500;

/// Deletes every API object except the Nodes.
fn remove_all(stage: &Stage) -> Result<()> {
    for collection in COLLECTIONS {
        loop {
            let page = stage.cluster.api.get_json(&format!("/v1/{collection}?limit={PAGE}"))?;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            if items.is_empty() {
                break;
            }
            for item in items {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let place = match item["metadata"]["namespace"].as_str() {
                    Some(namespace) => format!("namespaces/{namespace}/{collection}/{name}"),
                    None => format!("{collection}/{name}"),
                };
                stage.cluster.delete(&place)?;
            }
        }
    }
    Ok(())
}

/// Sends [`AT_ONCE`] concurrent requests that read the change history, so that the server allocates its
/// buffers for concurrent requests.
fn read_at_once(stage: &Stage) -> Result<()> {
    let ask = || stage.cluster.api.get("/v1/history?limit=500")?.success().map(drop);
    thread::scope(|scope| {
        let asking: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a reader panicked")))
    })
}

fn revision(stage: &Stage) -> Result<u64> {
    let status = stage.cluster.api.get_json("/v1/status")?;
    let position = crate::cluster::control::string(&status, "/position")?;
    Ok(position.rsplit_once('-').map_or(0, |(_, revision)| revision.parse().unwrap_or(0)))
}
