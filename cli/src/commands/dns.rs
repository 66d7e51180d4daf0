//! `dns query` and `explain dns`: answers of the DNS servers to a name, as the control server computes them.

use std::net::IpAddr;

use model::{discovery::dns::NameResult, primitives::name::Name};

use super::document;
use crate::{
    args::{
        Document,
        dns::{Dns, DnsQuery},
        explain::{Explain, ExplainOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{dns, typed::decode_or_default},
};

/// Runs a subcommand of `dns`.
pub(crate) async fn run(client: &Client, command: Dns, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let Dns::Query(DnsQuery { name, record_type, from, namespace, domain, output }) = command;
    let request = request(&name, Some(record_type), from, domain)
        .query("namespace", namespace.map(|namespace| namespace.to_string()));
    let answer = client.send(request).await?;
    match output {
        ExplainOutput::Text => {}
        ExplainOutput::Json => terminal.print(&document(&answer, Document::Json))?,
        ExplainOutput::Yaml => terminal.print(&document(&answer, Document::Yaml))?,
    }
    let explanation: dns::Explanation = decode_or_default(Some(&answer));
    let Some(last) = explanation.last() else { return Ok(ExitCode::Problems) };
    if output == ExplainOutput::Text {
        terminal.print(&dns::records(last, terminal.style))?;
    }
    if last.result == NameResult::Records {
        return Ok(ExitCode::Success);
    }
    terminal.note(&format!("{}: {}", last.name, last.reason));
    Ok(ExitCode::Problems)
}

/// Runs `explain dns NAME [TYPE]`.
pub(crate) async fn explain(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Explain { second, third, from, domain, namespace, output, .. } = arguments;
    let name = second.unwrap_or_default();
    let request = request(&name, third, from, domain).query("namespace", Some(namespace.to_string()));
    let answer = client.send(request).await?;
    terminal.print(&match output {
        ExplainOutput::Text => dns::explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    })?;
    Ok(ExitCode::Success)
}

fn request(name: &str, record_type: Option<String>, from: Option<IpAddr>, domain: Option<Name>) -> Request {
    Request::get("/v1/dns/explain")
        .query("name", Some(name.to_owned()))
        .query("type", record_type)
        .query("from", from.map(|address| address.to_string()))
        .query("domain", domain.map(|domain| domain.to_string()))
}
