//! `GET …/services/{name}/health`: results of the health checks of each endpoint, and the resulting decision
//! whether the endpoint is healthy.

use axum::extract::State;
use http::HeaderMap;
use model::{kinds::resource::Kind, observed::service_health::ServiceHealth};
use utoipa::openapi::HttpMethod;

use super::of_service::{ServicePath, document, find};
use crate::{
    base::{error::Answer, negotiate::render},
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Verb, on},
};

/// Registers the route of a Service's endpoint health.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readHealth", "Service", "Read the endpoint health of one Service").describe(
        "The decision about an endpoint follows the majority of the nodes that check it: its own node, \
         or a few nodes if it has none. Endpoints in use that nobody checks have the state NotChecked.",
    );
    let doc = document::<ServiceHealth>(doc, "Returned with the health of each endpoint.");
    let path = "/v1/namespaces/{namespace}/services/{name}/health";
    router.routes(Route::at(path).on(HttpMethod::Get, on(Verb::Get, Kind::Service), doc, read).done())
}

async fn read(
    State(state): State<ReadState>,
    ApiPath(path): ApiPath<ServicePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let (form, service, view) = find(&state, path, &headers)?;
    let health = view.renderer().full_health(&service);
    let nothing = || ServiceHealth { service, panic_ports: Vec::new(), endpoints: Vec::new() };
    Ok(render(form, &health.unwrap_or_else(nothing)))
}
