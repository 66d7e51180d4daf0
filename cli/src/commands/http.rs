//! `explain http`: decision of gateways for a request, as the control server computes it.

use super::document;
use crate::{
    args::{
        Document,
        explain::{Explain, ExplainOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::http,
};

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
