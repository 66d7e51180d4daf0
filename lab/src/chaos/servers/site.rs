//! Client access to the control servers in a round of the consistency test: requests, and parsing of
//! responses.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    chaos::histories::{ChangeEvent, ChangeEventKind, Freshness, ObjectState, RequestOutcome},
    cluster::control::http_builder,
};

/// Response timeout, after which the outcome is unknown. Short, because servers are suspended for about as
/// long.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Connect timeout. On the same machine a successful connect takes milliseconds.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);
/// Timeout for a server to respond again after faults.
const RECOVERY: Duration = Duration::from_secs(60);
/// Poll interval while waiting for recovery.
const RECOVERY_PAUSE: Duration = Duration::from_millis(200);
/// Annotation that holds the value of an object.
const VALUE: &str = "value";
/// Header with the minimum position of a read.
const MIN_POSITION: &str = "X-Tidegate-Min-Position";

/// Control servers that share one store, and the API namespace whose objects only this round of the test
/// uses.
#[derive(Debug, Clone)]
pub struct Site {
    /// Addresses of the servers.
    pub servers: Vec<SocketAddr>,
    /// Namespace of the objects.
    pub namespace: String,
    /// Number that identifies the store: a position in its change log consists of this epoch and a revision.
    pub epoch: u64,
    /// Revision before the first operation.
    pub start: u64,
    /// Number from which the requested addresses of the round are derived, so that rounds rarely share addresses.
    lane: u8,
    began: Instant,
}

/// Response of a server, including error responses.
#[derive(Debug, Clone)]
pub struct SiteReply {
    /// HTTP status code of the response.
    pub status: u16,
    /// Value of the `ETag` header, if present.
    pub etag: Option<String>,
    /// Value of the `X-Revision` header, the revision of a write.
    pub revision: Option<u64>,
    /// JSON body of the response.
    pub body: Value,
}

/// HTTP request to a server.
#[derive(Debug, Clone, Default)]
pub struct SiteCall {
    /// HTTP method of the request; the default is GET.
    pub method: Method,
    /// URL path and query of the request.
    pub path: String,
    /// Value of the `If-Match` header; `None` makes the request unconditional.
    pub if_match: Option<String>,
    /// Required age of the returned state.
    pub freshness: Freshness,
    /// JSON body; `None` for requests without one.
    pub body: Option<Value>,
}

impl Site {
    /// Creates the access for a round, at the current position (epoch and revision) of the store. Waits until
    /// every server has reached this position.
    ///
    /// # Errors
    /// Returns an error if no server returns a position.
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
        // The newest position of all servers, so that earlier events are not requested.
        for server in 0..servers.len() {
            let call = SiteCall { path: format!("{}?limit=1", site.collection()), ..SiteCall::default() };
            let reply = site.patiently(&client, server, &call).await.context("listing from a server")?;
            let (epoch, revision) = position(&reply.body["metadata"]["position"])?;
            (site.epoch, site.start) = (epoch, site.start.max(revision));
        }
        // The round begins when all servers have reached this position: a server that was cut off may still
        // lack the previous round.
        for server in 0..servers.len() {
            let path = format!("{}?limit=1", site.collection());
            let call = SiteCall { path, freshness: Freshness::AtLeast(site.start), ..SiteCall::default() };
            let reply = site.patiently(&client, server, &call).await?;
            ensure!(reply.status == 200, "a server lags behind: {}", reply.body);
        }
        Ok(site)
    }

    /// Sends a request repeatedly until a response has status 200, because servers may still recover from
    /// faults of the previous round. After a timeout, returns the last response or error.
    async fn patiently(&self, client: &Client, server: usize, call: &SiteCall) -> Result<SiteReply> {
        let end = Instant::now() + RECOVERY;
        loop {
            match self.call(client, server, call.clone()).await {
                Ok(reply) if reply.status == 200 => return Ok(reply),
                outcome if Instant::now() >= end => return outcome,
                Ok(_) | Err(_) => tokio::time::sleep(RECOVERY_PAUSE).await,
            }
        }
    }

    /// Returns the time since the start of the round, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the cluster IP with index `number` among those that Services of this round request. Other
    /// rounds mostly use different addresses, so a Service left by an earlier round rarely has one of them.
    #[must_use]
    pub fn address(&self, number: u64) -> String {
        format!("10.96.{}.{}", 50 + u64::from(self.lane), 1 + number)
    }

    /// Deletes all objects that are left in the API namespace of the round.
    ///
    /// # Errors
    /// Returns an error if a server does not respond.
    pub async fn clear(&self, client: &Client) -> Result<()> {
        let RequestOutcome::Listing { objects, .. } = self.list(client, 0, Freshness::Any).await? else {
            return Ok(());
        };
        for key in objects.into_keys() {
            let path = format!("{}/{key}", self.collection());
            self.call(client, 0, SiteCall { method: Method::DELETE, path, ..SiteCall::default() }).await?;
        }
        Ok(())
    }

    /// Returns the API path of the round's Services.
    #[must_use]
    pub fn collection(&self) -> String {
        format!("/v1/namespaces/{}/services", self.namespace)
    }

    /// Returns the URL of a path on the server with index `server`.
    #[must_use]
    pub fn url(&self, server: usize, path: &str) -> String {
        format!("http://{}{path}", self.servers[server])
    }

    /// Returns the watch token with which a client resumes after a revision, in the current epoch of the
    /// store.
    #[must_use]
    pub fn token(&self, revision: u64) -> String {
        format!("{}-{revision}", self.epoch)
    }

    /// Builds a Service that contains `value` in an annotation and requests the cluster IP `address`, if
    /// given.
    #[must_use]
    pub fn object(&self, key: &str, value: &str, address: Option<&str>) -> Value {
        let mut spec = json!({"ports": [{"port": 80}]});
        if let Some(address) = address {
            spec["clusterIP"] = json!(address);
        }
        let metadata = json!({"name": key, "namespace": self.namespace, "annotations": {VALUE: value}});
        json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": metadata, "spec": spec})
    }

    /// Builds a merge patch that changes only the annotation with the value of an object.
    #[must_use]
    pub fn patch(&self, value: &str) -> Value {
        json!({"metadata": {"annotations": {VALUE: value}}})
    }

    /// Sends a request to a server.
    ///
    /// # Errors
    /// Returns an error if the server sends no complete response.
    pub async fn call(&self, client: &Client, server: usize, call: SiteCall) -> Result<SiteReply> {
        let SiteCall { method, path, if_match, freshness, body } = call;
        let is_patch = method == Method::PATCH;
        let mut request: RequestBuilder = client.request(method, self.url(server, &path)).timeout(PATIENCE);
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        match freshness {
            Freshness::Any => {}
            Freshness::AtLeast(revision) => request = request.header(MIN_POSITION, self.token(revision)),
            Freshness::Latest => request = request.header(MIN_POSITION, "latest"),
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
        Ok(SiteReply { status, etag, revision, body: serde_json::from_str(&text).unwrap_or(Value::Null) })
    }

    /// Lists all objects of the round at a server, in a state of the required age.
    ///
    /// # Errors
    /// Returns an error if there is no response.
    pub async fn list(&self, client: &Client, server: usize, freshness: Freshness) -> Result<RequestOutcome> {
        let call = SiteCall { path: self.collection(), freshness, ..SiteCall::default() };
        let reply = self.call(client, server, call).await?;
        Ok(self.listing(&reply))
    }

    /// Converts the response to a list request to the outcome that the client records.
    #[must_use]
    pub fn listing(&self, reply: &SiteReply) -> RequestOutcome {
        match reply.status {
            200 => {}
            503 => return RequestOutcome::Unknown,
            _ => return unexpected(reply),
        }
        let items = reply.body["items"].as_array();
        let objects: Option<BTreeMap<_, _>> =
            items.and_then(|items| items.iter().map(|item| Some((name(item)?, state(item)?))).collect());
        match (position(&reply.body["metadata"]["position"]), objects) {
            (Ok((epoch, at)), Some(objects)) if epoch == self.epoch => {
                RequestOutcome::Listing { at, objects }
            }
            _ => unexpected(reply),
        }
    }
}

/// Creates an HTTP client that shares no connections with other clients.
///
/// # Errors
/// Returns an error if the client cannot be created.
pub fn client() -> Result<Client> {
    http_builder()?.connect_timeout(CONNECT_PATIENCE).build().context("cannot create an HTTP client")
}

/// Builds the outcome of a request whose response does not fit the request, with a description of the response.
#[must_use]
pub fn unexpected(reply: &SiteReply) -> RequestOutcome {
    RequestOutcome::Unexpected(format!("{}: {}", reply.status, reply.body))
}

/// Parses an object in a response and returns its state, or `None` if a field is missing.
#[must_use]
pub fn state(object: &Value) -> Option<ObjectState> {
    let revision = number(&object["metadata"]["resourceVersion"])?;
    Some(ObjectState { value: value(object)?, revision })
}

fn value(object: &Value) -> Option<String> {
    object["metadata"]["annotations"][VALUE].as_str().map(str::to_owned)
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

/// Parses a line of a watch; returns `None` unless the line is a change event.
#[must_use]
pub fn event(line: &Value) -> Option<ChangeEvent> {
    let happened = match line["type"].as_str()? {
        "ADDED" => ChangeEventKind::Added,
        "MODIFIED" => ChangeEventKind::Modified,
        "DELETED" => ChangeEventKind::Deleted,
        _ => return None,
    };
    let object = &line["object"];
    let address = object["spec"]["clusterIP"].as_str().filter(|address| *address != "None");
    Some(ChangeEvent {
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

/// Parses a position: epoch and revision.
///
/// # Errors
/// Returns an error if the value is not a position.
pub fn position(value: &Value) -> Result<(u64, u64)> {
    let text = value.as_str().ok_or_else(|| anyhow!("not a position: {value}"))?;
    let (epoch, revision) = text.split_once('-').with_context(|| format!("not a position: {text}"))?;
    Ok((epoch.parse()?, revision.parse()?))
}
