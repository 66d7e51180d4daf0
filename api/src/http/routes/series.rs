//! `GET /v1/series`: how it went in the last hour.

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
    security::{Permission, Subject, Verb, access},
    state::series::{Of, SeriesAnswer},
};

/// When the first point is there, in seconds.
const FIRST_POINT_SECS: u32 = 1;

/// What of.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SeriesQuery {
    /// What of: `service/NAMESPACE/NAME`, `node/NAME` or `cluster`.
    #[param(max_length = 512, example = "service/default/web")]
    of: String,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readSeries", "Cluster", "Reads how something went in the last hour, every ten seconds.")
        .describe(
            "Of a Service: `connections` and `bytes` (both directions) a second and `active` connections, as the nodes say \
             that count them. Of a Node: `lag` (how long the oldest change that it lacks waits), `behind` (revisions that it \
             has not verified), the revision `programmed`, and whether it is `healthy` (1 or 0: it reports and has \
             everything). Of the cluster: `servicesNotOk`, `nodesNotConverged`, `endpointsUnhealthy`, `convergenceP99`, \
             `connections` and `bytes` a second. What nobody knew at a time is `null`, also while this server did not run: it is kept in \
             memory, by each control server for itself.",
        )
        .query::<SeriesQuery>()
        .answer::<SeriesAnswer>(200, "The last hour, or less since the server started.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    router.routes(
        Route::at("/v1/series").on(HttpMethod::Get, Permission::Each(Verb::Get, None), doc, read).done(),
    )
}

async fn read(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<SeriesQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let of = parse(&query.of).ok_or_else(|| {
        Problem::bad_request(
            "query parameter: `of` must be `service/NAMESPACE/NAME`, `node/NAME` or `cluster`",
        )
    })?;
    let access = access::current();
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
        Problem::new(Code::Unavailable, "nothing was sampled yet").retry_after(FIRST_POINT_SECS)
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
