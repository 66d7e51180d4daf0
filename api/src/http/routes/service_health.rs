//! `GET …/services/{name}/health`: what the nodes see of each endpoint, and what was made of it.

use axum::extract::State;
use http::HeaderMap;
use model::{kinds::resource::Kind, observed::service_health::ServiceHealth};
use utoipa::openapi::HttpMethod;

use super::{
    Shared,
    of_service::{ServicePath, document, find},
};
use crate::{
    base::{error::Answer, negotiate::render},
    http::{
        openapi::{Doc, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Verb, on},
};

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readHealth", "Service", "Reads the health of the endpoints of one Service.").describe(
        "What is decided about an endpoint follows what most of the nodes say that check it: its own node, or a few \
         where it has none. Without a health check nothing is listed.",
    );
    let doc = document::<ServiceHealth>(doc, "The health.");
    let path = "/v1/namespaces/{namespace}/services/{name}/health";
    router.routes(Route::at(path).on(HttpMethod::Get, on(Verb::Get, Kind::Service), doc, read).done())
}

async fn read(
    State(app): State<Shared>,
    ApiPath(path): ApiPath<ServicePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let (form, service, view) = find(&app, path, &headers)?;
    let health = view.shower().health(&service);
    let nothing = || ServiceHealth { service, panic_ports: Vec::new(), endpoints: Vec::new() };
    Ok(render(form, &health.unwrap_or_else(nothing)))
}
