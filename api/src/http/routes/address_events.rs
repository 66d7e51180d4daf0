//! `GET /v1/addresses/events`: changes of the nodes that announce load balancer addresses.
//!
//! The listing shows live data, not a snapshot: a page continues after the last event of the previous page.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::{address::address_of, resource::Kind},
    observed::announcements::{AddressEvent, AddressEventFilter, AddressEventKey},
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
    security::{Verb, on},
    state::paging::{Moment, shortened},
};

/// Query of the listing of address events.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AddressEventQuery {
    /// Maximum number of events in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Load balancer address. Only events of this address are returned. Default: all addresses.
    #[param(max_length = 64, example = "192.0.2.7")]
    address: Option<String>,
    /// Name of a Node. Only events of this node, and those in which an address moves from it, are returned.
    /// Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
}

/// Registers the route of address events.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listAddressEvents", Kind::Address.as_str(), "List changes of announcing nodes")
        .describe(
            "Returns when a node began or ceased to announce an address by ARP or NDP, the node that announced \
             it before, and the reason that the agent reports. Events are sorted by their times, from newest to \
             oldest. Agents keep their last 500 changes, so events of a time in which this server was unreachable \
             or restarted arrive later. The server keeps the last 1000 events of each node in memory.",
        )
        .query::<AddressEventQuery>()
        .answer::<schema::AddressEventList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/addresses/events")
            .on(HttpMethod::Get, on(Verb::List, Kind::Address), doc, events)
            .done(),
    )
}

async fn events(
    State(reads): State<ReadState>,
    ApiQuery(query): ApiQuery<AddressEventQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let AddressEventQuery { limit: rows, continue_token, address, node } = query;
    let rows = limit(rows)?;
    let address = match address {
        Some(text) => Some(address_of(&text).ok_or_else(|| {
            Problem::bad_request(format!("query parameter: `address` must be an IP address, not `{text}`"))
        })?),
        None => None,
    };
    let moment = Moment::new("AddressEventList", &format!("{address:?} {node:?}"));
    let after: Option<AddressEventKey> = moment.resume(continue_token.as_deref())?;
    let part = reads.observations.announcements().events(&AddressEventFilter { address, node }, after, rows);
    Ok(render(form, &moment.envelope(&shortened(part, AddressEvent::key))))
}
