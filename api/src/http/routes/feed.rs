//! `GET /v1/nodes/{node}/state`: stream of state and queries to one agent (feed).

use std::sync::Arc;

use axum::{extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderValue, header};
use model::{
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, ObjectKey},
    primitives::name::Name,
    wire::{
        feed::Frame,
        network_policy::{NETWORK_POLICY_HEADER, NETWORK_POLICY_NEW},
        workload_network::{WORKLOAD_NETWORKS_HEADER, WORKLOAD_NETWORKS_NEW},
    },
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
    state::frame_batch::FrameSelection,
    stream::node_feed::{Feed, Questions},
};

/// `Retry-After` if too many feeds are open, in seconds.
const RETRY_SECS: u32 = 5;

/// Path parameter with the name of a node.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodePath {
    pub(super) node: Name,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FeedQuery {
    /// Position (epoch and revision) in the last `synced` or `heartbeat` frame (line of the stream) that the
    /// agent received. The feed sends the changes after this position. If `resume` is absent, or if those
    /// changes are no longer available, the feed begins with the full state.
    #[param(max_length = 64)]
    resume: Option<String>,
    /// With `only`, the feed carries heartbeats and queries to the agent, but no state: for agents that
    /// receive their state from another control server. Cannot be combined with `resume`.
    #[param(inline)]
    asks: Option<AsksQuery>,
}

/// Value of the query parameter `asks`, for a feed that carries no state.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum AsksQuery {
    /// Queries and heartbeats only, without state.
    Only,
}

/// Registers the route of the agents' feeds.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("watchNodeState", "Agent", "Stream the desired state of a node")
        .describe(
            "Returns one frame per line, compressed with gzip if accepted. The state is consistent at \
             each `synced` frame, and may be inconsistent in between. A second feed of the same node \
             ends the first one. Heartbeats are sent at least every 10 seconds. With `asks=only` the \
             feed consists of heartbeats, the first one immediately, and queries; such a feed does not \
             end a state feed, but a new state feed ends it. The frames of WorkloadNetworks and blocks \
             are sent only if the request has the header `tidegate-workload-networks`: `known` if the \
             state at `resume` includes them, `new` otherwise, so that the feed begins with the full \
             state. The same applies to the frames of network policy and the header \
             `tidegate-network-policy`.",
        )
        .named("node", "Name of the Node.")
        .query::<FeedQuery>()
        .answer::<Frame>(200, "Returned with frames, one per line.", &["application/x-ndjson"], &[])
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
            "query parameter: `resume` is for state feeds, not for `asks=only`",
        ));
    }
    require_node(&app.hub.load().snapshot, &node)?;
    if let Some(position) = resume {
        // A server that stays behind sends its state. The first frame holds the position, and the agent
        // switches to another server.
        let _ = app.reach(position).await;
        app.observe_position(&node, position);
    }
    let permit = Arc::clone(&app.feeds).try_acquire_owned().map_err(|_| {
        Problem::new(Code::TooManyRequests, "too many feeds are open").retry_after(RETRY_SECS)
    })?;
    let gzip = accepts_gzip(&headers);
    let networks = headers.get(WORKLOAD_NETWORKS_HEADER);
    let policy = headers.get(NETWORK_POLICY_HEADER);
    let selection =
        FrameSelection { workload_networks: networks.is_some(), network_policy: policy.is_some() };
    let is_new = networks.is_some_and(|value| value == WORKLOAD_NETWORKS_NEW)
        || policy.is_some_and(|value| value == NETWORK_POLICY_NEW);
    let resume = resume.filter(|held| app.may_resume(*held));
    let resume = resume.filter(|_| !is_new);
    let (hub, metrics) = (Arc::clone(&app.hub), Arc::clone(&app.metrics));
    let (pieces, body) = stream::pieces();
    match query.asks {
        None => {
            let stop = app.observations.nodes.begin_feed(&node, &app.stop_streams);
            let asks = app.queries.open(&node);
            let feeding = Arc::clone(&app.feeding);
            let end = stop.clone();
            let feed = Feed { node: node.clone(), resume, selection, hub, feeding, metrics, stop };
            tokio::spawn(async move {
                if feed.run(pieces, gzip, asks).await {
                    app.observations.end_feed(&node, &end);
                }
                drop(permit);
            });
        }
        Some(AsksQuery::Only) => {
            let stop = app.observations.nodes.begin_questions(&node, &app.stop_streams);
            let asks = app.queries.open(&node);
            let end = stop.clone();
            let feed = Questions { node: node.clone(), hub, metrics, stop };
            tokio::spawn(async move {
                if feed.run(pieces, gzip, asks).await {
                    app.observations.end_feed(&node, &end);
                }
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

/// Returns an error if the Node does not exist.
pub(super) fn require_node(snapshot: &Snapshot, node: &Name) -> Result<(), Problem> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    match snapshot.get(&key) {
        Some(_) => Ok(()),
        None => Err(Problem::new(Code::NodeNotFound, format!("there is no Node {node}"))
            .hint("an agent registers itself by POST /v1/nodes")),
    }
}
