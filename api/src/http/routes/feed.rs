//! `GET /v1/nodes/{node}/state`: the feed to one agent.

use std::sync::Arc;

use axum::{extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderValue, header};
use model::{
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, ObjectKey},
    primitives::name::Name,
    wire::feed::Frame,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::{Shared, watch::position};
use crate::{
    base::{
        body_stream as stream,
        error::{Answer, Code, Problem},
        negotiate::accepts_gzip,
    },
    http::{
        openapi::{Doc, Route, Routes},
        params::{ApiPath, ApiQuery},
    },
    security::Permission,
    stream::node_feed::{Feed, Questions},
};

/// When to come back when there are too many feeds, in seconds.
const RETRY_SECS: u32 = 5;

/// Which node.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodePath {
    pub(super) node: Name,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FeedQuery {
    /// The position of the last `synced` or `heartbeat`: send what changed since. The complete state when left out, or
    /// when there is no way from there to the present.
    #[param(max_length = 64)]
    resume: Option<String>,
    /// `only`: no state, but heartbeats and questions. For agents that take their state from another control server. Not
    /// together with `resume`.
    #[param(inline)]
    asks: Option<AsksQuery>,
}

/// What a feed is for beside state.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum AsksQuery {
    /// Questions only.
    Only,
}

/// Adds the route.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("feed", "Agent", "Streams the state that a node should have.")
        .describe(
            "One frame per line, gzip if accepted. Between two `synced` frames the state is not consistent. A second \
             feed to the same node ends the first. Heartbeats come at least every 10 seconds. With `asks=only` there are \
             no other frames than heartbeats, the first of them at once, and questions; such a feed ends no feed of state, \
             and a feed of state ends it.",
        )
        .named("node", "Name of the Node.")
        .query::<FeedQuery>()
        .answer::<Frame>(200, "Frames, one per line.", &["application/x-ndjson"], &[])
        .problems(&[Code::NodeNotFound]);
    router.routes(
        Route::at("/v1/nodes/{node}/state").on(HttpMethod::Get, Permission::OwnNode, doc, feed).done(),
    )
}

async fn feed(
    State(app): State<Shared>,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
    ApiQuery(query): ApiQuery<FeedQuery>,
    headers: HeaderMap,
) -> Answer {
    let resume = query.resume.map(|text| position("resume", &text)).transpose()?;
    if resume.is_some() && query.asks.is_some() {
        return Err(Problem::bad_request(
            "query parameter: `resume` is for feeds of state, not with `asks=only`",
        ));
    }
    require_node(&app.hub.load().snapshot, &node)?;
    if let Some(position) = resume {
        // A server that stays behind sends what it has; its first frame says so, and the agent asks another one.
        let _ = app.reach(position).await;
    }
    let permit = Arc::clone(&app.feeds).try_acquire_owned().map_err(|_| {
        Problem::new(Code::TooManyRequests, "too many feeds are open").retry_after(RETRY_SECS)
    })?;
    let gzip = accepts_gzip(&headers);
    let (hub, metrics) = (Arc::clone(&app.hub), Arc::clone(&app.metrics));
    let (pieces, body) = stream::pieces();
    match query.asks {
        None => {
            let stop = app.nodes.begin_feed(&node, &app.stop_streams);
            let asks = app.asks.open(&node);
            let feeding = Arc::clone(&app.feeding);
            let feed = Feed { node, resume, hub, feeding, metrics, stop };
            tokio::spawn(async move {
                feed.run(pieces, gzip, asks).await;
                drop(permit);
            });
        }
        Some(AsksQuery::Only) => {
            let stop = app.nodes.begin_questions(&node, &app.stop_streams);
            let asks = app.asks.open(&node);
            let feed = Questions { node, hub, metrics, stop };
            tokio::spawn(async move {
                feed.run(pieces, gzip, asks).await;
                drop(permit);
            });
        }
    }
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Refuses what is asked for a node that does not exist.
pub(super) fn require_node(snapshot: &Snapshot, node: &Name) -> Result<(), Problem> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    match snapshot.get(&key) {
        Some(_) => Ok(()),
        None => Err(Problem::new(Code::NodeNotFound, format!("there is no Node {node}"))
            .hint("an agent registers itself by POST /v1/nodes")),
    }
}
