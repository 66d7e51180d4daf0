//! `POST /v1/nodes/{node}/confirm`: permission for a node to apply a state that its agent rejected because
//! too much would be removed at once (state guard).
//!
//! The confirmation is sent to the agent and not stored, so that a backup does not contain it. It applies
//! only to the state that the node rejects at this moment, and only if that state is of the given epoch.

use std::time::Duration;

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    primitives::quantity::Epoch,
    wire::{
        ask::{Question, Reply},
        hold::ConfirmedState,
    },
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::feed::{NodePath, require_node};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::QueryState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery},
    },
    security::{Caller, Verb, on},
    write::audit::CONFIRM_PATH,
};

/// Maximum time to wait for the confirmation by the agent, which replies only between two reconciliations of
/// the kernel.
const PATIENCE: Duration = Duration::from_secs(10);

/// Query of a confirmation that a node may apply a rejected state.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ConfirmQuery {
    /// Epoch (identity of the store) of the rejected state: the first number of the position in `status.held`
    /// of the Node.
    #[param(minimum = 0)]
    epoch: u64,
}

/// Registers the route that confirms a state rejected by an agent.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("confirmState", "Node", "Confirm a state that a node rejects")
        .describe(
            "An agent rejects a state of another epoch of the store if too much of its current state \
             would be removed; `status.held` of the Node describes the rejected state. The confirmation \
             applies to the given epoch only.",
        )
        .named("node", "Name of the Node.")
        .query::<ConfirmQuery>()
        .answer::<ConfirmedState>(200, "Returned if the node applies the state.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::NodeNotFound,
            Code::Conflict,
            Code::NodeSilent,
            Code::NodeCannotSay,
            Code::PayloadTooLarge,
        ]);
    router.routes(
        Route::at(CONFIRM_PATH).on(HttpMethod::Post, on(Verb::Confirm, Kind::Node), doc, confirm).done(),
    )
}

async fn confirm(
    State(state): State<QueryState>,
    caller: Caller,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(ConfirmQuery { epoch }): ApiQuery<ConfirmQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let epoch = Epoch(epoch);
    caller.record_object(format!("Node {node}"));
    let published = state.hub.load();
    require_node(&published.snapshot, &node)?;
    if published.epoch != epoch {
        let detail = format!("the epoch of this server is {}, not {epoch}", published.epoch);
        return Err(Problem::new(Code::Conflict, detail).hint(
            "`status.held` of the Node describes the rejected state; it may come from another server",
        ));
    }
    let reply = state.queries.ask(&node, Question::Confirm { epoch }, PATIENCE).await;
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Confirmed(confirmed) => {
            tracing::info!(%node, offered = %confirmed.offered, "a state rejected by the state guard of \
                                                                 a node was confirmed");
            Ok(render(form, &ConfirmedState { node, confirmed }))
        }
        Reply::Failed { message } => {
            Err(Problem::new(Code::NodeCannotSay, format!("Node {node}: {message}")))
        }
        Reply::Plan(_) | Reply::Trace(_) | Reply::Doctor { .. } | Reply::Fix { .. } => {
            let detail = format!("Node {node} sent a reply of another type");
            Err(Problem::new(Code::NodeCannotSay, detail))
        }
    }
}
