//! `addresses`: shows changes of the nodes that announce load balancer addresses.

use super::bgp::{event_form, note_omitted_events, print};
use crate::{
    args::addresses::AddressEvents,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::address_events,
};

const NO_EVENT: &str = "\
no node has begun or ceased to announce an address since the start of this server
  `tidegate get addresses` shows the addresses and the nodes that announce them";

pub(crate) async fn events(
    client: &Client,
    arguments: AddressEvents,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let AddressEvents { address, node, last, watch: _, output } = arguments;
    let is_filtered = address.is_some() || node.is_some();
    let request = Request::get("/v1/addresses/events")
        .query("address", address.map(|address| address.to_string()))
        .query("node", node.map(|node| node.to_string()))
        .query("limit", Some(last.to_string()));
    let listing = client.send(request).await?;
    let form = event_form(output);
    let empty = if is_filtered { "no event matches the filters" } else { NO_EVENT };
    let style = terminal.style;
    print(&listing, form, || address_events::events(&listing, style), empty, terminal)?;
    if form.is_none() {
        note_omitted_events(&listing, terminal);
    }
    Ok(ExitCode::Success)
}
