//! `GET /v1/drains`: what is taken out of service, and how many connections are left on it.

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

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{Subject, Verb, access, each},
};

/// Which endpoints are listed.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DrainQuery {
    /// Only endpoints on this Node.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Only endpoints of Services in this namespace.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
    /// Only endpoints of Services with this name.
    #[param(value_type = Option<String>, max_length = 253)]
    service: Option<Name>,
    /// Only endpoints at this address.
    #[param(max_length = 64)]
    address: Option<String>,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new(
        "listDrains",
        "Service",
        "Lists the endpoints that are drained or in maintenance, with the connections that are left.",
    )
    .describe(
        "Connections are counted by the nodes that carry them: every second while something drains, and else every \
         10 s or so. `isOver` says that every node has counted since the change and found none.",
    )
    .query::<DrainQuery>()
    .answer::<DrainList>(200, "The endpoints.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/drains").on(HttpMethod::Get, each(Verb::List, Kind::Service), doc, list).done(),
    )
}

async fn list(
    State(app): State<Shared>,
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
    access::current().need(Verb::List, Subject::Object(Kind::Service), namespace.as_ref())?;
    let filter = DrainFilter { node, namespace, service, address: address.transpose()? };
    let view = app.view();
    let published = view.published();
    let services = published.compiled.after(None).map(|(_, entry)| &*entry.form);
    let views = view.table().views();
    let list = drains(services, &filter, &app.traffic(), &views, published.position().epoch);
    Ok(render(form, &list))
}
