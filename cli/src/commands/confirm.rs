//! `confirm`: shows the cluster state that a node does not apply until an operator confirms it, and confirms
//! it.

use model::wire::hold::{ConfirmedState, HeldState};
use serde_json::Value;

use crate::{
    args::confirm::Confirm,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::clean,
    views::typed::{conditions, decode},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Confirm,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Confirm { node, epoch } = arguments;
    let Some(epoch) = epoch else {
        let object = client.send(Request::get(format!("/v1/nodes/{node}"))).await?;
        return show(&object, node.as_str(), terminal);
    };
    let path = format!("/v1/nodes/{node}/confirm");
    let answer = client.send(Request::post(path).query("epoch", Some(epoch.to_string()))).await?;
    let text = match decode(&answer) {
        Some(ConfirmedState { confirmed: HeldState { offered, vips, endpoints, .. }, .. }) => format!(
            "node/{node} accepts {offered}: {} virtual addresses and {} endpoints are removed\n",
            vips.lost, endpoints.lost
        ),
        None => format!("node/{node} accepts the state\n"),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}

/// Shows the state that the node does not apply until it is confirmed. Exits with [`ExitCode::Problems`] if
/// there is one, and with success otherwise.
fn show(object: &Value, node: &str, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    // The presence alone, because the reason for the rejection may be unknown to this version.
    if object.pointer("/status/held").is_none() {
        terminal.note(&format!("node/{node} has no state pending confirmation"));
        return Ok(ExitCode::Success);
    }
    let held = conditions(object).into_iter().find(|condition| condition.reason == "StateHeld");
    let held = held.unwrap_or_default();
    terminal.print(&format!("node/{node}: {}\nhint: {}\n", clean(&held.message), clean(&held.hint)))?;
    Ok(ExitCode::Problems)
}
