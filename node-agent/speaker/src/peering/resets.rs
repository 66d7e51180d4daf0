//! Preview of the BGP sessions that a configuration change would end or reset. Compares the settings with the
//! same functions that decide about a real reset. Does no I/O.

use std::net::IpAddr;

use model::{
    bgp::settings::{BgpNeighbour, BgpRemote, BgpState},
    primitives::name::Name,
};

use super::settings::{self, Identity, Settings};

/// Returns the sessions that a new BGP configuration would end or reset, each with the reason. All sessions
/// are assumed to be established.
#[must_use]
pub fn resets(node: &Name, before: Option<&BgpState>, after: Option<&BgpState>) -> Vec<String> {
    let Some(before) = before else { return Vec::new() };
    let peer_after = |name: &Name| after.and_then(|state| state.peers.get(name).map(|peer| (state, peer)));
    let said = |(name, peer): (&Name, &BgpNeighbour)| {
        let Some((state, next)) = peer_after(name) else {
            return Some(format!("{name}: it would not be a peer any longer"));
        };
        let what = what_differs(&settings_of(node, before, peer)?, &settings_of(node, state, next)?)?;
        Some(format!("{name}: {what} would be another"))
    };
    before.peers.iter().filter_map(said).collect()
}

fn settings_of(node: &Name, state: &BgpState, peer: &BgpNeighbour) -> Option<Settings> {
    // All neighbors of a dynamic peer have the same settings, so any address represents them.
    let address: Option<IpAddr> = match &peer.remote {
        BgpRemote::Network { network, limit: _ } => Some(network.addr()),
        BgpRemote::Address(_) | BgpRemote::Interface(_) => None,
    };
    settings::of(peer, Identity { node, state, is_restarted: false }, address)
}

fn what_differs(before: &Settings, after: &Settings) -> Option<&'static str> {
    before.needs_new_connection(after).or_else(|| before.session.needs_reset(&after.session))
}
