//! The servers of a round, as its clients reach them, and how they read answers.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    chaos::histories::{Answer, Event, Happened, Seen},
    cluster::control::no_tls,
};

/// How long a client waits for an answer before it counts as unknown. Short, because servers are paused for about as long.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long a connection may take to be made. On the same machine only silence takes longer than some milliseconds.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a server may take until it answers again after a storm.
const RECOVERY: Duration = Duration::from_secs(60);
/// Between two looks whether it does.
const RECOVERY_PAUSE: Duration = Duration::from_millis(200);
/// The annotation that holds the value of an object.
const VALUE: &str = "value";
/// What a reader sends to be shown no older state.
const MIN_POSITION: &str = "X-Tidegate-Min-Position";

/// Servers that share a store, and a namespace of it that nobody else uses.
#[derive(Debug, Clone)]
pub struct Site {
    /// The servers.
    pub servers: Vec<SocketAddr>,
    /// The namespace of the objects.
    pub namespace: String,
    /// The life of the store.
    pub epoch: u64,
    /// The revision after which the history begins.
    pub start: u64,
    /// Tells rounds apart by the addresses that their clients ask for.
    lane: u8,
    began: Instant,
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The `ETag`.
    pub etag: Option<String>,
    /// The `X-Revision`.
    pub revision: Option<u64>,
    /// The body.
    pub body: Value,
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The method; GET when it is left out.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// `If-Match`.
    pub if_match: Option<String>,
    /// The least revision of the state that is shown.
    pub at_least: Option<u64>,
    /// The body.
    pub body: Option<Value>,
}

impl Site {
    /// The servers of a round whose history begins at the present position of the first of them that answers.
    ///
    /// # Errors
    /// None of them says where it is.
    pub async fn new(servers: &[SocketAddr], seed: u64) -> Result<Self> {
        let mut site = Self {
            servers: servers.to_vec(),
            namespace: format!("s{seed}"),
            lane: u8::try_from(seed % 200).unwrap_or(0),
            epoch: 0,
            start: 0,
            began: Instant::now(),
        };
        let client = client()?;
        // The newest that any of them knows, so that nobody is asked for what came before.
        for server in 0..servers.len() {
            let call = Call { path: format!("{}?limit=1", site.collection()), ..Call::default() };
            let reply = site.patiently(&client, server, &call).await.context("a server has no list")?;
            let (epoch, revision) = position(&reply.body["metadata"]["position"])?;
            (site.epoch, site.start) = (epoch, site.start.max(revision));
        }
        // The round begins where all of them are: what the one before has left behind may be new to one that was cut off.
        for server in 0..servers.len() {
            let path = format!("{}?limit=1", site.collection());
            let call = Call { path, at_least: Some(site.start), ..Call::default() };
            let reply = site.patiently(&client, server, &call).await?;
            ensure!(reply.status == 200, "a server stays behind: {}", reply.body);
        }
        Ok(site)
    }

    /// Asks until there is an answer: what the storm of the round before has done to a server may take a moment to end.
    async fn patiently(&self, client: &Client, server: usize, call: &Call) -> Result<Reply> {
        let end = Instant::now() + RECOVERY;
        loop {
            match self.call(client, server, call.clone()).await {
                Ok(reply) if reply.status == 200 => return Ok(reply),
                outcome if Instant::now() >= end => return outcome,
                Ok(_) | Err(_) => tokio::time::sleep(RECOVERY_PAUSE).await,
            }
        }
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// An address that clients of the round ask for by name. Objects of other rounds have it by chance only, and these are
    /// gone but for what a request without an answer made after its round.
    #[must_use]
    pub fn address(&self, number: u64) -> String {
        format!("10.96.{}.{}", 50 + u64::from(self.lane), 1 + number)
    }

    /// Deletes what is left of the round.
    ///
    /// # Errors
    /// A server does not do it.
    pub async fn clear(&self, client: &Client) -> Result<()> {
        let Answer::Listing { objects, .. } = self.list(client, 0, None).await? else { return Ok(()) };
        for key in objects.into_keys() {
            let path = format!("{}/{key}", self.collection());
            self.call(client, 0, Call { method: Method::DELETE, path, ..Call::default() }).await?;
        }
        Ok(())
    }

    /// The path of the objects.
    #[must_use]
    pub fn collection(&self) -> String {
        format!("/v1/namespaces/{}/services", self.namespace)
    }

    /// The URL of a path of a server.
    #[must_use]
    pub fn url(&self, server: usize, path: &str) -> String {
        format!("http://{}{path}", self.servers[server])
    }

    /// A resume token.
    #[must_use]
    pub fn token(&self, revision: u64) -> String {
        format!("{}-{revision}", self.epoch)
    }

    /// An object with a value.
    #[must_use]
    pub fn object(&self, key: &str, value: &str, address: Option<&str>) -> Value {
        let mut spec = json!({"ports": [{"port": 80}]});
        if let Some(address) = address {
            spec["clusterIP"] = json!(address);
        }
        let metadata = json!({"name": key, "namespace": self.namespace, "annotations": {VALUE: value}});
        json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": metadata, "spec": spec})
    }

    /// A change of nothing but the value.
    #[must_use]
    pub fn patch(&self, value: &str) -> Value {
        json!({"metadata": {"annotations": {VALUE: value}}})
    }

    /// Asks a server.
    ///
    /// # Errors
    /// There is no answer, or it is cut off.
    pub async fn call(&self, client: &Client, server: usize, call: Call) -> Result<Reply> {
        let Call { method, path, if_match, at_least, body } = call;
        let is_patch = method == Method::PATCH;
        let mut request: RequestBuilder = client.request(method, self.url(server, &path)).timeout(PATIENCE);
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        if let Some(revision) = at_least {
            request = request.header(MIN_POSITION, self.token(revision));
        }
        if let Some(body) = body {
            let form = if is_patch { "application/merge-patch+json" } else { "application/json" };
            request = request.header("content-type", form).body(body.to_string());
        }
        let response = request.send().await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let etag = header("etag").map(str::to_owned);
        let revision = header("x-revision").and_then(|text| text.parse().ok());
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok(Reply { status, etag, revision, body: serde_json::from_str(&text).unwrap_or(Value::Null) })
    }

    /// Lists all objects of a server.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn list(&self, client: &Client, server: usize, at_least: Option<u64>) -> Result<Answer> {
        let call = Call { path: self.collection(), at_least, ..Call::default() };
        let reply = self.call(client, server, call).await?;
        Ok(self.listing(&reply))
    }

    /// Reads the answer to a listing.
    #[must_use]
    pub fn listing(&self, reply: &Reply) -> Answer {
        match reply.status {
            200 => {}
            503 => return Answer::Unknown,
            _ => return unexpected(reply),
        }
        let items = reply.body["items"].as_array();
        let objects: Option<BTreeMap<_, _>> =
            items.and_then(|items| items.iter().map(|item| Some((name(item)?, state(item)?))).collect());
        match (position(&reply.body["metadata"]["position"]), objects) {
            (Ok((epoch, at)), Some(objects)) if epoch == self.epoch => Answer::Listing { at, objects },
            _ => unexpected(reply),
        }
    }
}

/// A client with connections of its own, which does nothing by itself.
///
/// # Errors
/// It cannot be made.
pub fn client() -> Result<Client> {
    let builder = Client::builder().tls_backend_preconfigured(no_tls()?).no_proxy();
    let builder = builder.connect_timeout(CONNECT_PATIENCE);
    builder.build().context("no HTTP client")
}

/// An answer in words.
#[must_use]
pub fn unexpected(reply: &Reply) -> Answer {
    Answer::Unexpected(format!("{}: {}", reply.status, reply.body))
}

/// Reads an object as answers show it.
#[must_use]
pub fn state(object: &Value) -> Option<Seen> {
    let revision = number(&object["metadata"]["resourceVersion"])?;
    Some(Seen { value: value(object)?, revision })
}

fn value(object: &Value) -> Option<String> {
    object["metadata"]["annotations"][VALUE].as_str().map(str::to_owned)
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

/// Reads an event of a watch, if it is about an object.
#[must_use]
pub fn event(line: &Value) -> Option<Event> {
    let happened = match line["type"].as_str()? {
        "ADDED" => Happened::Added,
        "MODIFIED" => Happened::Modified,
        "DELETED" => Happened::Deleted,
        _ => return None,
    };
    let object = &line["object"];
    let address = object["spec"]["clusterIP"].as_str().filter(|address| *address != "None");
    Some(Event {
        revision: number(&line["revision"])?,
        key: name(object)?,
        happened,
        value: value(object)?,
        address: address.map(str::to_owned),
    })
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Reads a position: epoch and revision.
///
/// # Errors
/// It is none.
pub fn position(value: &Value) -> Result<(u64, u64)> {
    let text = value.as_str().ok_or_else(|| anyhow!("no position: {value}"))?;
    let (epoch, revision) = text.split_once('-').with_context(|| format!("no position: {text}"))?;
    Ok((epoch.parse()?, revision.parse()?))
}
