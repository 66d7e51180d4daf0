//! Limits of the BGP data in an agent's report, as in the schema.

use model::{
    bgp::report::{
        BGP_TEXT_BYTES_MAX, BgpError, BgpNegotiated, BgpReport, BgpRoute, BgpSession, ROUTES_MAX,
        SESSIONS_MAX,
    },
    wire::report::Report,
};

/// Maximum length of a host name that a BGP peer advertises, in bytes.
const HOST_NAME_BYTES_MAX: usize = 255;
/// Maximum number of BGP capabilities of one session, in each direction.
const CAPABILITIES_MAX: usize = 64;
/// Maximum length of the peer key of a route in bytes. The key consists of peer name, `@`, and an address
/// with an optional scope (IPv6 zone).
const PEER_KEY_BYTES_MAX: usize = 320;

/// Returns each limit as the JSON pointer of the field, the value in the report, and the maximum.
pub(super) fn limits(report: &Report) -> Vec<(&'static str, usize, usize)> {
    let Report { bgp, bgp_routes, bgp_routes_gone, .. } = report;
    let mut limits = bgp.as_ref().map(of_sessions).unwrap_or_default();
    let longest = |lengths: &dyn Fn(&BgpRoute) -> usize| bgp_routes.values().map(lengths).max().unwrap_or(0);
    let text = |route: &BgpRoute| route.peers.values().map(|told| told.text.len()).max().unwrap_or(0);
    let key = |route: &BgpRoute| route.peers.keys().map(String::len).max().unwrap_or(0);
    limits.extend([
        ("/bgpRoutes", bgp_routes.len(), ROUTES_MAX),
        ("/bgpRoutesGone", bgp_routes_gone.len(), ROUTES_MAX),
        ("/bgpRoutes/*/peers", longest(&|route| route.peers.len()), SESSIONS_MAX),
        ("/bgpRoutes/*/peers/*", longest(&key), PEER_KEY_BYTES_MAX),
        ("/bgpRoutes/*/peers/*/text", longest(&text), BGP_TEXT_BYTES_MAX),
        (
            "/bgpRoutes/*/withheld",
            longest(&|route| route.withheld.as_ref().map_or(0, String::len)),
            BGP_TEXT_BYTES_MAX,
        ),
    ]);
    limits
}

fn of_sessions(bgp: &BgpReport) -> Vec<(&'static str, usize, usize)> {
    let BgpReport { asn: _, router_id: _, sessions, strangers: _ } = bgp;
    let most = |size: &dyn Fn(&BgpSession) -> usize| sessions.iter().map(size).max().unwrap_or(0);
    let error = |error: &Option<BgpError>| error.as_ref().map_or(0, |error| error.message.len());
    let negotiated = |size: &dyn Fn(&BgpNegotiated) -> usize| {
        sessions.iter().filter_map(|session| session.negotiated.as_ref()).map(size).max().unwrap_or(0)
    };
    let word = |negotiated: &BgpNegotiated| {
        let words = negotiated.capabilities.iter().chain(&negotiated.other_capabilities);
        words.map(String::len).max().unwrap_or(0)
    };
    vec![
        ("/bgp/sessions", sessions.len(), SESSIONS_MAX),
        ("/bgp/sessions/*/reason", most(&|one| one.reason.len()), BGP_TEXT_BYTES_MAX),
        (
            "/bgp/sessions/*/hostName",
            most(&|one| one.host_name.as_ref().map_or(0, String::len)),
            HOST_NAME_BYTES_MAX,
        ),
        ("/bgp/sessions/*/bfd", most(&|one| one.bfd.as_ref().map_or(0, String::len)), BGP_TEXT_BYTES_MAX),
        ("/bgp/sessions/*/lastSent/message", most(&|one| error(&one.last_sent)), BGP_TEXT_BYTES_MAX),
        ("/bgp/sessions/*/lastReceived/message", most(&|one| error(&one.last_received)), BGP_TEXT_BYTES_MAX),
        (
            "/bgp/sessions/*/negotiated/capabilities",
            negotiated(&|one| one.capabilities.len()),
            CAPABILITIES_MAX,
        ),
        (
            "/bgp/sessions/*/negotiated/otherCapabilities",
            negotiated(&|one| one.other_capabilities.len()),
            CAPABILITIES_MAX,
        ),
        ("/bgp/sessions/*/negotiated/*/*", negotiated(&word), BGP_TEXT_BYTES_MAX),
    ]
}
