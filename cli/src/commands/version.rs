//! `version`: prints the build of the client and of each configured control server.

use base::build;
use serde::Deserialize;

use crate::{
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::clean,
    views::typed::decode,
};

/// Version and build of a control server: `GET /version`. Servers of version 0.1.0 have only the version, in
/// `GET /v1/status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerBuild {
    version: String,
    commit: Option<String>,
    date: Option<String>,
    target: Option<String>,
}

pub(crate) async fn run(client: &Client, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    terminal.print(&format!("tidegate {}\n", build::text()))?;
    let mut failed = None;
    for number in 0..client.count() {
        let url = client.url_of(number);
        match of_server(client, number).await {
            Ok(server) => terminal.print(&format!("server {} at {url}\n", clean(&describe(&server))))?,
            Err(failure) => {
                // The error of the last server is printed by the caller.
                if let Some((url, earlier)) = failed.replace((url, failure)) {
                    terminal.note(&format!("{url}: {earlier}"));
                }
            }
        }
    }
    failed.map_or(Ok(ExitCode::Success), |(_, failure)| Err(failure))
}

async fn of_server(client: &Client, number: usize) -> Result<ServerBuild, Failure> {
    let answer = match client.send_to(number, &Request::get("/version")).await {
        Err(failure) if failure.problem_code() == Some("NotFound") => {
            client.send_to(number, &Request::get("/v1/status")).await?
        }
        answer => answer?,
    };
    Ok(decode(&answer).unwrap_or_default())
}

/// Formats the build as `--version` of the server does, or only the version if the server does not tell more.
fn describe(server: &ServerBuild) -> String {
    let ServerBuild { version, commit, date, target } = server;
    if commit.is_none() && date.is_none() && target.is_none() {
        return version.clone();
    }
    build::describe(version, commit.as_deref(), date.as_deref(), target.as_deref())
}
