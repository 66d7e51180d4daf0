//! `dns query` and `explain dns`: answers of the DNS servers to a name, as the control server computes them. `dns top`:
//! names that clients ask the DNS servers for.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use client::{Connection, Failover, Limits, Options};
use model::{
    discovery::dns::NameResult,
    primitives::name::Name,
    wire::{dns_names::DnsNamesReport, dns_server::DnsServerList},
};
use serde_json::Value;
use tokio::task::JoinSet;

use super::document;
use crate::{
    args::{
        Document, TrafficOutput,
        dns::{Dns, DnsQuery, DnsServers, DnsTop},
        explain::{Explain, ExplainOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{dns, dns_server, typed::decode_or_default},
};

/// Runs a subcommand of `dns`.
pub(crate) async fn run(client: &Client, command: Dns, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    match command {
        Dns::Query(arguments) => query(client, arguments, terminal).await,
        Dns::Top(arguments) => top(arguments, terminal).await,
        Dns::Servers(arguments) => servers(client, arguments, terminal).await,
    }
}

/// Runs `dns servers`.
async fn servers(
    client: &Client,
    arguments: DnsServers,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let DnsServers { watch: _, output } = arguments;
    let answer = client.send(Request::get("/v1/dns/servers")).await?;
    let list: DnsServerList = decode_or_default(Some(&answer));
    match output {
        TrafficOutput::Table => terminal.print(&dns::servers(&list, terminal.style))?,
        TrafficOutput::Json => terminal.print(&document(&answer, Document::Json))?,
        TrafficOutput::Yaml => terminal.print(&document(&answer, Document::Yaml))?,
    }
    if list.servers.is_empty() {
        terminal.note("no DNS server has reported to the control server within the last hour");
    }
    let has_problem = list.servers.iter().any(|server| !server.problems.is_empty());
    Ok(if has_problem { ExitCode::Problems } else { ExitCode::Success })
}

/// Time in which a DNS server must respond.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Cause of a response that is no report of a DNS server.
const NO_DNS_SERVER: &str = "the response is not that of a DNS server";
/// Maximum size of the response of a DNS server in bytes. 200 names are at most 250 KiB.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// Runs `dns top`. Asks all servers at once.
async fn top(arguments: DnsTop, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let DnsTop { server, failures, limit, watch: _, output } = arguments;
    let mut requests: JoinSet<_> = server.into_iter().map(read_names).collect();
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    while let Some(outcome) = requests.join_next().await {
        match outcome {
            Ok((server, Ok(report))) => reports.push((server, report)),
            Ok((server, Err(cause))) => failed.push((server, cause)),
            // Requests are not cancelled, and do not panic.
            Err(_) => {}
        }
    }
    reports.sort_by_key(|(server, _)| *server);
    failed.sort();
    let order = if failures { dns::NameOrder::Failures } else { dns::NameOrder::Questions };
    let names = dns::busiest(&reports, order, limit.into());
    match output {
        TrafficOutput::Table => terminal.print(&dns::top(&reports, &names, terminal.style))?,
        TrafficOutput::Json => {
            terminal.print(&document(&dns::top_document(&reports, &names), Document::Json))?
        }
        TrafficOutput::Yaml => {
            terminal.print(&document(&dns::top_document(&reports, &names), Document::Yaml))?
        }
    }
    for (server, cause) in &failed {
        terminal
            .note(&format!("{server} did not respond: {cause}; --server must be a --status-listen address"));
    }
    Ok(match (reports.is_empty(), failed.is_empty()) {
        (_, true) => ExitCode::Success,
        (false, false) => ExitCode::Problems,
        (true, false) => ExitCode::Unreachable,
    })
}

/// Reads the names of a DNS server. Returns the cause as text if there are none.
async fn read_names(server: SocketAddr) -> (SocketAddr, Result<DnsNamesReport, String>) {
    let report = read_status(server, &Request::get("/names")).await;
    let decode = |report| serde_json::from_value(report).map_err(|_| NO_DNS_SERVER.to_owned());
    (server, report.and_then(decode))
}

/// Returns a document of a DNS server at its status address, or the cause as text if there is none.
async fn read_status(server: SocketAddr, request: &Request) -> Result<Value, String> {
    let options = Options {
        user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")),
        author: None,
        connect_timeout: SERVER_TIMEOUT,
        timeout: SERVER_TIMEOUT,
        idle_timeout: SERVER_TIMEOUT,
        failover: Failover::Safe,
        min_position: None,
        reads_own_writes: false,
        limits: Limits { response: REPORT_BYTES_MAX, ..Limits::default() },
        trace_parent: None,
        on_send: None,
    };
    let url =
        format!("http://{server}").parse::<client::Url>().map_err(|_| "the address is invalid".to_owned())?;
    // Without a token, which belongs to the control servers.
    let connection = Connection { urls: vec![url], ..Connection::default() };
    let client = client::Client::new(connection, options).map_err(|error| error.to_string())?;
    client.send(request).await.map_err(|error| client::chain(&error))
}

/// Runs `dns query`.
async fn query(client: &Client, arguments: DnsQuery, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let DnsQuery { name, record_type, from, namespace, domain, output } = arguments;
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
    if let Some(told) = explanation.most_telling() {
        terminal.note(&format!("{}: {}", told.name, told.reason));
    }
    Ok(ExitCode::Problems)
}

/// Runs `explain dns NAME [TYPE]`.
pub(crate) async fn explain(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Explain { second, third, from, domain, namespace, server, output, .. } = arguments;
    let name = second.unwrap_or_default();
    if let Some(server) = server {
        let query = with_query(Request::get("/explain"), &name, third, from);
        let query = query.query("namespace", Some(namespace.to_string()));
        return explain_at(server, &query, output, terminal).await;
    }
    let request = request(&name, third, from, domain).query("namespace", Some(namespace.to_string()));
    let answer = client.send(request).await?;
    terminal.print(&match output {
        ExplainOutput::Text => dns::explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    })?;
    Ok(ExitCode::Success)
}

/// Prints the explanation of a DNS server.
async fn explain_at(
    server: SocketAddr,
    request: &Request,
    output: ExplainOutput,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let answer = match read_status(server, request).await {
        Ok(answer) => answer,
        Err(cause) => {
            terminal.note(&format!(
                "{server} did not respond: {cause}; --server must be a --status-listen address"
            ));
            return Ok(ExitCode::Unreachable);
        }
    };
    terminal.print(&match output {
        ExplainOutput::Text => dns_server::server_explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    })?;
    Ok(ExitCode::Success)
}

fn request(name: &str, record_type: Option<String>, from: Option<IpAddr>, domain: Option<Name>) -> Request {
    with_query(Request::get("/v1/dns/explain"), name, record_type, from)
        .query("domain", domain.map(|domain| domain.to_string()))
}

fn with_query(request: Request, name: &str, record_type: Option<String>, from: Option<IpAddr>) -> Request {
    request
        .query("name", Some(name.to_owned()))
        .query("type", record_type)
        .query("from", from.map(|address| address.to_string()))
}
