//! Routes of the API, one module for each subject.

mod address_events;
mod addresses;
mod announced;
mod answer;
mod apply;
mod attachments;
mod audit;
mod authority;
mod backup;
mod bgp;
mod certificate_keys;
pub(crate) mod confirm;
mod convergence;
mod delete;
mod dns_keys;
mod dns_servers;
mod docs;
mod doctor;
mod drains;
mod endpoints;
pub(crate) mod enrol;
mod environment;
mod explain;
mod explain_http;
mod explain_name;
mod explain_policy;
mod feed;
mod guards;
mod health;
mod history;
mod http_gateways;
mod join_tokens;
mod metrics;
mod namespaces;
mod of_service;
mod oidc;
mod overview;
mod plans;
mod quota;
mod rebalance;
mod report;
mod resource;
mod roles;
mod rollback;
mod series;
mod service_health;
mod session;
mod session_oidc;
mod status;
mod tokens;
mod traffic;
mod version;
mod watch;
mod web;
mod what_if;
mod whoami;

use std::sync::Arc;

pub use metrics::metrics_text;

use axum::Router;
use model::kinds::resource::Kind;

use crate::{
    context::server_state::ServerState,
    http::{kubernetes, middleware, openapi::Routes},
};

/// State shared by the handlers.
pub(crate) type Shared = Arc<ServerState>;

/// Returns the routes of the API that are part of the OpenAPI document.
pub(crate) fn router() -> Routes {
    let router = Routes::new();
    let router = Kind::ALL.into_iter().fold(router, resource::add);
    let parts = [
        apply::add,
        delete::add,
        plans::add,
        history::add,
        rollback::add,
        audit::add,
        watch::add,
        endpoints::add,
        environment::add,
        traffic::add,
        service_health::add,
        guards::add,
        namespaces::add,
        quota::add,
        drains::add,
        explain::add,
        explain_name::add,
        explain_http::add,
        explain_policy::add,
        dns_keys::add,
        dns_servers::add,
        http_gateways::add,
        certificate_keys::add,
        bgp::add,
        address_events::add,
        announced::add,
        status::add,
        overview::add,
        convergence::add,
        series::add,
        what_if::add,
        rebalance::add,
        feed::add,
        report::add,
        attachments::add,
        answer::add,
        doctor::add,
        enrol::add,
        authority::add,
        join_tokens::add,
        health::add,
        version::add,
        metrics::add,
        confirm::add,
        backup::add,
        tokens::add,
        roles::add,
        whoami::add,
        session::add,
        session_oidc::add,
        oidc::add,
        web::add,
    ];
    parts.into_iter().fold(router, |router, add| add(router))
}

/// Returns the complete server: documented routes, status page, Kubernetes API and middleware.
pub fn service(app: Arc<ServerState>) -> Router {
    let (router, _) = router().split();
    let router = web::serve(docs::serve(router));
    let router = if app.settings.has_kubernetes_view { kubernetes::serve(router) } else { router };
    middleware::wrap(router.with_state(Arc::clone(&app)), app)
}
