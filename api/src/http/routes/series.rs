//! `GET /v1/series`: time series of the last hour for a Service, a Node or the cluster.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::{Kind, ObjectKey, ServiceKey},
    primitives::name::{Name, Namespace},
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
        patch::not_found,
    },
    security::{Caller, Permission, Subject, Verb},
    state::series::{Of, SeriesAnswer},
};

/// Time from the start of the server until the first point of a series exists, in seconds.
const FIRST_POINT_SECS: u32 = 1;

/// Query of a time series.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SeriesQuery {
    /// Subject of the series: `service/NAMESPACE/NAME`, `node/NAME` or `cluster`.
    #[param(max_length = 512, example = "service/default/web")]
    of: String,
}

/// Registers the route of time series.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readSeries", "Cluster", "Read the time series of one subject")
        .describe(
            "Returns one point every ten seconds for the last hour. Of a Service: `connections` and \
             `bytes` (both directions) per second and `active` connections, as reported by the nodes \
             that count them. Of a Node: `lag` (age of the oldest change that the node lacks), `behind` \
             (number of revisions that the node has not verified), the revision `programmed`, and \
             `healthy` (1 if the node reports and has verified the current state, else 0). Of the \
             cluster: `servicesNotOk`, `nodesNotConverged`, `endpointsUnhealthy`, `convergenceP99`, and \
             `connections` and `bytes` per second. Unknown values are `null`, also for times at which \
             this server did not run: each control server keeps its own series in memory.",
        )
        .query::<SeriesQuery>()
        .answer::<SeriesAnswer>(
            200,
            "Returned with the last hour, or the time since the server started \
                                      if shorter.",
            &OBJECT_TYPES,
            &[],
        )
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    router.routes(
        Route::at("/v1/series").on(HttpMethod::Get, Permission::Each(Verb::Get, None), doc, read).done(),
    )
}

async fn read(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<SeriesQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let of = parse(&query.of).ok_or_else(|| {
        Problem::bad_request(
            "query parameter: `of` must be `service/NAMESPACE/NAME`, `node/NAME` or `cluster`",
        )
    })?;
    let access = caller.access();
    let node_key = |name: &Name| ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() };
    let object = match &of {
        Of::Cluster => {
            access.need(Verb::Get, Subject::Status, None)?;
            None
        }
        Of::Node(name) => {
            access.need(Verb::Get, Subject::Object(Kind::Node), None)?;
            Some(node_key(name))
        }
        Of::Service(key) => {
            access.need(Verb::Get, Subject::Object(Kind::Service), Some(&key.namespace))?;
            Some(key.object_key())
        }
    };
    if let Some(key) = object.filter(|key| app.hub.load().snapshot.get(key).is_none()) {
        return Err(not_found(&key));
    }
    let answer = app.series.read(&of).ok_or_else(|| {
        Problem::new(Code::Unavailable, "no sample has been taken yet").retry_after(FIRST_POINT_SECS)
    })?;
    Ok(render(form, &answer))
}

fn parse(text: &str) -> Option<Of> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        ["cluster"] => Some(Of::Cluster),
        ["node", name] => Some(Of::Node(Name::parse(name).ok()?)),
        ["service", namespace, name] => {
            let (namespace, name) = (Namespace::parse(namespace).ok()?, Name::parse(name).ok()?);
            Some(Of::Service(ServiceKey { namespace, name }))
        }
        _ => None,
    }
}
