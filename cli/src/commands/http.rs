//! `explain http`: decision of gateways for a request, as the control server computes it. `http gateways`: the gateways and
//! their problems.

use model::wire::http_gateway::HttpGatewayList;

use super::document;
use crate::{
    args::{
        Document, TrafficOutput,
        explain::{Explain, ExplainOutput},
        http::{Http, HttpGateways},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{http, typed::decode_or_default},
};

/// Runs a subcommand of `http`.
pub(crate) async fn run(
    client: &Client,
    command: Http,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Http::Gateways(HttpGateways { watch: _, output }) = command;
    let answer = client.send(Request::get("/v1/http/gateways")).await?;
    let list: HttpGatewayList = decode_or_default(Some(&answer));
    match output {
        TrafficOutput::Table => terminal.print(&http::gateways(&list, terminal.style))?,
        TrafficOutput::Json => terminal.print(&document(&answer, Document::Json))?,
        TrafficOutput::Yaml => terminal.print(&document(&answer, Document::Yaml))?,
    }
    if list.gateways.is_empty() {
        terminal.note("no gateway has reported to the control server within the last hour");
    }
    let has_problem = list.gateways.iter().any(|gateway| !gateway.problems.is_empty());
    Ok(if has_problem { ExitCode::Problems } else { ExitCode::Success })
}

/// Runs `explain http URL`.
pub(crate) async fn explain(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Explain { second, from, method, header, output, .. } = arguments;
    let headers = (!header.is_empty()).then(|| header.join("\n"));
    let request = Request::get("/v1/explain/http")
        .query("url", second)
        .query("method", method)
        .query("headers", headers)
        .query("from", from.map(|address| address.to_string()));
    let answer = client.send(request).await?;
    terminal.print(&match output {
        ExplainOutput::Text => http::explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    })?;
    Ok(ExitCode::Success)
}
