//! `GET /v1/namespaces/{namespace}/quota`: amounts of limited resources that a namespace uses, and its quotas.

use axum::extract::State;
use http::HeaderMap;
use model::{
    admission::admit::usage, cluster::quota::QuotaResource, kinds::resource::Kind,
    primitives::name::Namespace,
};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Verb, on},
};

#[derive(Debug, Clone, Deserialize)]
struct QuotaPath {
    namespace: Namespace,
}

/// Resources that a namespace uses, and its quotas.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamespaceQuota {
    /// Namespace that the quotas concern.
    #[schema(value_type = String, example = "shop")]
    namespace: Namespace,
    /// All resources that quotas can limit.
    resources: Vec<QuotaUse>,
}

/// Use of one resource in a namespace.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QuotaUse {
    /// Name of the resource: `services`, `endpoint-sets`, `workloads`, `endpoints`, `node-ports`,
    /// `load-balancer-addresses` or `checked-endpoints`.
    #[schema(example = "node-ports")]
    resource: &'static str,
    /// Amount of the resource that the objects of the namespace use.
    used: usize,
    /// Maximum amount. Absent if it is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
}

/// Registers the route of quotas.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readQuota", "Cluster", "Read the quotas of a namespace")
        .describe(
            "The quotas are those of `--quota` of this control server. A write that would exceed one is \
             rejected with `QuotaExceeded`.",
        )
        .in_namespace()
        .answer::<NamespaceQuota>(200, "Returned with the use and the limits.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let path = "/v1/namespaces/{namespace}/quota";
    router.routes(Route::at(path).on(HttpMethod::Get, on(Verb::List, Kind::Service), doc, read).done())
}

async fn read(
    State(app): State<Shared>,
    ApiPath(QuotaPath { namespace }): ApiPath<QuotaPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let used = usage(&app.hub.load().snapshot, &namespace);
    let quotas = app.cluster.quotas();
    let one = |resource: QuotaResource| QuotaUse {
        resource: resource.as_str(),
        used: used.get(resource),
        limit: quotas.limit(&namespace, resource),
    };
    let resources = QuotaResource::ALL.into_iter().map(one).collect();
    Ok(render(form, &NamespaceQuota { namespace, resources }))
}
