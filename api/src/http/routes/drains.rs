//! `GET /v1/drains`: draining endpoints, which receive no new connections, with the number of their remaining
//! connections.

use std::net::IpAddr;

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
    views::drains::{DrainFilter, DrainList, drains},
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
        params::ApiQuery,
    },
    security::{Caller, Subject, Verb, each},
};

/// Query of the drain listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DrainQuery {
    /// Name of a Node. Only endpoints on this node are returned. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Namespace. Only endpoints of Services in this namespace are returned. Default: all namespaces.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
    /// Name of a Service. Only endpoints of Services with this name are returned. Default: all Services.
    #[param(value_type = Option<String>, max_length = 253)]
    service: Option<Name>,
    /// IP address, for example `192.0.2.1`. Only endpoints at this address are returned. Default: all
    /// addresses.
    #[param(max_length = 64)]
    address: Option<String>,
}

/// Registers the route of the drain listing.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listDrains", "Service", "List draining endpoints and endpoints in maintenance")
        .describe(
            "The nodes that carry the remaining connections count them: every second while an endpoint \
         drains, and about every 10 s otherwise. `isOver` is true if every node has counted since the \
         change and found no connection.",
        )
        .query::<DrainQuery>()
        .answer::<DrainList>(200, "Returned with the draining endpoints.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/drains").on(HttpMethod::Get, each(Verb::List, Kind::Service), doc, list).done(),
    )
}

async fn list(
    State(state): State<ReadState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<DrainQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let DrainQuery { node, namespace, service, address } = query;
    let address = address.map(|text| {
        text.parse::<IpAddr>().map_err(|_| {
            Problem::bad_request("`address` must be an address such as 192.0.2.1 or 2001:db8::1")
        })
    });
    caller.access().need(Verb::List, Subject::Object(Kind::Service), namespace.as_ref())?;
    let filter = DrainFilter { node, namespace, service, address: address.transpose()? };
    let view = state.view();
    let published = view.published();
    let services = published.compiled.after(None).map(|(_, entry)| &*entry.form);
    let views = view.table().views();
    let list = drains(services, &filter, &state.observations.traffic(), &views, published.position().epoch);
    Ok(render(form, &list))
}
