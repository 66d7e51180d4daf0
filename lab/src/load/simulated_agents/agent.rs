//! One agent of a herd: it follows its feed and reports, and has no kernel.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use model::{
    kinds::address::Announcement,
    primitives::quantity::{Position, Timestamp},
    wire::feed::Frame,
};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::{Behaviour, Heard, Member};

/// How often an agent reports when nothing is new: half of the server's lease. Real ones do so every five seconds; where hundreds
/// share a machine with the server and much else, that would be most of what the machine does.
const REPORT_EVERY: Duration = Duration::from_secs(7);
/// What comes within this time after a change is in one report.
const GATHER: Duration = Duration::from_millis(100);
/// Before an agent connects again.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one request may take on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line of a feed, in bytes; the server's own limit of an object is far below.
const LINE_MAX: usize = 16 * 1024 * 1024;
/// How the lines begin that an agent of a herd does not look into: most of what it is sent.
const SKIPPED: [&[u8]; 2] = [br#"{"type":"service""#, br#"{"type":"network""#];

/// The control server, as agents reach it.
pub(super) struct Control {
    pub(super) client: Client,
    pub(super) base: String,
    /// Of the requests that the herd may have under way.
    pub(super) requests: Arc<Semaphore>,
    pub(super) heard: Heard,
}

pub(super) struct Agent {
    control: Control,
    member: Member,
    told: watch::Receiver<Behaviour>,
    /// Where it began.
    begun: Position,
    received: Position,
    /// The epoch of each address in which the node has a part, and whether it is the first.
    parts: BTreeMap<IpAddr, (u64, bool)>,
    /// Parts that control has not been told of.
    news: BTreeMap<IpAddr, Option<(u64, bool)>>,
    is_complete_told: bool,
    has_reported: bool,
}

/// Creates the Node of a member. That it exists already is as good.
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

impl Agent {
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

    /// Follows and reports for ever.
    pub(super) async fn run(mut self) {
        loop {
            self.wait_to_speak().await;
            // Whatever ends it, an agent comes back.
            let _ = self.follow().await;
            sleep(PAUSE).await;
        }
    }

    /// An agent that is to be silent is heard once, and then no more.
    async fn wait_to_speak(&mut self) {
        if !self.has_reported {
            return;
        }
        let is_speaking = |behaviour: &Behaviour| *behaviour != Behaviour::IsSilent;
        if self.told.wait_for(is_speaking).await.is_err() {
            // The herd is gone, and this task with it in a moment.
            std::future::pending().await
        }
    }

    async fn follow(&mut self) -> Result<()> {
        let url =
            format!("{}/v1/nodes/{}/state?resume={}", self.control.base, self.member.node, self.received);
        let answer = timeout(REQUEST_TIMEOUT, self.control.client.get(url).send()).await??;
        let mut feed = Lines { answer: answer.error_for_status()?, rest: Vec::new() };
        self.is_complete_told = false;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                line = feed.next() => {
                    if self.hear(&line?)? {
                        due = due.min(Instant::now() + GATHER);
                    }
                }
                changed = self.told.changed() => {
                    changed.context("the herd is gone")?;
                    due = Instant::now();
                }
                () = tokio::time::sleep_until(due) => {
                    self.report().await?;
                    if *self.told.borrow() == Behaviour::IsSilent {
                        bail!("it is to be silent");
                    }
                    due = Instant::now() + REPORT_EVERY;
                }
            }
        }
    }

    /// Takes a line; says whether control should hear of it soon.
    fn hear(&mut self, line: &[u8]) -> Result<bool> {
        if SKIPPED.iter().any(|skipped| line.starts_with(skipped)) {
            return Ok(false);
        }
        match serde_json::from_slice(line).context("a line of the feed")? {
            Frame::Synced { position } => {
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

    /// How far it says it is.
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
                if is_first { ("Owner", "first candidate") } else { ("Standby", "another is before it") };
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

/// The lines of a stream.
struct Lines {
    answer: Response,
    rest: Vec<u8>,
}

impl Lines {
    /// The next line. Nothing is lost when it is not awaited to its end.
    async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                return Ok(self.rest.drain(..=end).collect());
            }
            ensure!(self.rest.len() < LINE_MAX, "a line of the feed has more than {LINE_MAX} bytes");
            let piece = self.answer.chunk().await?.context("the feed has ended")?;
            self.rest.extend_from_slice(&piece);
        }
    }
}
