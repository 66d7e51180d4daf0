//! `PUT /v1/nodes/{node}/answers/{id}`: reply of a node agent to a query that it received in its feed (stream
//! of state from the server).

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::StatusCode;
use model::{
    primitives::name::Name,
    wire::{
        ask::{AskId, FINDINGS_MAX, Reply},
        plan::{LineChange, PLAN_LINES_MAX, PREVIEW_WORDS_MAX},
        trace::{ENDS_MAX, End, STEPS_MAX},
    },
};
use serde::Deserialize;
use utoipa::openapi::HttpMethod;

use super::feed::require_node;
use crate::{
    base::error::{Answer, Code, Problem},
    context::sub_states::QueryState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::Permission,
};

/// Maximum length of a line of a plan in characters, as in the schema. The longest lines are packet filter rules
/// with many matches.
const LINE_LENGTH_MAX: usize = 65_536;
/// Maximum length in characters of a failure message, and of the result or final verdict in a packet trace.
const MESSAGE_LENGTH_MAX: usize = 1024;
/// Maximum length of a rule in a packet trace, in characters.
const RULE_LENGTH_MAX: usize = 4096;
/// Maximum length in characters of the location in a reply, such as a chain or file name.
const PLACE_LENGTH_MAX: usize = 256;
/// Maximum number of fixes (repairs by the agent) that one reply lists, as in the schema.
const FIXES_MAX: usize = 8;
/// Maximum length of the name of a diagnostic check in characters.
const CHECK_LENGTH_MAX: usize = 64;

/// Path parameters of an agent's reply: node and query id.
#[derive(Debug, Clone, Deserialize)]
struct AnswerPath {
    node: Name,
    id: u64,
}

/// Registers the route of agents' replies to queries.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("answerQuery", "Agent", "Reply to a query")
        .describe(
            "Sends the reply of an agent to a query that it received on its feed. A query accepts one \
             reply; a reply after its timeout is rejected with `NotAsked`.",
        )
        .named("node", "Name of the Node.")
        .asked("id", "Id of the query.")
        .body::<Reply>(&OBJECT_TYPES, "Reply to the query.")
        .empty(204, "Returned if the reply was accepted.")
        .problems(&[Code::NodeNotFound, Code::NotAsked, Code::Invalid]);
    router.routes(
        Route::at("/v1/nodes/{node}/answers/{id}")
            .on(HttpMethod::Put, Permission::OwnNode, doc, answer)
            .done(),
    )
}

async fn answer(
    State(state): State<QueryState>,
    ApiPath(AnswerPath { node, id }): ApiPath<AnswerPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let value = body::read_answer(&parts.headers, body).await?;
    let reply: Reply = body::typed(&value)?;
    check(&reply)?;
    require_node(&state.hub.load().snapshot, &node)?;
    if state.queries.answer(&node, AskId(id), reply) {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        let detail = format!("no query {id} to Node {node} is pending");
        Err(Problem::new(Code::NotAsked, detail).hint("the reply arrived too late; no action is needed"))
    }
}

/// Returns a problem if an agent's reply exceeds a length or count limit of the schema.
fn check(reply: &Reply) -> Result<(), Problem> {
    let limits = match reply {
        Reply::Plan(preview) => {
            let lines = || preview.kernel.iter().chain(&preview.announcements);
            let words = || preview.session_resets.iter().chain(&preview.failures);
            vec![
                ("/kernel", preview.kernel.len(), PLAN_LINES_MAX),
                ("/announcements", preview.announcements.len(), PLAN_LINES_MAX),
                ("/*/place", longest(lines().map(|LineChange { place, .. }| place)), PLACE_LENGTH_MAX),
                ("/*/line", longest(lines().map(|LineChange { line, .. }| line)), LINE_LENGTH_MAX),
                ("/sessionResets", preview.session_resets.len(), PREVIEW_WORDS_MAX),
                ("/failures", preview.failures.len(), PREVIEW_WORDS_MAX),
                ("/failures/*", longest(words()), MESSAGE_LENGTH_MAX),
            ]
        }
        Reply::Trace(traced) => vec![
            ("/steps", traced.steps.len(), STEPS_MAX),
            ("/steps/*/place", longest(traced.steps.iter().map(|step| &step.place)), PLACE_LENGTH_MAX),
            ("/steps/*/rule", longest(traced.steps.iter().map(|step| &step.rule)), RULE_LENGTH_MAX),
            ("/steps/*/result", longest(traced.steps.iter().map(|step| &step.result)), MESSAGE_LENGTH_MAX),
            ("/fate", traced.fate.chars().count(), MESSAGE_LENGTH_MAX),
            ("/ends", traced.ends.len(), ENDS_MAX),
            ("/ends/*/unknown", longest(traced.ends.iter().filter_map(End::unknown)), MESSAGE_LENGTH_MAX),
        ],
        Reply::Doctor { findings, clock: _ } => vec![
            ("/findings", findings.len(), FINDINGS_MAX),
            ("/findings/*/check", longest(findings.iter().map(|found| &found.check)), CHECK_LENGTH_MAX),
            ("/findings/*/message", longest(findings.iter().map(|found| &found.message)), MESSAGE_LENGTH_MAX),
            (
                "/findings/*/why",
                longest(findings.iter().filter_map(|found| found.why.as_ref())),
                MESSAGE_LENGTH_MAX,
            ),
            (
                "/findings/*/fix",
                longest(findings.iter().filter_map(|found| found.fix.as_ref())),
                MESSAGE_LENGTH_MAX,
            ),
        ],
        Reply::Confirmed(_) => Vec::new(),
        Reply::Fix { fixes } => vec![
            ("/fixes", fixes.len(), FIXES_MAX),
            ("/fixes/*/message", longest(fixes.iter().map(|done| &done.message)), MESSAGE_LENGTH_MAX),
        ],
        Reply::Failed { message } => vec![("/message", message.chars().count(), MESSAGE_LENGTH_MAX)],
    };
    body::within(limits)
}

fn longest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}
