//! `GET /v1/nodes/{node}/doctor`: live diagnosis of a node by its agent. `POST /v1/nodes/{node}/fixes`:
//! application of safe fixes.

use std::time::Duration;

use axum::extract::{Request, State};
use http::HeaderMap;
use model::{
    kinds::resource::Kind,
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
    wire::{
        ask::{Question, Reply},
        doctor::{Diagnosis, FixReport, FixRequest, judge_clock, judge_peer_keys},
    },
};
use utoipa::openapi::HttpMethod;

use super::feed::{NodePath, require_node};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::QueryState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Caller, Verb, on},
};

/// Maximum duration of a diagnosis, in which the agent tries kernel features in a separate network namespace.
const PATIENCE: Duration = Duration::from_secs(20);

/// Registers the routes of diagnoses and fixes.
pub(super) fn add(router: Routes) -> Routes {
    let problems = [
        Code::NotAcceptable,
        Code::NodeNotFound,
        Code::NodeSilent,
        Code::NodeCannotSay,
        Code::PayloadTooLarge,
    ];
    let look = Doc::new("readDoctor", "Node", "Diagnose the machine of a node")
        .describe("The agent runs the checks at this moment. It changes nothing and loads no kernel module.")
        .named("node", "Name of the Node.")
        .answer::<Diagnosis>(200, "Returned with the findings of the agent.", &OBJECT_TYPES, &[])
        .problems(&problems);
    let fix = Doc::new("fixNode", "Node", "Apply safe fixes on a node")
        .describe(
            "The set of fixes is closed; findings name the applicable ones as `safeFix`. An agent \
             applies them only if it was started with `--allow-fixes`; otherwise the request fails with \
             `NodeCannotSay`.",
        )
        .named("node", "Name of the Node.")
        .body::<FixRequest>(&OBJECT_TYPES, "Fixes to apply on the node.")
        .answer::<FixReport>(200, "Returned with the result of each fix.", &OBJECT_TYPES, &[])
        .problems(&problems)
        .problems(&[Code::Invalid]);
    router
        .routes(
            Route::at("/v1/nodes/{node}/doctor")
                .on(HttpMethod::Get, on(Verb::Explain, Kind::Node), look, read)
                .done(),
        )
        .routes(
            Route::at("/v1/nodes/{node}/fixes")
                .on(HttpMethod::Post, on(Verb::Fix, Kind::Node), fix, make)
                .done(),
        )
}

async fn read(
    State(state): State<QueryState>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    require_node(&state.hub.load().snapshot, &node)?;
    let asked = state.source.now();
    let reply = state.queries.ask(&node, Question::Doctor, PATIENCE).await;
    let answered = state.source.now();
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Doctor { mut findings, clock } => {
            findings.extend(clock.map(|clock| judge_clock(asked, clock, answered)));
            findings.extend(judge_peer_keys(&state.hub.load().snapshot, &node));
            Ok(render(form, &Diagnosis { node, findings }))
        }
        Reply::Failed { message } => Err(cannot_say(&node, &message)),
        Reply::Plan(_) | Reply::Trace(_) | Reply::Fix { .. } | Reply::Confirmed(_) => {
            Err(other_answer(&node))
        }
    }
}

async fn make(
    State(state): State<QueryState>,
    caller: Caller,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let form = form(&parts.headers)?;
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let FixRequest { fixes } = body::typed(&value)?;
    if fixes.is_empty() {
        let message = "must name a fix; findings name the applicable ones as `safeFix`".to_owned();
        return Err(Problem::invalid(vec![Violation::new("/fixes", ViolationCode::Required, message)]));
    }
    require_node(&state.hub.load().snapshot, &node)?;
    caller.record_object(format!("Node {node}"));
    let reply = state.queries.ask(&node, Question::Fix { fixes }, PATIENCE).await;
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Fix { fixes } => Ok(render(form, &FixReport { node, fixes })),
        Reply::Failed { message } => Err(cannot_say(&node, &message)),
        Reply::Plan(_) | Reply::Trace(_) | Reply::Doctor { .. } | Reply::Confirmed(_) => {
            Err(other_answer(&node))
        }
    }
}

fn cannot_say(node: &Name, message: &str) -> Problem {
    Problem::new(Code::NodeCannotSay, format!("Node {node}: {message}"))
}

fn other_answer(node: &Name) -> Problem {
    let detail = format!("Node {node} sent a reply of another type");
    Problem::new(Code::NodeCannotSay, detail)
}
