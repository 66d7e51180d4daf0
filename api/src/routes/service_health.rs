//! `GET …/services/{name}/health`: what the nodes see of each endpoint, and what was made of it.

use axum::extract::State;
use http::HeaderMap;
use model::{
    name::{Name, Namespace},
    resource::ServiceKey,
    service_health::ServiceHealth,
};
use serde::Deserialize;
use utoipa::openapi::HttpMethod;
use utoipa_axum::router::OpenApiRouter;

use super::Shared;
use crate::{
    error::{Answer, Code},
    negotiate::{form, render},
    openapi::{Doc, OBJECT_TYPES, Route},
    params::{ApiPath, ApiQuery, NoQuery},
    patch::not_found,
};

#[derive(Debug, Clone, Deserialize)]
struct ServicePath {
    namespace: Namespace,
    name: Name,
}

/// Adds the route.
pub(super) fn add(router: OpenApiRouter<Shared>) -> OpenApiRouter<Shared> {
    let doc = Doc::new("readHealth", "Service", "Reads the health of the endpoints of one Service.")
        .describe(
            "What is decided about an endpoint follows what most of the nodes say that check it: its own node, or a few \
             where it has none. Without a health check nothing is listed.",
        )
        .in_namespace()
        .named("name", "The name of the Service.")
        .answer::<ServiceHealth>(200, "The health.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let path = "/v1/namespaces/{namespace}/services/{name}/health";
    router.routes(Route::at(path).on(HttpMethod::Get, doc, read).done())
}

async fn read(
    State(app): State<Shared>,
    ApiPath(ServicePath { namespace, name }): ApiPath<ServicePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let key = ServiceKey { namespace, name };
    let view = app.view();
    if view.published().snapshot.service(&key).is_none() {
        return Err(not_found(&key.object_key()));
    }
    let health = view.shower().health(&key);
    let nothing = || ServiceHealth { service: key, panic_ports: Vec::new(), endpoints: Vec::new() };
    Ok(render(form, &health.unwrap_or_else(nothing)))
}
