//! Protection of status servers on loopback against DNS rebinding.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, Version, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use base::Hosts;

/// Adds the check of the `Host` header for a server at `local`. On a loopback address, only requests for a local host
/// name are accepted, because a web page could otherwise resolve its own name to this server and read from it (DNS
/// rebinding). At other addresses, every name is accepted.
pub fn guarded(router: Router, local: SocketAddr) -> Router {
    let hosts =
        if local.ip().to_canonical().is_loopback() { Hosts::Local(BTreeSet::new()) } else { Hosts::Any };
    router.layer(from_fn_with_state(Arc::new(hosts), check_host))
}

async fn check_host(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let given: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    let is_missing = given.is_empty() && request.version() == Version::HTTP_11;
    let texts = given.iter().map(|value| value.to_str().unwrap_or_default());
    let is_allowed = texts.chain(request.uri().host()).all(|host| hosts.allow(host));
    if given.len() > 1 || is_missing || !is_allowed {
        let refusal = "the header `Host` must be localhost or an IP address";
        return (StatusCode::BAD_REQUEST, refusal).into_response();
    }
    next.run(request).await
}
