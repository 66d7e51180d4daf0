//! The routes, by what they are about.

mod addresses;
mod answer;
mod apply;
mod bgp;
mod docs;
mod doctor;
mod endpoints;
mod explain;
mod feed;
mod health;
mod metrics;
mod report;
mod resource;
mod status;
mod traffic;
mod watch;

use std::sync::Arc;

use axum::Router;
use model::resource::Kind;
use utoipa_axum::router::OpenApiRouter;

use crate::{app::App, middleware, openapi};

/// What handlers share.
pub(crate) type Shared = Arc<App>;

/// Every documented route.
pub(crate) fn router() -> OpenApiRouter<Shared> {
    let router = OpenApiRouter::with_openapi(openapi::base());
    let router = Kind::ALL.into_iter().fold(router, resource::add);
    let parts = [
        apply::add,
        watch::add,
        endpoints::add,
        traffic::add,
        explain::add,
        bgp::add,
        status::add,
        feed::add,
        report::add,
        answer::add,
        doctor::add,
        health::add,
        metrics::add,
        docs::add,
    ];
    parts.into_iter().fold(router, |router, add| add(router))
}

/// The whole server as one service.
pub fn service(app: Arc<App>) -> Router {
    let (router, document) = router().split_for_parts();
    let router = docs::serve(router, document);
    middleware::wrap(router.with_state(Arc::clone(&app)), app)
}
