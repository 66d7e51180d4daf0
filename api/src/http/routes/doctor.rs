//! `GET /v1/nodes/{node}/doctor`: what is odd on one machine, as its agent sees it at this moment; and
//! `POST /v1/nodes/{node}/fixes`: asks the agent to put right what it may.

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
        doctor::{Diagnosis, FixesAsked, FixesDone, judge_clock},
    },
};
use utoipa::openapi::HttpMethod;

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
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Verb, on},
    write::caller,
};

/// How long an agent may look: it tries what its mode needs in a namespace of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let problems = [
        Code::NotAcceptable,
        Code::NodeNotFound,
        Code::NodeSilent,
        Code::NodeCannotSay,
        Code::PayloadTooLarge,
    ];
    let look = Doc::new("readDoctor", "Node", "Asks the agent of a node what is odd on its machine.")
        .describe("The agent looks at this moment, changes nothing and loads no module.")
        .named("node", "Name of the Node.")
        .answer::<Diagnosis>(200, "What the agent found.", &OBJECT_TYPES, &[])
        .problems(&problems);
    let fix = Doc::new("fixNode", "Node", "Asks the agent of a node to put right what it may.")
        .describe(
            "Which fixes there are is a closed list; findings name those that would help as `safeFix`. An agent makes them only \
             when it was started with `--allow-fixes`; otherwise it answers `NodeCannotSay`.",
        )
        .named("node", "Name of the Node.")
        .body::<FixesAsked>(&OBJECT_TYPES, "The fixes.")
        .answer::<FixesDone>(200, "What came of each.", &OBJECT_TYPES, &[])
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
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    require_node(&app.hub.load().snapshot, &node)?;
    let asked = app.source.now();
    let reply = app.asks.ask(&node, Question::Doctor, PATIENCE).await;
    let answered = app.source.now();
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Doctor { mut findings, clock } => {
            findings.extend(clock.map(|clock| judge_clock(asked, clock, answered)));
            Ok(render(form, &Diagnosis { node, findings }))
        }
        Reply::Failed { message } => Err(cannot_say(&node, &message)),
        Reply::Plan(_) | Reply::Trace(_) | Reply::Fix { .. } | Reply::Confirmed(_) => {
            Err(other_answer(&node))
        }
    }
}

async fn make(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let form = form(&parts.headers)?;
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let FixesAsked { fixes } = body::typed(&value)?;
    if fixes.is_empty() {
        let message = "must name a fix; findings name those that would help as `safeFix`".to_owned();
        return Err(Problem::invalid(vec![Violation::new("/fixes", ViolationCode::Required, message)]));
    }
    require_node(&app.hub.load().snapshot, &node)?;
    caller::note_object(format!("Node {node}"));
    let reply = app.asks.ask(&node, Question::Fix { fixes }, PATIENCE).await;
    match reply.map_err(|error| error.problem(&node))? {
        Reply::Fix { fixes } => Ok(render(form, &FixesDone { node, fixes })),
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
    let detail = format!("Node {node} answered another question than it was asked");
    Problem::new(Code::NodeCannotSay, detail)
}
