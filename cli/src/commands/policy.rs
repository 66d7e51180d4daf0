//! `explain policy`: decision of the network policy on a connection, as the control server computes it.

use super::document;
use crate::{
    args::{
        Document,
        explain::{Explain, ExplainOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{policy, typed::decode},
};

/// Runs `explain policy SOURCE DESTINATION`. Exits with [`ExitCode::Problems`] if the connection is dropped.
pub(crate) async fn explain(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let connection = arguments.connection().map_err(|message| Failure::Usage { message, hint: None })?;
    let request = Request::get("/v1/explain/policy")
        .query("from", Some(connection.source))
        .query("to", Some(connection.destination))
        .query("port", connection.port.map(|(port, _)| port.to_string()))
        .query("protocol", connection.port.map(|(_, protocol)| protocol.to_owned()));
    let answer = client.send(request).await?;
    let explanation = decode(&answer);
    terminal.print(&match arguments.output {
        ExplainOutput::Text => policy::explanation(explanation.as_ref()),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    })?;
    let is_dropped = explanation.is_some_and(|explanation| !explanation.accepted);
    Ok(if is_dropped { ExitCode::Problems } else { ExitCode::Success })
}
