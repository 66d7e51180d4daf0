//! `history` and `audit`: show past changes and requests.

use std::time::Duration;

use model::kinds::resource::ObjectKey;
use serde_json::Value;

use super::{document, now};
use crate::{
    args::{
        Document,
        history::{Audit, AuditResult, History, HistorySubject, PastOutput},
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
    let History { subject, namespace, author, last, rules, watch, output } = arguments;
    if rules && !matches!(subject, Some(HistorySubject::Revision(_))) {
        return Err(Failure::usage(
            "which change?",
            "--rules requires a revision: `tidegate history REVISION --rules`",
        ));
    }
    if author.is_some() && matches!(subject, Some(HistorySubject::Revision(_))) {
        return Err(Failure::usage("one change has one author", "omit the revision or --author"));
    }
    let request = Request::get("/v1/history").query("limit", Some(last.to_string())).query("author", author);
    let request = match subject {
        Some(HistorySubject::Revision(_)) if watch => {
            return Err(Failure::usage("a change does not change", "omit the revision or -w"));
        }
        Some(HistorySubject::Revision(revision)) => {
            return one(client, revision, rules, output, terminal).await;
        }
        None => request,
        Some(HistorySubject::Object(key)) => request
            .query("kind", Some(key.kind.as_str()))
            .query("namespace", key.kind.is_namespaced().then(|| namespace.to_string()))
            .query("name", Some(key.name.to_string())),
    };
    let listing = client.send(request.clone()).await?;
    if watch {
        return follow(client, &request, &listing, terminal).await;
    }
    if output == PastOutput::Table && items(&listing, "/items").is_empty() {
        terminal.note("the history contains no changes");
        return Ok(ExitCode::Success);
    }
    let style = terminal.style;
    print(&listing, output, || history::list(&listing, now(), style), terminal)
}

/// Prints a listing, then each later change. Polls, because the history has no stream.
async fn follow(
    client: &Client,
    request: &Request,
    listing: &Value,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    terminal.print(&history::list(listing, now(), terminal.style))?;
    let mut last = newest(listing);
    loop {
        terminal.flush()?;
        tokio::time::sleep(POLL_INTERVAL).await;
        let mut listing = match client.send(request.clone()).await {
            Ok(listing) => listing,
            Err(failure) if failure.exit_code() == ExitCode::Unreachable => {
                terminal.note(&format!("-- {failure}; trying again"));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let next = newest(&listing).max(last);
        if let Some(Value::Array(entries)) = listing.get_mut("items") {
            entries.retain(|entry| revision(entry) > last);
            entries.reverse();
        }
        let rows = history::list(&listing, now(), terminal.style);
        terminal.print(&rows.lines().skip(1).map(|row| format!("{row}\n")).collect::<String>())?;
        last = next;
    }
}

/// Interval between requests of `history -w`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

fn newest(listing: &Value) -> u64 {
    items(listing, "/items").iter().map(revision).max().unwrap_or_default()
}

fn revision(entry: &Value) -> u64 {
    entry.get("revision").and_then(Value::as_u64).unwrap_or_default()
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
    let Audit { object, namespace, author, decision, last, watch: _, output } = arguments;
    let object = object.map(|ObjectKey { kind, name, .. }| {
        let namespace = namespace.as_ref().map_or("default", |namespace| namespace.as_str());
        let namespace = if kind.is_namespaced() { format!("{namespace}/") } else { String::new() };
        format!("{kind} {namespace}{name}")
    });
    let is_filtered = object.is_some() || author.is_some() || decision.is_some();
    let request = Request::get("/v1/audit")
        .query("author", author)
        .query("object", object)
        .query("decision", decision.map(AuditResult::as_str));
    let listing = audit_pages(client, &request, last).await?;
    if output == PastOutput::Table && items(&listing, "/items").is_empty() {
        terminal.note(if is_filtered {
            "no entry of the audit log matches"
        } else {
            "the audit log is empty"
        });
        return Ok(ExitCode::Success);
    }
    let style = terminal.style;
    print(&listing, output, || history::audit(&listing, now(), style), terminal)
}

/// Requests the newest entries of the audit log, in as many pages as needed.
async fn audit_pages(client: &Client, request: &Request, last: u32) -> Result<Value, Failure> {
    let mut entries: Vec<Value> = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let left = usize::try_from(last).unwrap_or(usize::MAX) - entries.len();
        let request = request.clone().query("limit", Some(left.min(PAGE_MAX).to_string()));
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
