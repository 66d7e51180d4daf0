//! Traffic of Services as last reported by the agents: of one Service in detail, or of the busiest Services.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    observed::traffic::{BUSIEST_LISTED_MAX, Busiest, ServiceTraffic, SortBy},
    primitives::name::Namespace,
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::of_service::{ServicePath, document, find};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Caller, Subject, Verb, each, on},
};

/// Default number of Services in the traffic listing.
const BUSIEST_LISTED_DEFAULT: usize = 20;

/// Query of the listing of the busiest Services.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BusiestQuery {
    /// Namespace. Only Services in this namespace are returned. Default: all namespaces.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
    /// Sort key; the largest values come first. Default: `connectionRate`.
    #[param(inline, default = "connectionRate")]
    sort_by: Option<SortBy>,
    /// Maximum number of Services, from 1 to 1000. Values out of range are rejected. Default: 20.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<usize>,
}

/// Registers the routes of Service traffic.
pub(super) fn add(router: Routes) -> Routes {
    let one = Doc::new("readTraffic", "Service", "Read the traffic of one Service").describe(
        "Counters by node and endpoint from the last reports of the agents, which arrive about every \
             10 s, counted since each node programmed the endpoint. Monotonic sums are at `/metrics`.",
    );
    let one = document::<ServiceTraffic>(one, "Returned with the traffic by node and endpoint.");
    let busiest = Doc::new("listTraffic", "Service", "List the Services with most traffic")
        .describe(
            "Counters come from the last reports of the agents. Services without traffic are not \
                   listed.",
        )
        .query::<BusiestQuery>()
        .answer::<Busiest>(200, "Returned with the busiest Services.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let path = "/v1/namespaces/{namespace}/services/{name}/traffic";
    router.routes(Route::at(path).on(HttpMethod::Get, on(Verb::Get, Kind::Service), one, read).done()).routes(
        Route::at("/v1/traffic").on(HttpMethod::Get, each(Verb::List, Kind::Service), busiest, list).done(),
    )
}

async fn read(
    State(state): State<ReadState>,
    ApiPath(path): ApiPath<ServicePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let (form, service, view) = find(&state, path, &headers)?;
    let compiled = view.published().compiled.get(&service).map(|entry| &*entry.form);
    let views = view.table().views();
    let traffic = state.observations.traffic().service(&service, compiled, &views, state.source.now());
    Ok(render(form, &traffic))
}

async fn list(
    State(state): State<ReadState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<BusiestQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let BusiestQuery { namespace, sort_by, limit } = query;
    let limit = limit.unwrap_or(BUSIEST_LISTED_DEFAULT);
    if !(1..=BUSIEST_LISTED_MAX).contains(&limit) {
        return Err(Problem::bad_request(format!("`limit` must be 1–{BUSIEST_LISTED_MAX}, is {limit}")));
    }
    caller.access().need(Verb::List, Subject::Object(Kind::Service), namespace.as_ref())?;
    let view = state.view();
    let views = view.table().views();
    let busiest =
        state.observations.traffic().busiest(namespace.as_ref(), sort_by.unwrap_or_default(), limit, &views);
    Ok(render(form, &busiest))
}
