//! Test support for the Kubernetes adapter: API server and permissions.

pub(crate) mod apiserver;
pub(crate) mod rbac;
