//! `GET /v1/nodes/{node}/doctor`: what is odd on one machine, as its agent sees it at this moment.

use std::time::Duration;

use axum::extract::State;
use http::HeaderMap;
use model::ask::{Diagnosis, Question, Reply};
use utoipa::openapi::HttpMethod;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Shared,
    feed::{NodePath, require_node},
};
use crate::{
    error::{Answer, Code, Problem},
    negotiate::{form, render},
    openapi::{Doc, OBJECT_TYPES, Route},
    params::{ApiPath, ApiQuery, NoQuery},
};

/// How long an agent may look: it tries what its mode needs in a namespace of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds the route.
pub(super) fn add(router: OpenApiRouter<Shared>) -> OpenApiRouter<Shared> {
    let doc = Doc::new("readDoctor", "Node", "Asks the agent of a node what is odd on its machine.")
        .describe("The agent looks at this moment, changes nothing and loads no module.")
        .named("node", "The name of the Node.")
        .answer::<Diagnosis>(200, "What the agent found.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::NodeNotFound,
            Code::NodeSilent,
            Code::NodeCannotSay,
            Code::PayloadTooLarge,
        ]);
    router.routes(Route::at("/v1/nodes/{node}/doctor").on(HttpMethod::Get, doc, read).done())
}

async fn read(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    require_node(&app.hub.load().snapshot, &node)?;
    let reply = app.asks.ask(&node, Question::Doctor, PATIENCE).await;
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Doctor { findings } => Ok(render(form, &Diagnosis { node, findings })),
        Reply::Failed { message } => {
            Err(Problem::new(Code::NodeCannotSay, format!("Node {node}: {message}")))
        }
        Reply::Plan(_) | Reply::Trace(_) | Reply::Confirmed(_) => {
            let detail = format!("Node {node} answered another question than it was asked");
            Err(Problem::new(Code::NodeCannotSay, detail))
        }
    }
}
