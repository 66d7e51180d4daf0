//! `GET /v1/addresses/announced`: stream of the announced addresses of Services with host names and of Services that
//! publish a Gateway.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use axum::{extract::State, response::IntoResponse};
use bytes::Bytes;
use http::{HeaderValue, header};
use model::{kinds::resource::Kind, wire::announced::AnnouncedFrame};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        body_stream::{self as stream, Gone, HEARTBEAT, Pieces},
        error::{Answer, Code, Problem},
    },
    http::{
        middleware::RequestId,
        openapi::{Doc, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Access, Caller, Verb, access::unauthenticated, on},
};

/// Path of the stream.
const PATH: &str = "/v1/addresses/announced";
/// Interval at which the addresses are compared with those sent last.
const INTERVAL: Duration = Duration::from_millis(250);

/// Registers the route of the stream.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("watchAnnouncedAddresses", Kind::Address.as_str(), "Watch announced addresses")
        .describe(
            "Streams the load balancer addresses that a node announces or another system routes to the nodes, of \
             Services with `spec.hostnames` and of those with the namespace and name of a Gateway. DNS servers \
             answer host names with these addresses only. The \
             line `complete` contains all of them, as soon as every node has reported to this server; further \
             lines contain the changes, at most four each second. A heartbeat is sent at least every 10 \
             seconds.",
        )
        .answer::<AnnouncedFrame>(200, "Returned with one frame per line.", &["application/x-ndjson"], &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(Route::at(PATH).on(HttpMethod::Get, on(Verb::Watch, Kind::Address), doc, announced).done())
}

async fn announced(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    RequestId(request_id): RequestId,
) -> Answer {
    let permit = app.open_watch(&caller)?;
    let (pieces, body) = stream::pieces();
    let stop = app.stop_streams.child_token();
    let watch = AnnouncedWatch { app, access: Arc::clone(caller.access()), request_id, stop };
    tokio::spawn(async move {
        // The watcher disconnected; there is no recipient for the error.
        let _ = watch.run(&pieces).await;
        drop(permit);
    });
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Stream of one client.
struct AnnouncedWatch {
    app: Shared,
    access: Arc<Access>,
    request_id: String,
    stop: CancellationToken,
}

impl AnnouncedWatch {
    async fn run(&self, pieces: &Pieces) -> Result<(), Gone> {
        let mut sent: Option<Arc<BTreeSet<IpAddr>>> = None;
        let mut last_line = Instant::now();
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = pieces.closed() => return Err(Gone),
                _ = tick.tick() => {}
            }
            let newest = self.app.announced.current(&self.app.view(), self.app.overview.trigger.changes());
            let change = newest.as_ref().and_then(|newest| match &sent {
                None => Some(AnnouncedFrame::Complete { addresses: (**newest).clone() }),
                Some(sent) => AnnouncedFrame::between(sent, newest),
            });
            let is_idle = last_line.elapsed() >= HEARTBEAT;
            let Some(frame) = change.or_else(|| is_idle.then_some(AnnouncedFrame::Heartbeat)) else {
                continue;
            };
            // Checked before every line, because a token may have been revoked.
            let renewed = self.app.authenticator.renew(&self.access, self.app.source.now());
            if !renewed.is_some_and(|renewed| renewed.is_as(&self.access)) {
                return pieces.send(line(&self.revoked())).await;
            }
            pieces.send(line(&frame)).await?;
            last_line = Instant::now();
            sent = newest.or(sent);
        }
    }

    fn revoked(&self) -> AnnouncedFrame {
        let problem: Problem =
            unauthenticated("the token has expired, or its role bindings have changed since the watch began");
        let problem = problem.finish(PATH, &self.request_id);
        AnnouncedFrame::Error {
            problem: serde_json::to_value(problem).expect("problems have string keys only"),
        }
    }
}

fn line(frame: &AnnouncedFrame) -> Bytes {
    let mut bytes = serde_json::to_vec(frame).expect("frames have string keys only");
    bytes.push(b'\n');
    bytes.into()
}
