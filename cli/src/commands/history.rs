//! `history` and `audit`: show past changes and requests.

use serde_json::Value;

use super::{document, now};
use crate::{
    args::{
        Document,
        history::{Audit, History, HistorySubject, PastOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{
        history, plan,
        typed::{documents::continue_token, items},
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: History,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let History { subject, namespace, last, rules, output } = arguments;
    if rules && !matches!(subject, Some(HistorySubject::Revision(_))) {
        return Err(Failure::usage(
            "which change?",
            "--rules requires a revision: `tidegate history REVISION --rules`",
        ));
    }
    let request = Request::get("/v1/history").query("limit", Some(last.to_string()));
    let request = match subject {
        Some(HistorySubject::Revision(revision)) => {
            return one(client, revision, rules, output, terminal).await;
        }
        None => request,
        Some(HistorySubject::Object(key)) => request
            .query("kind", Some(key.kind.as_str()))
            .query("namespace", key.kind.is_namespaced().then(|| namespace.to_string()))
            .query("name", Some(key.name.to_string())),
    };
    let listing = client.send(request).await?;
    if output == PastOutput::Table && items(&listing, "/items").is_empty() {
        terminal.note("the history contains no changes");
        return Ok(ExitCode::Success);
    }
    let style = terminal.style;
    print(&listing, output, || history::list(&listing, now(), style), terminal)
}

async fn one(
    client: &Client,
    revision: u64,
    with_rules: bool,
    output: PastOutput,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let mut entry = client.send(Request::get(format!("/v1/history/{revision}"))).await?;
    // The convergence record is kept for the newest changes only; the rest is printed without it.
    let curve = match output {
        PastOutput::Table => {
            client.send(Request::get(format!("/v1/history/{revision}/convergence"))).await.ok()
        }
        PastOutput::Json | PastOutput::Yaml => None,
    };
    let rules = if with_rules {
        client.send(Request::get(format!("/v1/history/{revision}/rules"))).await?
    } else {
        Value::Null
    };
    if with_rules {
        entry["rules"] = rules["nodes"].clone();
    }
    let style = terminal.style;
    let text = || {
        let curve = curve.as_ref().map(history::convergence).unwrap_or_default();
        history::entry(&entry, now(), style) + &plan::nodes(&rules, style) + &curve
    };
    print(&entry, output, text, terminal)
}

pub(crate) async fn audit(
    client: &Client,
    arguments: Audit,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Audit { last, output } = arguments;
    let listing = audit_pages(client, last).await?;
    if output == PastOutput::Table && items(&listing, "/items").is_empty() {
        terminal.note("the audit log is empty");
        return Ok(ExitCode::Success);
    }
    let style = terminal.style;
    print(&listing, output, || history::audit(&listing, now(), style), terminal)
}

/// Requests the newest entries of the audit log, in as many pages as needed.
async fn audit_pages(client: &Client, last: u32) -> Result<Value, Failure> {
    let mut entries: Vec<Value> = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let left = usize::try_from(last).unwrap_or(usize::MAX) - entries.len();
        let request = Request::get("/v1/audit").query("limit", Some(left.min(PAGE_MAX).to_string()));
        let mut listing = client.send(request.query("continue", token)).await?;
        entries.extend(items(&listing, "/items").iter().take(left).cloned());
        token = continue_token(&listing);
        if token.is_none() || entries.len() >= usize::try_from(last).unwrap_or(usize::MAX) {
            listing["items"] = Value::Array(entries);
            return Ok(listing);
        }
    }
}

/// Maximum number of entries that the server returns per page.
const PAGE_MAX: usize = 5000;

fn print(
    answer: &Value,
    output: PastOutput,
    text: impl FnOnce() -> String,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let text = match output {
        PastOutput::Table => text(),
        PastOutput::Json => document(answer, Document::Json),
        PastOutput::Yaml => document(answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}
