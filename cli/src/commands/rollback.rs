//! `rollback`: restores the state of an earlier revision, or undoes the last change of the caller.

use model::cluster::history::Maker;
use serde_json::{Value, json};

use super::{apply, now, prompt};
use crate::{
    age::age,
    args::history::Rollback,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::clean,
    views::typed::{
        Word, decode, decode_items,
        documents::{CallerIdentity, CallerInfo, HistoryEntry, continue_token},
        items,
    },
};

/// Number of history entries per request while the last change of the caller is searched.
const PAGE: usize = 500;
/// Maximum number of history entries that are searched for a change of the caller.
const SEARCHED_MAX: usize = 10_000;

pub(crate) async fn run(
    client: &Client,
    arguments: Rollback,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Some(revision) = arguments.revision else { return undo(client, &arguments, terminal).await };
    if !arguments.dry_run && !arguments.yes && prompt::is_possible() {
        let preview = client.send(request(&arguments, revision, arguments.only, true)).await?;
        if !items(&preview, "/results").is_empty() {
            apply::print_outcomes(&preview, true, terminal)?;
            let what = if arguments.only { "undo this change?" } else { "restore this state?" };
            prompt::confirm(what, false, "use --yes", terminal)?;
        }
    }
    let answer = client.send(request(&arguments, revision, arguments.only, arguments.dry_run)).await?;
    if items(&answer, "/results").is_empty() {
        terminal.note(&format!("nothing to do: all objects are as they were at revision {revision}"));
    }
    apply::print_outcomes(&answer, arguments.dry_run, terminal)?;
    Ok(ExitCode::Success)
}

/// Undoes the last change of the caller after a preview and a confirmation.
async fn undo(client: &Client, arguments: &Rollback, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let author = author(client).await?;
    let Some((revision, change)) = last_change(client, &author).await? else {
        return Err(Failure::usage(
            format!("the history contains no change by {}", clean(&author)),
            "`tidegate history` lists the changes; give the revision of one: `tidegate rollback REVISION --only`",
        ));
    };
    let answer = client.send(request(arguments, revision, true, true)).await?;
    terminal.note(&described(revision, &change));
    if items(&answer, "/results").is_empty() {
        terminal.note("nothing to do: all objects are as they were before this change");
        return Ok(ExitCode::Success);
    }
    apply::print_outcomes(&answer, true, terminal)?;
    if arguments.dry_run {
        return Ok(ExitCode::Success);
    }
    let otherwise = format!("use --yes, or name the change: `tidegate rollback {revision} --only`");
    prompt::confirm("undo this change?", arguments.yes, &otherwise, terminal)?;
    let answer = client.send(request(arguments, revision, true, false)).await?;
    apply::print_outcomes(&answer, false, terminal)?;
    Ok(ExitCode::Success)
}

fn request(arguments: &Rollback, revision: u64, only: bool, dry_run: bool) -> Request {
    Request::post("/v1/rollback")
        .json(&json!({ "revision": revision, "only": only }))
        .query("dryRun", dry_run.then_some("true"))
        .query("confirm", arguments.because.confirm.then_some("true"))
        .message(arguments.because.message.clone())
}

/// Returns the author that the server records for writes of this command.
async fn author(client: &Client) -> Result<String, Failure> {
    let answer = client.send(Request::get("/v1/whoami")).await?;
    let CallerInfo { identity, .. } = decode(&answer).unwrap_or_default();
    let claimed = crate::client::author();
    Ok(match identity {
        CallerIdentity::Token { name, .. } => {
            claimed.map_or_else(|| name.clone(), |claim| format!("{claim} via token {name}"))
        }
        CallerIdentity::User { name } => format!("oidc/{name}"),
        CallerIdentity::Agent { node } => format!("agent/{node}"),
        CallerIdentity::Anyone => claimed.unwrap_or_else(|| "unknown".to_owned()),
    })
}

/// Returns the newest change by `author` with its revision; `None` if the searched part of the history has none.
async fn last_change(client: &Client, author: &str) -> Result<Option<(u64, HistoryEntry)>, Failure> {
    let (mut searched, mut token) = (0, None::<String>);
    loop {
        let request = Request::get("/v1/history").query("limit", Some(PAGE.to_string()));
        let listing: Value = client.send(request.query("continue", token)).await?;
        let entries: Vec<HistoryEntry> = decode_items(&listing, "/items");
        searched += entries.len();
        let is_own =
            |entry: &HistoryEntry| entry.maker == Word::Known(Maker::Client) && entry.author == author;
        if let Some(entry) = entries.into_iter().find(is_own) {
            return Ok(entry.revision.map(|revision| (revision.0, entry)));
        }
        token = continue_token(&listing);
        if token.is_none() || searched >= SEARCHED_MAX {
            return Ok(None);
        }
    }
}

fn described(revision: u64, change: &HistoryEntry) -> String {
    let when = change.at.map(|at| format!(", {} ago", age(at, now()))).unwrap_or_default();
    let message = Some(clean(&change.message)).filter(|message| !message.is_empty());
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    format!("undoes revision {revision}{when}{message}")
}
