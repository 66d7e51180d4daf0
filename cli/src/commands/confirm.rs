//! `confirm`: shows state that a node rejected pending confirmation, and confirms it.

use serde_json::Value;

use crate::{
    args::confirm::Confirm,
    client::{Client, Request},
    error::{ExitCode, Failure},
    lenient_json::{clean, items, number, text},
    output::Terminal,
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
    let offered = clean(&text(&answer, "/confirmed/offered"));
    let [vips, endpoints] =
        ["vips", "endpoints"].map(|what| number(&answer, &format!("/confirmed/{what}/lost")));
    terminal.print(&format!(
        "node/{node} accepts {offered}: {vips} virtual addresses and {endpoints} endpoints are removed\n"
    ))?;
    Ok(ExitCode::Success)
}

/// Shows the state that the node rejected. If there is one, exits with the same code as a `plan` with
/// changes.
fn show(object: &Value, node: &str, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    if object.pointer("/status/held").is_none() {
        terminal.note(&format!("node/{node} has no state pending confirmation"));
        return Ok(ExitCode::Success);
    }
    let conditions = items(object, "/status/conditions");
    let held = conditions.iter().find(|condition| text(condition, "/reason") == "StateHeld");
    let (message, hint) = held.map(|it| (text(it, "/message"), text(it, "/hint"))).unwrap_or_default();
    terminal.print(&format!("node/{node}: {}\nhint: {}\n", clean(&message), clean(&hint)))?;
    Ok(ExitCode::Usage)
}
