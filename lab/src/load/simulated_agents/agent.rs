//! Simulated agent without a kernel: registers its Node, reads its feed (stream of cluster state) and sends
//! reports.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use client::Lines;
use model::{
    kinds::address::Announcement,
    primitives::quantity::{Position, Timestamp},
    wire::feed::Frame,
};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::{AcceptedReports, Behaviour, Member};

/// Interval between reports without changes: half of the time after which the server considers a silent agent
/// disconnected. Real agents report every five seconds; with hundreds of agents, such reports would be most
/// of the load on the machine.
const REPORT_EVERY: Duration = Duration::from_secs(7);
/// Time within which changes are coalesced into one report.
const GATHER: Duration = Duration::from_millis(100);
/// Delay before the agent reconnects to the server.
const PAUSE: Duration = Duration::from_millis(500);
/// Timeout of a request, long enough for a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to wait for data on the feed. Each report restarts the timeout, and reports are sent more
/// often, so the feed of a suspended server stays open.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Maximum length of a line of the feed (stream of cluster state) in bytes, far above the server's limit for
/// one object.
const LINE_MAX: usize = 16 * 1024 * 1024;
/// Prefixes of feed lines that a simulated agent does not parse; these are most of the feed.
const SKIPPED: [&[u8]; 2] = [br#"{"type":"service""#, br#"{"type":"network""#];

/// Connection parameters of the control server, shared by all simulated agents.
pub(super) struct Control {
    pub(super) client: Client,
    pub(super) base: String,
    /// Semaphore that limits the concurrent requests of all simulated agents.
    pub(super) requests: Arc<Semaphore>,
    pub(super) heard: AcceptedReports,
}

pub(super) struct SimulatedAgent {
    control: Control,
    member: Member,
    told: watch::Receiver<Behaviour>,
    /// Position (epoch and revision) of the state that the agent has at the start.
    begun: Position,
    received: Position,
    /// Addresses of which this node is a candidate (may announce them), each with the epoch of its
    /// announcement, and true if the node is the first candidate.
    parts: BTreeMap<IpAddr, (u64, bool)>,
    /// Changes of `parts` that have not been reported yet; `None` for an address of which the node is no
    /// longer a candidate.
    news: BTreeMap<IpAddr, Option<(u64, bool)>>,
    is_complete_told: bool,
    has_reported: bool,
}

/// Creates the Node object of an agent. An existing Node is kept.
pub(super) async fn register(client: &Client, base: &str, member: &Member) -> Result<()> {
    let Member { node, networks, zone, behaviour: _ } = member;
    let addresses: Vec<_> = networks.iter().map(|network| network.addr().to_string()).collect();
    let mut spec = json!({"addresses": addresses});
    if let Some(zone) = zone {
        spec["zone"] = json!(zone);
    }
    let object =
        json!({"apiVersion": "tidegate/v1", "kind": "Node", "metadata": {"name": node}, "spec": spec});
    let request =
        client.post(format!("{base}/v1/nodes")).header("x-tidegate-author", format!("agent:{node}"));
    let answer = request.json(&object).timeout(REQUEST_TIMEOUT).send().await?;
    let status = answer.status();
    let is_there = status.is_success() || status == http::StatusCode::CONFLICT;
    ensure!(is_there, "registering {node}: {status}: {}", answer.text().await.unwrap_or_default());
    Ok(())
}

impl SimulatedAgent {
    pub(super) fn new(
        control: Control,
        member: Member,
        told: watch::Receiver<Behaviour>,
        begun: Position,
    ) -> Self {
        Self {
            control,
            member,
            told,
            begun,
            received: begun,
            parts: BTreeMap::new(),
            news: BTreeMap::new(),
            is_complete_told: false,
            has_reported: false,
        }
    }

    /// Reads the feed (stream of cluster state) and sends reports until the task is dropped. Reconnects after
    /// errors.
    pub(super) async fn run(mut self) {
        loop {
            self.wait_to_speak().await;
            // An agent reconnects after any error.
            let _ = self.follow().await;
            sleep(PAUSE).await;
        }
    }

    /// Waits while the agent is configured to be silent. The first report is sent in any case.
    async fn wait_to_speak(&mut self) {
        if !self.has_reported {
            return;
        }
        let is_speaking = |behaviour: &Behaviour| *behaviour != Behaviour::IsSilent;
        if self.told.wait_for(is_speaking).await.is_err() {
            // The herd was dropped, and this task ends with it shortly.
            std::future::pending().await
        }
    }

    async fn follow(&mut self) -> Result<()> {
        let url =
            format!("{}/v1/nodes/{}/state?resume={}", self.control.base, self.member.node, self.received);
        let answer = timeout(REQUEST_TIMEOUT, self.control.client.get(url).send()).await??;
        let mut feed = Lines::new(answer.error_for_status()?, LINE_MAX, SILENCE_MAX);
        self.is_complete_told = false;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                line = feed.next() => {
                    if self.hear(&line?.context("the feed has ended")?)? {
                        due = due.min(Instant::now() + GATHER);
                    }
                }
                changed = self.told.changed() => {
                    changed.context("the herd was dropped")?;
                    due = Instant::now();
                }
                () = tokio::time::sleep_until(due) => {
                    self.report().await?;
                    if *self.told.borrow() == Behaviour::IsSilent {
                        bail!("the agent is configured to be silent");
                    }
                    due = Instant::now() + REPORT_EVERY;
                }
            }
        }
    }

    /// Processes a line of the feed (stream of cluster state). Returns true if it completes changes that the
    /// agent must report soon.
    fn hear(&mut self, line: &[u8]) -> Result<bool> {
        if SKIPPED.iter().any(|skipped| line.starts_with(skipped)) {
            return Ok(false);
        }
        match serde_json::from_slice(line).context("parsing a line of the feed")? {
            Frame::Synced { position, .. } => {
                let is_new = position != self.received;
                self.received = position;
                return Ok(is_new || !self.news.is_empty());
            }
            Frame::Address { address } => self.note(address.address, Some(&address.announcement)),
            Frame::AddressRemoved { address, .. } => self.note(address, None),
            Frame::Start { .. }
            | Frame::Network(_)
            | Frame::Node(_)
            | Frame::Service { .. }
            | Frame::Removed { .. }
            | Frame::WorkloadNetwork { .. }
            | Frame::WorkloadNetworkRemoved { .. }
            | Frame::Block { .. }
            | Frame::BlockRemoved { .. }
            | Frame::PolicySet { .. }
            | Frame::PolicySetRemoved { .. }
            | Frame::PolicyWorkload { .. }
            | Frame::PolicyWorkloadRemoved { .. }
            | Frame::Ask { .. }
            | Frame::Heartbeat { .. } => {}
        }
        Ok(false)
    }

    fn note(&mut self, address: IpAddr, announcement: Option<&Announcement>) {
        let rank = announcement.and_then(|announcement| {
            let place =
                announcement.candidates.iter().position(|candidate| candidate.node == self.member.node)?;
            Some((announcement.epoch, place == 0))
        });
        let before = match rank {
            Some(part) => self.parts.insert(address, part),
            None => self.parts.remove(&address),
        };
        if before != rank {
            self.news.insert(address, rank);
        }
    }

    async fn report(&mut self) -> Result<()> {
        let (body, verified) = (self.body(), self.verified());
        let url = format!("{}/v1/nodes/{}/report", self.control.base, self.member.node);
        let _permit = self.control.requests.acquire().await.context("the semaphore is never closed")?;
        let answer = self.control.client.put(url).json(&body).timeout(REQUEST_TIMEOUT).send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "report: {status}: {}", answer.text().await.unwrap_or_default());
        self.control.heard.note(&self.member.node, verified);
        self.news.clear();
        self.is_complete_told = true;
        self.has_reported = true;
        Ok(())
    }

    /// Returns the position (epoch and revision) that the agent reports as verified, according to its
    /// configured behavior.
    fn verified(&self) -> Position {
        if *self.told.borrow() == Behaviour::Lags { self.begun } else { self.received }
    }

    fn body(&self) -> Value {
        let behaviour = self.told.borrow();
        let applied = self.verified();
        let failures: BTreeMap<String, Value> = match &*behaviour {
            Behaviour::Refuses(services) => {
                services.iter().map(|key| (key.to_string(), self.refusal())).collect()
            }
            Behaviour::Converges | Behaviour::Lags | Behaviour::IsSilent => BTreeMap::new(),
        };
        let mut body = json!({
            "bootId": format!("herd-{}", self.member.node),
            "agentVersion": env!("CARGO_PKG_VERSION"),
            "mode": "nftables",
            "received": self.received,
            "applied": applied,
            "verified": applied,
            "failuresTotal": failures.len(),
            "failures": failures,
            "facts": {
                "addresses": self.member.networks.iter().map(|network| network.addr()).collect::<Vec<_>>(),
                "subnets": {"eth0": self.member.networks.iter().map(ipnet::IpNet::trunc).collect::<Vec<_>>()},
                "kernel": "simulated",
                "capabilities": ["nftables"],
            },
            "announcementsComplete": !self.is_complete_told,
        });
        self.say_parts(&mut body);
        body
    }

    fn refusal(&self) -> Value {
        json!({"revision": self.received.revision, "reason": "KernelRefused",
            "message": "cannot add element to map services: No space left on device"})
    }

    fn say_parts(&self, body: &mut Value) {
        let now = now();
        let part = |(epoch, is_first): (u64, bool)| {
            let (role, reason) =
                if is_first { ("Owner", "first candidate") } else { ("Standby", "first candidate") };
            json!({"role": role, "epoch": epoch, "since": now, "reason": reason, "interfaces": ["eth0"]})
        };
        let (mut parts, mut gone) = (serde_json::Map::new(), Vec::new());
        if self.is_complete_told {
            for (address, news) in &self.news {
                match news {
                    Some(rank) => drop(parts.insert(address.to_string(), part(*rank))),
                    None => gone.push(address.to_string()),
                }
            }
        } else {
            parts.extend(self.parts.iter().map(|(address, rank)| (address.to_string(), part(*rank))));
        }
        body["announcements"] = Value::Object(parts);
        body["announcementsGone"] = json!(gone);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
