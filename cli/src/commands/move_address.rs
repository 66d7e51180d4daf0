//! `move`: makes a node the first candidate of an address, so that this node announces the address.

use model::kinds::{address::name_of, resource::Kind};
use serde_json::json;

use crate::{
    args::Move,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::style::Tone,
    views::{render::object_name, typed::Address},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Move,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Move { address, node, dry_run, message } = arguments;
    let body = json!({ "node": node });
    let path = format!("/v1/{}/{}/move", Kind::Address.plural(), name_of(address));
    let request = Request::post(path).json(&body).query("dryRun", dry_run.then_some("true")).message(message);
    let answer = client.send(request).await?;
    // Prints the candidate that the server stored rather than the requested one; a response without either
    // prints the request.
    let moved = Address::of(&answer);
    let first = moved.as_ref().and_then(|address| address.spec.announcement.candidates.first());
    let node = first.map_or(&node, |candidate| &candidate.node);
    let name = match answer.get("kind") {
        Some(_) => object_name(&answer),
        None => format!("address/{address}"),
    };
    let verb = terminal.style.paint(Tone::Good, "moved");
    let suffix = if dry_run { " (dry run)" } else { "" };
    terminal.print(&format!("{name} {verb} to {node}{suffix}\n"))?;
    if dry_run {
        terminal.note("the move resets established connections to the address through its present owner");
    }
    Ok(ExitCode::Success)
}
