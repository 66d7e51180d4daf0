//! `plan` and `diff`: preview the effect of an apply.

use serde_json::Value;

use super::{apply::curl_data, document};
use crate::{
    args::{
        Document,
        plan::{Diff, Plan, PlanOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    views::plan::{has_changes, objects, whole},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Plan,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let answer = ask(client, &arguments, true).await?;
    let text = match arguments.output {
        PlanOutput::Lines => whole(&answer, terminal.style),
        PlanOutput::Json => document(&answer, Document::Json),
        PlanOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(if has_changes(&answer) { ExitCode::Problems } else { ExitCode::Success })
}

/// Runs `diff`. Exits with code 1 if there are differences. A failure that would also exit with code 1
/// therefore exits with [`ExitCode::Usage`].
pub(crate) async fn diff(
    client: &Client,
    arguments: Diff,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Diff { filename, output } = arguments;
    let arguments = Plan { filename, evict: false, apply_set: None, prune: false, prune_limit: None, output };
    let answer = match ask(client, &arguments, false).await {
        Ok(answer) => answer,
        Err(failure) if failure.exit_code() == ExitCode::Failed => {
            terminal.report(&failure);
            return Ok(ExitCode::Usage);
        }
        Err(failure) => return Err(failure),
    };
    let text = match output {
        PlanOutput::Lines => objects(&answer, terminal.style),
        PlanOutput::Json => document(&answer, Document::Json),
        PlanOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(if has_changes(&answer) { ExitCode::Failed } else { ExitCode::Success })
}

async fn ask(client: &Client, arguments: &Plan, asks_nodes: bool) -> Result<Value, Failure> {
    let manifest = Manifest::load(&arguments.filename, client.timeout()).await?;
    let items_of_request = manifest.item_names()?;
    let (language, bytes) = manifest.into_body();
    let request = Request::post("/v1/plan")
        .body(language.media_type(), bytes)
        .label(curl_data(&arguments.filename))
        .query("evict", arguments.evict.then_some("true"))
        .query("applySet", arguments.apply_set.as_ref().map(ToString::to_string))
        .query("prune", arguments.prune.then_some("true"))
        .query("pruneLimit", arguments.prune_limit.map(|limit| limit.to_string()))
        .query("nodes", (!asks_nodes).then_some("false"));
    client.send(request).await.map_err(|failure| failure.with_items(items_of_request))
}
