//! `GET …/services/{name}/traffic`: what went through one Service, as the agents last reported it.

use axum::extract::State;
use http::HeaderMap;
use model::{
    name::{Name, Namespace},
    resource::ServiceKey,
    traffic::ServiceTraffic,
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
    let doc = Doc::new(
        "readTraffic",
        "Service",
        "Reads what went through one Service, by node and endpoint.",
    )
    .describe(
        "The figures are those of the agents' last reports, which come every 10 s or so, counted since each node \
         programmed the endpoint. Sums that never fall are at `/metrics`.",
    )
    .in_namespace()
    .named("name", "The name of the Service.")
    .answer::<ServiceTraffic>(200, "The traffic.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable, Code::NotFound]);
    let path = "/v1/namespaces/{namespace}/services/{name}/traffic";
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
    let published = view.published();
    if published.snapshot.service(&key).is_none() {
        return Err(not_found(&key.object_key()));
    }
    let compiled = published.compiled.get(&key).map(|entry| &*entry.form);
    let views = view.table().views();
    let traffic = app.traffic().service(&key, compiled, &views, app.source.now());
    Ok(render(form, &traffic))
}
