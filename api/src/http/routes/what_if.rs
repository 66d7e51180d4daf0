//! Effect of a simulated failure of nodes on addresses and Services (`/v1/what-if`). No state is changed.

use std::collections::BTreeSet;

use axum::extract::State;
use http::HeaderMap;
use model::{
    observed::rollup::what_if::{WhatIf, what_if},
    primitives::name::Name,
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::feed::require_node;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{Permission, Subject, Verb},
};

/// Maximum number of nodes whose failure one request may simulate.
const FAILED_MAX: usize = 500;
/// Maximum length of the list of failing nodes, in characters.
const FAIL_LENGTH_MAX: usize = 4096;

/// Query of a failure simulation.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhatIfQuery {
    /// Names of the failing Nodes, separated by commas, at most 500. Default: no node; the response then lists the
    /// current single points of failure.
    #[param(max_length = 4096, example = "node-1,node-2")]
    fail: Option<String>,
}

/// Registers the route of simulated failures.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("whatIf", "Cluster", "Simulate the failure of nodes")
        .describe(
            "Returns the addresses that other nodes would announce or that would have no announcer, the \
             Services that would lose endpoints, and the dependencies on a single node afterwards. Based \
             on the recorded candidates and the reports of the agents; nodes that do not report count as \
             failed.",
        )
        .query::<WhatIfQuery>()
        .answer::<WhatIf>(200, "Returned with the simulated effects.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NodeNotFound]);
    router.routes(
        Route::at("/v1/what-if")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::Status), doc, read)
            .done(),
    )
}

async fn read(
    State(state): State<ReadState>,
    ApiQuery(WhatIfQuery { fail }): ApiQuery<WhatIfQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let failed = names(fail.as_deref().unwrap_or_default())?;
    let view = state.view();
    let published = view.published();
    for node in &failed {
        require_node(&published.snapshot, node)?;
    }
    let renderer = view.renderer();
    let services = published.compiled.after(None).map(|(_, entry)| &*entry.form);
    let found = renderer.announcing(|of| what_if(of, services, failed));
    Ok(render(form, &found))
}

fn names(fail: &str) -> Result<BTreeSet<Name>, Problem> {
    if fail.len() > FAIL_LENGTH_MAX {
        return Err(Problem::bad_request(format!("`fail` must have at most {FAIL_LENGTH_MAX} characters")));
    }
    let words = fail.split(',').map(str::trim).filter(|word| !word.is_empty());
    let names: BTreeSet<Name> = words
        .map(|word| {
            Name::parse(word).map_err(|error| Problem::bad_request(format!("`fail`: `{word}` {error}")))
        })
        .collect::<Result<_, _>>()?;
    if names.len() > FAILED_MAX {
        return Err(Problem::bad_request(format!("`fail` must name at most {FAILED_MAX} Nodes")));
    }
    Ok(names)
}
