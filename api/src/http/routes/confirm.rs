//! `POST /v1/nodes/{node}/confirm`: consent that a node takes a state of this server that it holds back.
//!
//! Consent is said to the agent and kept nowhere: it counts for what the node holds back at this moment, of the one life
//! of the store that is named, and cannot come back with a backup.

use std::time::Duration;

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    primitives::{name::Name, quantity::Epoch},
    wire::{
        ask::{Question, Reply},
        hold::Held,
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::{
    Shared,
    feed::{NodePath, require_node},
};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery},
    },
    security::{Verb, on},
    write::{audit::CONFIRM_PATH, caller},
};

/// How long an agent may take: it answers between two turns of its loop.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which state.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ConfirmQuery {
    /// The life of the store that is confirmed: the first number of the position that the node holds back.
    #[param(minimum = 0)]
    epoch: u64,
}

/// What a node was told to take.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Confirmed {
    /// The node.
    node: Name,
    /// What it held back, and takes now.
    confirmed: Held,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("confirmState", "Node", "Lets a node take the state of this server that it holds back.")
        .describe(
            "An agent holds back a state of another life of the store when too much is missing in it of what its node holds; \
             `status.held` of the Node says which. What is confirmed is that life only.",
        )
        .named("node", "Name of the Node.")
        .query::<ConfirmQuery>()
        .answer::<Confirmed>(200, "The node takes it.", &OBJECT_TYPES, &[])
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
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(ConfirmQuery { epoch }): ApiQuery<ConfirmQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let epoch = Epoch(epoch);
    caller::note_object(format!("Node {node}"));
    let published = app.hub.load();
    require_node(&published.snapshot, &node)?;
    if published.epoch != epoch {
        let detail = format!("this server is of epoch {}, not of {epoch}", published.epoch);
        return Err(Problem::new(Code::Conflict, detail).hint(
            "`status.held` of the Node says what it holds back; another server may have been its source",
        ));
    }
    let reply = app.asks.ask(&node, Question::Confirm { epoch }, PATIENCE).await;
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Confirmed(confirmed) => {
            tracing::info!(%node, offered = %confirmed.offered, "a state that a node held back was confirmed");
            Ok(render(form, &Confirmed { node, confirmed }))
        }
        Reply::Failed { message } => {
            Err(Problem::new(Code::NodeCannotSay, format!("Node {node}: {message}")))
        }
        Reply::Plan(_) | Reply::Trace(_) | Reply::Doctor { .. } | Reply::Fix { .. } => {
            let detail = format!("Node {node} answered another question than it was asked");
            Err(Problem::new(Code::NodeCannotSay, detail))
        }
    }
}
