//! `bgp`: shows BGP sessions, advertised routes and session events.

use clap::ValueEnum;
use serde_json::Value;

use super::{document, now};
use crate::{
    args::{
        Document,
        bgp::{Bgp, BgpEvents, BgpOutput, BgpPeers, BgpRoutes, EventsOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{
        bgp,
        typed::{documents::continue_token, items},
    },
};

const NO_SESSION: &str = "\
no node has a session with a router
  a BgpPeer configures the router and its nodes: spec.peerAddress, spec.peerASN, spec.nodeSelectors
  `tidegate get bgppeers` lists them; agents report their sessions within seconds";
const NO_ROUTE: &str = "\
no node has a prefix to announce
  an address is announced by BGP when a Service has it and an Advertisement of type BGP covers it
  `tidegate get advertisements` and `tidegate describe address ADDRESS` show the reason";
const NO_EVENT: &str = "\
no session events since the start of this server
  `tidegate bgp peers` shows the state of the sessions";

pub(crate) async fn run(client: &Client, command: Bgp, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    match command {
        Bgp::Peers(arguments) => peers(client, arguments, terminal).await,
        Bgp::Routes(arguments) => routes(client, arguments, terminal).await,
        Bgp::Events(arguments) => events(client, arguments, terminal).await,
    }
}

async fn peers(client: &Client, arguments: BgpPeers, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let BgpPeers { node, peer, state, output, watch: _ } = arguments;
    let state = state.and_then(|state| state.to_possible_value()).map(|state| state.get_name().to_owned());
    let is_filtered = node.is_some() || peer.is_some() || state.is_some();
    let listing = client.list(|| {
        Request::get("/v1/bgp/sessions")
            .query("node", node.as_ref().map(ToString::to_string))
            .query("peer", peer.as_ref().map(ToString::to_string))
            .query("state", state.clone())
    });
    let listing = listing.await?.envelope;
    let wide = output == BgpOutput::Wide;
    let empty = if is_filtered { "no session matches the filters" } else { NO_SESSION };
    let form = form(output);
    let style = terminal.style;
    print(&listing, form, || bgp::peers(&listing, wide, now(), style), empty, terminal)?;
    if form.is_none() {
        bgp::hints(&listing).iter().for_each(|hint| terminal.note(hint));
    }
    Ok(ExitCode::Success)
}

async fn routes(client: &Client, arguments: BgpRoutes, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let BgpRoutes { node, peer, prefix, address, output, watch: _ } = arguments;
    let is_filtered = node.is_some() || peer.is_some() || prefix.is_some() || address.is_some();
    let listing = client.list(|| {
        Request::get("/v1/bgp/routes")
            .query("node", node.as_ref().map(ToString::to_string))
            .query("peer", peer.as_ref().map(ToString::to_string))
            .query("prefix", prefix.map(|prefix| prefix.to_string()))
            .query("address", address.map(|address| address.to_string()))
    });
    let listing = listing.await?.envelope;
    let wide = output == BgpOutput::Wide;
    let empty = if is_filtered { "no route matches the filters" } else { NO_ROUTE };
    let style = terminal.style;
    print(&listing, form(output), || bgp::routes(&listing, wide, now(), style), empty, terminal)?;
    Ok(ExitCode::Success)
}

async fn events(client: &Client, arguments: BgpEvents, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let BgpEvents { node, peer, last, output, watch: _ } = arguments;
    let is_filtered = node.is_some() || peer.is_some();
    let request = Request::get("/v1/bgp/events")
        .query("node", node.map(|node| node.to_string()))
        .query("peer", peer.map(|peer| peer.to_string()))
        .query("limit", Some(last.to_string()));
    let listing = client.send(request).await?;
    let form = event_form(output);
    let empty = if is_filtered { "no event matches the filters" } else { NO_EVENT };
    let style = terminal.style;
    print(&listing, form, || bgp::events(&listing, style), empty, terminal)?;
    if form.is_none() {
        note_omitted_events(&listing, terminal);
    }
    Ok(ExitCode::Success)
}

/// Prints a note if the server has further events.
pub(super) fn note_omitted_events(listing: &Value, terminal: &mut Terminal) {
    if continue_token(listing).is_some() {
        let shown = items(listing, "/items").len();
        terminal.note(&format!("showing the last {shown} events; use --last N for more"));
    }
}

pub(super) const fn event_form(output: EventsOutput) -> Option<Document> {
    match output {
        EventsOutput::Table => None,
        EventsOutput::Json => Some(Document::Json),
        EventsOutput::Yaml => Some(Document::Yaml),
    }
}

const fn form(output: BgpOutput) -> Option<Document> {
    match output {
        BgpOutput::Table | BgpOutput::Wide => None,
        BgpOutput::Json => Some(Document::Json),
        BgpOutput::Yaml => Some(Document::Yaml),
    }
}

pub(super) fn print(
    listing: &Value,
    form: Option<Document>,
    table: impl FnOnce() -> Option<String>,
    empty: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match form {
        Some(form) => terminal.print(&document(listing, form)),
        None => match table() {
            Some(table) => terminal.print(&table),
            None => {
                terminal.note(empty);
                Ok(())
            }
        },
    }
}
