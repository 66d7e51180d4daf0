//! Simulated client of the public watch API.

use std::time::Duration;

use anyhow::{Context, Result};
use model::primitives::quantity::Position;
use serde::Deserialize;
use tokio::time::timeout;

use super::{agent::Lines, serve::Follower};
use crate::cluster::control::http_builder;

/// Timeout for the response headers on a busy machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without data on the watch, after which the client reconnects: three times the interval of
/// heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Part of a watch event that contains the position (epoch and revision). Only the last event of each
/// revision contains one.
#[derive(Deserialize)]
struct EventPosition {
    position: Option<Position>,
}

/// Reads the watch until an error occurs, and records each revision. `held` is the position (epoch and
/// revision) from which the watch resumes, and is updated with each revision.
pub(super) async fn follow(follower: &Follower, held: &mut Option<Position>) -> Result<()> {
    let client = http_builder()?.local_address(follower.from).build()?;
    let mut url = format!("http://{}/v1/watch?kinds=EndpointSet", follower.server);
    if let Some(held) = held {
        url.push_str(&format!("&resume={held}"));
        // Counted as received, like the resume position of an agent at its first report.
        follower.tally.note(follower.number, held.revision.0);
    }
    let answer = timeout(REQUEST_TIMEOUT, client.get(url).send()).await.context("no answer")??;
    let mut events = Lines::new(answer.error_for_status()?);
    loop {
        let position = timeout(SILENCE_MAX, events.next(hear)).await.context("the watch is silent")??;
        *held = Some(position);
        follower.tally.note(follower.number, position.revision.0);
    }
}

/// Returns the position (epoch and revision) in a watch event, or `None` if it has none. Only the start of
/// the line, before the object, is parsed.
fn hear(line: &[u8]) -> Result<Option<Position>> {
    const OBJECT: &[u8] = br#","object":"#;
    let head = line.windows(OBJECT.len()).position(|window| window == OBJECT);
    let event: EventPosition = match head {
        Some(end) => serde_json::from_slice(&[&line[..end], b"}"].concat()),
        None => serde_json::from_slice(line),
    }
    .context("an event")?;
    Ok(event.position)
}
