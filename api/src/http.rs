//! HTTP: routes, middleware, request bodies, the OpenAPI document, and the read-only Kubernetes API for
//! `kubectl`.

pub(crate) mod body;
pub(crate) mod kubernetes;
pub(crate) mod middleware;
pub(crate) mod mutation;
pub(crate) mod openapi;
pub(crate) mod params;
pub(crate) mod patch;
pub(crate) mod plans;
pub(crate) mod response_progress;
pub(crate) mod routes;
pub(crate) mod schema;
pub(crate) mod watch;
