//! `top`: shows the busiest Services, or the nodes slowest to apply changes.

use std::time::Duration;

use serde_json::Value;

use super::document;
use crate::{
    args::{
        Document, TrafficOutput,
        top::{Services, Top, TopOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{
        lag, traffic,
        typed::{decode, documents::OmittedRows},
    },
};

/// Interval between requests. Shorter than the 10 s between two reports of a node, because nodes report at
/// different times.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) async fn run(
    client: &Client,
    arguments: Top,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let manner = match &arguments {
        Top::Services(Services { manner, .. }) | Top::Nodes(manner) => *manner,
    };
    let mut last = None;
    loop {
        let answer = client.send(request(&arguments)).await?;
        let text = shown(&answer, &arguments, manner, terminal);
        if last.as_ref() != Some(&text) {
            // Tables are separated by a blank line.
            let gap = if last.is_some() { "\n" } else { "" };
            match &text {
                Some(text) => terminal.print(&format!("{gap}{text}"))?,
                None => terminal.note("no data reported yet"),
            }
            note_omitted(&answer, terminal);
            terminal.flush().map_err(Failure::from)?;
            last = Some(text);
        }
        if !manner.watch {
            return Ok(ExitCode::Success);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn request(arguments: &Top) -> Request {
    match arguments {
        Top::Nodes(_) => Request::get("/v1/convergence"),
        Top::Services(Services { namespace, sort, limit, manner: _ }) => Request::get("/v1/traffic")
            .query("sortBy", Some(sort.word()))
            .query("limit", Some(limit.to_string()))
            .query("namespace", namespace.as_ref().map(ToString::to_string)),
    }
}

fn shown(answer: &Value, arguments: &Top, manner: TopOutput, terminal: &Terminal) -> Option<String> {
    match (manner.output, arguments) {
        (TrafficOutput::Table, Top::Services(_)) => traffic::busiest(answer, terminal.style),
        (TrafficOutput::Table, Top::Nodes(_)) => lag::by_node(answer, terminal.style),
        (TrafficOutput::Json, _) => Some(document(answer, Document::Json)),
        (TrafficOutput::Yaml, _) => Some(document(answer, Document::Yaml)),
    }
}

fn note_omitted(answer: &Value, terminal: &mut Terminal) {
    let OmittedRows { services_omitted, nodes_omitted } = decode(answer).unwrap_or_default();
    for (omitted, rows) in [
        (services_omitted, "Services, with less traffic, are included in the total only"),
        (nodes_omitted, "nodes are not listed"),
    ] {
        if omitted > 0 {
            terminal.note(&format!("{omitted} more {rows}"));
        }
    }
}
