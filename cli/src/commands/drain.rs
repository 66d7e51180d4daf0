//! `drain`, `maintenance` and `undrain`: update the `maintenance` field of objects and optionally wait until
//! no connection is left.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use model::{
    kinds::{
        address::address_of,
        resource::{Kind, ObjectKey},
        workload::WorkloadSpec,
    },
    primitives::quantity::Timestamp,
};
use serde_json::{Value, json};

use super::{get::parse_name, now};
use crate::{
    args::drain::{Drain, DrainArguments, DrainOptions, DrainSubject, Maintenance, What},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    terminal::style::Tone,
    views::{
        drain::{entity_tag, merged, patch, patch_set, progress},
        render::object_name,
        typed::{ObjectHeader, decode, documents::RemainingConnections, items},
    },
};

/// Interval between polls of the remaining connections; nodes count their connections every second.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// HTTP status code of a request that the caller may not send.
const FORBIDDEN: u16 = 403;

/// Change that a command makes to the maintenance state of its objects.
struct Wish {
    /// Value of the field `maintenance`; null to put the object back in service.
    maintenance: Value,
    /// Verb printed after the name of each changed object, such as `drains`.
    word: &'static str,
}

pub(crate) async fn drain(
    client: &Client,
    arguments: Drain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Drain { object, deadline, manner } = arguments;
    let subject = subject(object)?;
    let seconds = deadline.map(|deadline| i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX));
    let at = seconds.map(|seconds| now().unix_seconds().saturating_add(seconds));
    let at = at.map(|at| Timestamp::from_unix_seconds(at).to_string());
    let wish = Wish { maintenance: asked("Drain", at, &manner), word: "drains" };
    take_out(client, &subject, &wish, &manner, terminal).await
}

pub(crate) async fn maintenance(
    client: &Client,
    arguments: Maintenance,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Maintenance { object, manner } = arguments;
    let subject = subject(object)?;
    let wish = Wish { maintenance: asked("Maintenance", None, &manner), word: "is in maintenance" };
    take_out(client, &subject, &wish, &manner, terminal).await
}

pub(crate) async fn undrain(
    client: &Client,
    object: DrainArguments,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let subject = subject(object)?;
    let wish = Wish { maintenance: Value::Null, word: "is back in service" };
    change(client, &subject, &wish, terminal).await?;
    Ok(ExitCode::Success)
}

fn subject(object: DrainArguments) -> Result<DrainSubject, Failure> {
    object.subject().map_err(|message| Failure::usage(message, "write TYPE NAME or TYPE/NAME"))
}

fn asked(mode: &str, deadline: Option<String>, manner: &DrainOptions) -> Value {
    let mut maintenance = json!({ "mode": mode });
    let by = manner.by.clone().filter(|by| !by.trim().is_empty());
    for (field, value) in [("reason", manner.reason.clone()), ("by", by), ("deadline", deadline)] {
        if let Some(value) = value {
            maintenance[field] = Value::String(value);
        }
    }
    maintenance
}

async fn take_out(
    client: &Client,
    subject: &DrainSubject,
    wish: &Wish,
    manner: &DrainOptions,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    if subject.what == What::Node {
        // Counted before the change, because the addresses move at once.
        note_moves(client, subject, terminal).await?;
    }
    let changed = change(client, subject, wish, terminal).await?;
    if manner.wait {
        wait(client, subject, &changed, manner.wait_timeout, terminal).await?;
    }
    Ok(ExitCode::Success)
}

/// Changes the maintenance state of every object that the command names, and returns the updated objects.
async fn change(
    client: &Client,
    subject: &DrainSubject,
    wish: &Wish,
    terminal: &mut Terminal,
) -> Result<Vec<Value>, Failure> {
    let requests = match subject.what {
        What::Endpoint => requests_for_address(client, subject, wish).await?,
        What::Workload => vec![request(subject, Kind::Workload, wish)?],
        What::Node => vec![request(subject, Kind::Node, wish)?],
        What::Service => vec![request(subject, Kind::Service, wish)?],
    };
    let mut changed = Vec::new();
    for request in requests {
        let object = client.send(request.query("dryRun", subject.dry_run.then_some("true"))).await?;
        let suffix = if subject.dry_run { " (dry run)" } else { "" };
        let word = terminal.style.paint(Tone::Good, wish.word);
        terminal.print(&format!("{} {word}{suffix}\n", object_name(&object)))?;
        changed.push(object);
    }
    Ok(changed)
}

/// Prints the number of load balancer addresses that a drain of the Node moves to other nodes, and the number of
/// connections that the move may reset. Prints nothing if the caller may not read addresses.
async fn note_moves(client: &Client, subject: &DrainSubject, terminal: &mut Terminal) -> Result<(), Failure> {
    let look = || Request::get("/v1/addresses").query("node", Some(subject.name.as_str()));
    let list = match client.list(look).await {
        Ok(list) => list.envelope,
        Err(failure) => return unless_forbidden(failure),
    };
    let moved = match items(&list, "/items").len() {
        0 => return Ok(()),
        1 => "1 load balancer address moves to another node".to_owned(),
        addresses => format!("{addresses} load balancer addresses move to other nodes"),
    };
    let drains = Request::get("/v1/drains").query("node", Some(subject.name.as_str()));
    let remaining: RemainingConnections = match client.send(drains).await {
        Ok(remaining) => decode(&remaining).unwrap_or_default(),
        Err(failure) => {
            unless_forbidden(failure)?;
            RemainingConnections::default()
        }
    };
    let count = match remaining.connections_through_node {
        Some(count) => format!(" (at most {count} at the last count)"),
        None => String::new(),
    };
    terminal.note(&format!("{moved}; established connections through this node are reset{count}"));
    Ok(())
}

fn unless_forbidden(failure: Failure) -> Result<(), Failure> {
    if let Failure::Refused(problem) = &failure
        && problem.rejection.status == FORBIDDEN
    {
        return Ok(());
    }
    Err(failure)
}

fn request(subject: &DrainSubject, kind: Kind, wish: &Wish) -> Result<Request, Failure> {
    let name = parse_name(Resource::Object(kind), &subject.name)?;
    let namespace = kind.is_namespaced().then(|| subject.namespace.clone());
    let key = ObjectKey { kind, namespace, name };
    Ok(Request::patch(key.path()).json(&patch(&wish.maintenance)))
}

/// Builds the requests that change the EndpointSets and Workloads of the namespace that contain the address.
async fn requests_for_address(
    client: &Client,
    subject: &DrainSubject,
    wish: &Wish,
) -> Result<Vec<Request>, Failure> {
    let address = parse_address(&subject.name)?;
    let collection = |kind: Kind| format!("/v1/namespaces/{}/{}", subject.namespace, kind.plural());
    let mut requests = Vec::new();
    let path = collection(Kind::EndpointSet);
    for set in items(&client.list(|| Request::get(path.clone())).await?.envelope, "/items") {
        let Some(patch) = patch_set(set, address, &wish.maintenance) else { continue };
        // The list is sent as a whole, so the object must be unchanged since it was read (If-Match).
        let at = format!("{path}/{}", ObjectHeader::of(set).metadata.name);
        requests.push(Request::patch(at).json(&patch).if_match(entity_tag(set)));
    }
    let path = collection(Kind::Workload);
    for workload in items(&client.list(|| Request::get(path.clone())).await?.envelope, "/items") {
        if addresses(workload).contains(&address) {
            let at = format!("{path}/{}", ObjectHeader::of(workload).metadata.name);
            requests.push(Request::patch(at).json(&patch(&wish.maintenance)));
        }
    }
    if requests.is_empty() {
        return Err(Failure::usage(
            format!(
                "no EndpointSet or Workload in namespace {} has the address {address}",
                subject.namespace
            ),
            "`tidegate get endpoints -A` lists the addresses behind all Services",
        ));
    }
    Ok(requests)
}

/// Returns the addresses of a Workload.
fn addresses(workload: &Value) -> Vec<IpAddr> {
    let spec: Option<WorkloadSpec> = workload.get("spec").and_then(decode);
    spec.map(|spec| spec.addresses).unwrap_or_default()
}

fn parse_address(text: &str) -> Result<IpAddr, Failure> {
    address_of(text).ok_or_else(|| {
        Failure::usage(
            format!("`{text}` is not an address"),
            "write `tidegate drain endpoint 192.0.2.1`, or name a workload, node or service",
        )
    })
}

/// Waits until the drained objects have no connection left. Prints the progress each time it changes. Returns
/// an error if connections remain after the time `patience`; waits without limit if `patience` is `None`.
async fn wait(
    client: &Client,
    subject: &DrainSubject,
    changed: &[Value],
    patience: Option<Duration>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut said = String::new();
    loop {
        let mut lists = Vec::new();
        for request in looks(subject, changed)? {
            lists.push(decode(&client.send(request).await?).unwrap_or_default());
        }
        let list = merged(lists);
        if list.is_over {
            terminal.print(match subject.what {
                What::Node => "no connection to an endpoint on the node is left\n",
                What::Endpoint | What::Workload | What::Service => "no connection is left\n",
            })?;
            return Ok(());
        }
        let line = progress(&list);
        if line != said {
            terminal.note(&line);
            said = line;
        }
        if let Some(patience) = patience.filter(|patience| begun.elapsed() >= *patience) {
            return Err(Failure::StillOpen { connections: list.connections, after: patience });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the GET requests that read the connection counts of everything being drained.
fn looks(subject: &DrainSubject, changed: &[Value]) -> Result<Vec<Request>, Failure> {
    let look = || Request::get("/v1/drains");
    let in_namespace = || look().query("namespace", Some(subject.namespace.as_str()));
    Ok(match subject.what {
        What::Node => vec![look().query("node", Some(subject.name.as_str()))],
        What::Service => vec![in_namespace().query("service", Some(subject.name.as_str()))],
        What::Endpoint => {
            vec![in_namespace().query("address", Some(parse_address(&subject.name)?.to_string()))]
        }
        What::Workload => {
            let addresses = changed.iter().flat_map(addresses);
            addresses.map(|address| in_namespace().query("address", Some(address.to_string()))).collect()
        }
    })
}
