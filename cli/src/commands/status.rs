//! `status`: prints a summary of the cluster. The exit code reports whether there are problems.

use super::{document, now};
use crate::{
    args::{Document, Status, StatusOutput},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{check, render, servers::Server},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Status,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let status = client.send(Request::get("/v1/status")).await?;
    if arguments.check {
        let (state, line) = check::line(&status);
        terminal.print(&line)?;
        return Ok(ExitCode::Check(state));
    }
    let text = match arguments.output {
        StatusOutput::Table => {
            // Older servers have no convergence data; the line is omitted then.
            let lag = client.send(Request::get("/v1/convergence")).await.ok();
            let servers = match client.count() {
                1 => String::new(),
                _ => crate::views::servers::lines(&of_servers(client).await, terminal.style),
            };
            servers + &render::status(&status, lag.as_ref(), now(), terminal.style)
        }
        StatusOutput::Json => document(&status, Document::Json),
        StatusOutput::Yaml => document(&status, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(if render::is_healthy(&status) { ExitCode::Success } else { ExitCode::Problems })
}

/// Requests the status from each control server separately, to show servers that do not respond.
async fn of_servers(client: &Client) -> Vec<Server> {
    let mut servers = Vec::new();
    for number in 0..client.count() {
        let answer = client.send_to(number, &Request::get("/v1/status")).await;
        servers.push(Server {
            url: client.url_of(number),
            answer: answer.map_err(|failure| failure.to_string()),
        });
    }
    servers
}
