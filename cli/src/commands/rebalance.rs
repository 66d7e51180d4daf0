//! `rebalance`: spreads addresses evenly over the nodes, by one move at a time.

use std::time::{Duration, Instant};

use model::{
    kinds::{address::name_of, resource::Kind},
    observed::rollup::rebalance::PlannedMove,
};
use serde_json::json;

use crate::{
    args::rebalance::Rebalance,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{
        rebalance::{loads, move_line, unsettled},
        typed::{Address, decode_items},
    },
};

/// Poll interval while an address moves. A move takes less than a second.
const POLL: Duration = Duration::from_millis(250);

pub(crate) async fn run(
    client: &Client,
    arguments: Rebalance,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let plan = client.send(Request::get("/v1/rebalance")).await?;
    let moves: Vec<PlannedMove> = decode_items(&plan, "/moves");
    if let Some(note) = unsettled(&plan) {
        terminal.note(&note);
    }
    if moves.is_empty() {
        terminal.print("no address needs to move\n")?;
        return Ok(ExitCode::Success);
    }
    terminal.note("each move resets the connections that are established through the previous owner");
    for planned in &moves {
        if !arguments.dry_run {
            carry_out(client, planned, &arguments).await?;
        }
        terminal.print(&move_line(planned, arguments.dry_run, terminal.style))?;
    }
    terminal.print(&format!("\n{}", loads(&plan, terminal.style)))?;
    Ok(ExitCode::Success)
}

/// Moves an address, and waits until its new node announces it.
async fn carry_out(client: &Client, planned: &PlannedMove, arguments: &Rebalance) -> Result<(), Failure> {
    let path = format!("/v1/{}/{}", Kind::Address.plural(), name_of(planned.address));
    let request = Request::post(format!("{path}/move"))
        .json(&json!({ "node": planned.to }))
        .message(arguments.message.clone());
    client.send(request).await?;
    let until = Instant::now() + arguments.at_most;
    loop {
        let record = client.send(Request::get(&path)).await?;
        let owner = Address::of(&record).and_then(|address| address.status.owner);
        if owner.as_ref() == Some(&planned.to) {
            return Ok(());
        }
        if Instant::now() + POLL > until {
            return Err(Failure::NotReached {
                name: format!("address/{}", planned.address),
                after: arguments.at_most,
                why_not: format!("{} does not announce it yet", planned.to),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}
