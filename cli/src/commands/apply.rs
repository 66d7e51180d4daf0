//! `apply`: sends manifests unmodified and prints the outcome of each object.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::{document, import, wait};
use crate::{
    args::{
        Document, Import,
        apply::{Apply, ApplyOutput},
    },
    client::{Client, Request, shell_quoted},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    views::{
        render,
        typed::{
            decode, decode_items,
            documents::{ApplyHead, ApplyResult},
            word,
        },
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: Apply,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Some(filename) = &arguments.filename else {
        let id = arguments.plan.as_deref().unwrap_or_default();
        let request = Request::post(format!("/v1/plans/{id}/apply"));
        let answer = client.send(request.message(arguments.because.message)).await?;
        let code = show(&answer, arguments.output, false, terminal)?;
        return converged(client, arguments.wait, arguments.at_most, code, terminal).await;
    };
    if let Some(from) = arguments.from {
        let (dry_run, message) = (arguments.dry_run, arguments.because.message.clone());
        let import =
            Import { files: vec![filename.clone()], from: Some(from), apply: true, dry_run, message };
        let code = import::run(client, import, terminal).await?;
        return converged(client, arguments.wait, arguments.at_most, code, terminal).await;
    }
    let manifest = Manifest::load(filename, client.timeout()).await?;
    let items_of_request = manifest.item_names()?;
    let (language, bytes) = manifest.into_body();
    let request = Request::post("/v1/apply")
        .body(language.media_type(), bytes)
        .label(curl_data(filename))
        .query("dryRun", arguments.dry_run.then_some("true"))
        .query("evict", arguments.evict.then_some("true"))
        .query("applySet", arguments.apply_set.as_ref().map(ToString::to_string))
        .query("prune", arguments.prune.then_some("true"))
        .query("pruneLimit", arguments.prune_limit.map(|limit| limit.to_string()))
        .query("confirm", arguments.because.confirm.then_some("true"))
        .message(arguments.because.message.clone());
    let answer = client.send(request).await.map_err(|failure| failure.with_items(items_of_request))?;
    let code = show(&answer, arguments.output, arguments.dry_run, terminal)?;
    converged(client, arguments.wait, arguments.at_most, code, terminal).await
}

/// Waits until every connected node has verified the changes, if `is_wanted`.
async fn converged(
    client: &Client,
    is_wanted: bool,
    at_most: Duration,
    code: ExitCode,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    if is_wanted {
        terminal.flush()?;
        wait::for_all_nodes(client, at_most, terminal).await?;
    }
    Ok(code)
}

fn show(
    answer: &Value,
    output: ApplyOutput,
    dry_run: bool,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let form = match output {
        ApplyOutput::Lines => {
            print_outcomes(answer, dry_run, terminal)?;
            return Ok(ExitCode::Success);
        }
        ApplyOutput::Name => {
            for ApplyResult { object, .. } in decode_items(answer, "/results") {
                terminal.print(&format!("{}\n", render::object_name(&object)))?;
            }
            return Ok(ExitCode::Success);
        }
        ApplyOutput::Json => Document::Json,
        ApplyOutput::Yaml => Document::Yaml,
    };
    terminal.print(&document(answer, form))?;
    Ok(ExitCode::Success)
}

/// Prints one line per object of an apply response with its outcome, such as `created` or `unchanged`.
pub(super) fn print_outcomes(answer: &Value, dry_run: bool, terminal: &mut Terminal) -> Result<(), Failure> {
    let dry_run = dry_run || decode::<ApplyHead>(answer).unwrap_or_default().dry_run;
    for ApplyResult { action, object } in decode_items(answer, "/results") {
        terminal.print(&render::outcome(&object, &word(&action), dry_run, terminal.style))?;
    }
    Ok(())
}

/// Returns the `curl` data argument for `path`. `curl` cannot send a directory, so for a directory the
/// argument is a shell expression that joins the files.
pub(super) fn curl_data(path: &Path) -> String {
    let name = shell_quoted(&path.display().to_string());
    if path.starts_with("http:") || path.starts_with("https:") {
        format!("@<(curl -sSL {name})")
    } else if path.is_dir() {
        format!("@<(for f in {name}/*; do echo ---; cat \"$f\"; echo; done)")
    } else {
        format!("@{name}")
    }
}
