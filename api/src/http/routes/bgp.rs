//! `GET /v1/bgp/…`: BGP sessions, routes and events as reported by the agents.
//!
//! The listings show live data, not a snapshot: a page continues after the last entry of the previous page,
//! regardless of changes in between.

use std::net::IpAddr;

use axum::extract::State;
use http::HeaderMap;
use ipnet::IpNet;
use model::{
    bgp::{
        listing::{self as bgp_listing, EventFilter, RouteFilter, RouteKey, SessionFilter, SessionKey},
        report::BgpSessionState,
    },
    kinds::{
        address::address_of,
        resource::{Kind, ObjectKey},
    },
    primitives::name::Name,
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, limit},
        schema,
    },
    security::{Permission, Subject, Verb},
    state::{
        object_view::View,
        paging::{Moment, shortened},
    },
};

/// Query of the session listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionQuery {
    /// Maximum number of sessions in the page, from 1 to 5000. Values out of range are rejected. Default:
    /// 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Name of a Node. Only sessions of this node are returned. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Name of a BgpPeer. Only sessions with this peer are returned. Default: all peers.
    #[param(value_type = Option<String>, max_length = 253)]
    peer: Option<Name>,
    /// Session state. Only sessions in this state are returned. Default: all states.
    state: Option<BgpSessionState>,
}

/// Query of the route listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RouteQuery {
    /// Maximum number of routes in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Name of a Node. Only routes of this node are returned. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Name of a BgpPeer. Only routes sent to this peer are returned, with the attributes sent to it.
    /// Default: all peers.
    #[param(value_type = Option<String>, max_length = 253)]
    peer: Option<Name>,
    /// IP prefix, for example `192.0.2.0/24`. Only routes for this prefix and its subnets are returned. An address
    /// stands for its /32 or /128 prefix. Default: all prefixes.
    #[param(max_length = 64, example = "192.0.2.0/24")]
    prefix: Option<String>,
    /// Load balancer address. Only routes announced for this address are returned. Default: all addresses.
    #[param(max_length = 64, example = "192.0.2.7")]
    address: Option<String>,
}

/// Query of the event listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// Maximum number of events in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Name of a Node. Only events of this node are returned. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Name of a BgpPeer. Only events of sessions with this peer are returned. Default: all peers.
    #[param(value_type = Option<String>, max_length = 253)]
    peer: Option<Name>,
}

/// Registers the routes of BGP sessions, routes and events.
pub(super) fn add(router: Routes) -> Routes {
    let sessions_doc = Doc::new("listBgpSessions", "BGP", "List BGP sessions of nodes")
        .describe(
            "Returns one row per session, as last reported by the agent of the node. If a session is not \
             established, `trouble` holds the cause, as far as it is known, and a remedy.",
        )
        .query::<SessionQuery>()
        .answer::<schema::BgpSessionList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let routes_doc = Doc::new("listBgpRoutes", "BGP", "List BGP routes of nodes")
        .describe(
            "Returns one row per prefix and node, with the attributes sent to each router and the time \
             since when, or the reason why the prefix is not announced. The use of a route by the router \
             is not known.",
        )
        .query::<RouteQuery>()
        .answer::<schema::BgpRouteList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let events_doc = Doc::new("listBgpEvents", "BGP", "List BGP session events")
        .describe(
            "Events are sorted from newest to oldest. The server keeps the last 500 events of each node \
             in memory. After a restart it has the events that the agents still report.",
        )
        .query::<EventQuery>()
        .answer::<schema::BgpEventList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router
        .routes(
            Route::at("/v1/bgp/sessions")
                .on(HttpMethod::Get, Permission::On(Verb::List, Subject::Bgp), sessions_doc, sessions)
                .done(),
        )
        .routes(
            Route::at("/v1/bgp/routes")
                .on(HttpMethod::Get, Permission::On(Verb::List, Subject::Bgp), routes_doc, routes)
                .done(),
        )
        .routes(
            Route::at("/v1/bgp/events")
                .on(HttpMethod::Get, Permission::On(Verb::List, Subject::Bgp), events_doc, events)
                .done(),
        )
}

async fn sessions(
    State(reads): State<ReadState>,
    ApiQuery(query): ApiQuery<SessionQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let SessionQuery { limit: rows, continue_token, node, peer, state } = query;
    let rows = limit(rows)?;
    let moment = Moment::new("BgpSessionList", &format!("{node:?} {peer:?} {state:?}"));
    let after: Option<SessionKey> = moment.resume(continue_token.as_deref())?;
    let filter = SessionFilter { node, peer, state };
    let view = reads.view();
    let is_reporting = is_reporting(&view);
    let snapshot = &view.published().snapshot;
    let spec_of = |peer: &Name| {
        let key = ObjectKey { kind: Kind::BgpPeer, namespace: None, name: peer.clone() };
        snapshot.get(&key).and_then(|object| object.as_bgp_peer())
    };
    let part = bgp_listing::sessions(
        &reads.observations.bgp(),
        &filter,
        is_reporting,
        spec_of,
        after.as_ref(),
        rows,
    );
    Ok(render(
        form,
        &moment.envelope(&shortened(part, |item| {
            (item.node.clone(), item.session.peer.clone(), item.session.address)
        })),
    ))
}

async fn routes(
    State(reads): State<ReadState>,
    ApiQuery(query): ApiQuery<RouteQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let RouteQuery { limit: rows, continue_token, node, peer, prefix, address } = query;
    let rows = limit(rows)?;
    let prefix = prefix.as_deref().map(parse_prefix).transpose()?;
    let address = address.as_deref().map(parse_address).transpose()?;
    let moment = Moment::new("BgpRouteList", &format!("{node:?} {peer:?} {prefix:?} {address:?}"));
    let after: Option<RouteKey> = moment.resume(continue_token.as_deref())?;
    let filter = RouteFilter { node, peer, prefix, address };
    let view = reads.view();
    let is_reporting = is_reporting(&view);
    let part = bgp_listing::routes(&reads.observations.bgp(), &filter, is_reporting, after.as_ref(), rows);
    Ok(render(form, &moment.envelope(&shortened(part, |item| (item.node.clone(), item.prefix)))))
}

async fn events(
    State(reads): State<ReadState>,
    ApiQuery(query): ApiQuery<EventQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let EventQuery { limit: rows, continue_token, node, peer } = query;
    let rows = limit(rows)?;
    let moment = Moment::new("BgpEventList", &format!("{node:?} {peer:?}"));
    let after: Option<u64> = moment.resume(continue_token.as_deref())?;
    let part = bgp_listing::events(&reads.observations.bgp(), &EventFilter { node, peer }, after, rows);
    Ok(render(form, &moment.envelope(&shortened(part, |event| event.id))))
}

/// Returns a predicate that is true for nodes whose agent has reported recently. Must be called before the
/// BGP state is locked, because it locks the reports of the nodes.
fn is_reporting<'a>(view: &'a View<'_>) -> impl Fn(&Name) -> bool + 'a {
    let table = view.table();
    |node| table.view(node).is_some_and(|view| view.is_reporting())
}

fn parse_prefix(text: &str) -> Result<IpNet, Problem> {
    let parsed = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let prefix: IpNet = parsed.map_err(|_| {
        Problem::bad_request(format!(
            "query parameter: `prefix` must be a prefix such as 192.0.2.0/24 or 2001:db8::/64, not `{text}`"
        ))
    })?;
    Ok(prefix.trunc())
}

fn parse_address(text: &str) -> Result<IpAddr, Problem> {
    address_of(text).ok_or_else(|| {
        Problem::bad_request(format!(
            "query parameter: `address` must be an address such as 192.0.2.7 or 2001:db8::7, not `{text}`"
        ))
    })
}
