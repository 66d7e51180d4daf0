//! Plans: previews of writes with their effects on objects, addresses and nodes, and the execution of a
//! previewed write.

use axum::extract::{Request, State};
use http::HeaderMap;
use model::{admission::admit, primitives::name::Name, wire::plan::Plan};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::{
    Shared,
    apply::{apply_set_of, decode_all},
};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        mutation::{self as mutate, WriteOptions},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
        plans,
        schema::{ApplyAnswer, ApplyBody},
    },
    security::{Caller, Permission, Verb},
};

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PlanQuery {
    /// Name of the apply set (a named group of objects) that would own the objects. Default: no set.
    apply_set: Option<Name>,
    /// If true, members of the apply set that the body does not contain would be deleted. Requires `applySet`.
    /// Default: false.
    #[serde(default)]
    #[param(required = false)]
    prune: bool,
    /// If true, Services that lose their addresses because a pool changes would get other addresses, if any
    /// are available. Default: false.
    #[serde(default)]
    #[param(required = false)]
    evict: bool,
    /// Maximum number of objects that `prune` would be allowed to delete, from 0 to 5000. If it would delete
    /// more, the request is rejected. Default: five, or a fifth of the members of the apply set if that is
    /// more.
    #[param(minimum = 0, maximum = 5000)]
    prune_limit: Option<u32>,
    /// If true, the connected nodes are queried for the changes to their rulesets. Default: true.
    #[serde(default = "yes")]
    #[param(required = false, default = true)]
    nodes: bool,
}

const fn yes() -> bool {
    true
}

/// Path parameter with the id of a plan.
#[derive(Debug, Clone, Deserialize)]
struct PlanPath {
    plan: String,
}

/// Registers the routes of plans.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("plan", "Cluster", "Plan an apply without changing anything")
        .describe(
            "The body is that of `POST /v1/apply`. Each connected agent returns the lines of its ruleset \
             and announcements that would be removed and added. This control server keeps the plan for \
             one hour, and at most 64 plans, of which the caller with most plans loses the oldest first; \
             it can be applied by its id.",
        )
        .query::<PlanQuery>()
        .body::<ApplyBody>(&OBJECT_TYPES, "Objects of the planned apply.")
        .answer::<Plan>(200, "Returned with the plan and its id.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::Conflict,
            Code::PruneLimit,
            Code::QuotaExceeded,
            Code::Invalid,
        ]);
    let apply = Doc::new("applyPlan", "Cluster", "Apply a plan")
        .describe(
            "The request is rejected if one of the objects was changed, created or deleted since the \
             plan was made. Guards count as confirmed, because the plan lists the removals.",
        )
        .named_text("plan", "Id of the plan.")
        .authored()
        .answer::<ApplyAnswer>(
            200,
            "Returned if all objects were accepted.",
            &OBJECT_TYPES,
            &[super::resource::REVISION],
        )
        .problems(&[Code::NotAcceptable, Code::PlanOutdated, Code::Invalid]);
    router
        .routes(
            Route::at("/v1/plan").on(HttpMethod::Post, Permission::Each(Verb::Plan, None), doc, plan).done(),
        )
        .routes(
            Route::at("/v1/plans/{plan}/apply")
                .on(HttpMethod::Post, Permission::Each(Verb::Update, None), apply, apply_plan)
                .done(),
        )
}

async fn plan(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<PlanQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let PlanQuery { apply_set, prune, evict, prune_limit, nodes } = query;
    let apply_set = apply_set_of(&caller, apply_set.as_ref(), prune, prune_limit)?;
    let (parts, body) = request.into_parts();
    let (bytes, items) = body::read_many(&parts.headers, body).await?;
    let operations = decode_all(&items)?;
    let request = admit::Request { operations, apply_set, evict, ..admit::Request::default() };
    let plan =
        plans::make(&app, &caller, plans::PlanRequest { request, bytes: bytes.len(), asks_nodes: nodes })
            .await?;
    Ok(render(form, &plan))
}

async fn apply_plan(
    State(app): State<Shared>,
    caller: Caller,
    ApiPath(PlanPath { plan: id }): ApiPath<PlanPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let outdated = |detail: String| {
        Problem::new(Code::PlanOutdated, detail).hint("make the plan again and review the differences")
    };
    let kept = app.plans.get(&id, app.source.now());
    let kept = kept.ok_or_else(|| {
        outdated(format!(
            "there is no plan {id}; plans are kept for one hour by the control server that created them"
        ))
    })?;
    let evict = kept.request.evict;
    let manner = WriteOptions { is_dry_run: false, evict, confirm: true, form, bytes: kept.bytes };
    let moved = [Code::NotFound, Code::AlreadyExists, Code::PreconditionFailed, Code::Conflict];
    let written = mutate::write(&app, &caller, kept.request, manner).await.map_err(|problem| {
        if moved.contains(&problem.code()) {
            outdated(format!("since the plan was made: {}", problem.detail()))
        } else {
            problem
        }
    })?;
    Ok(mutate::answer_many(&app, manner, &written))
}
