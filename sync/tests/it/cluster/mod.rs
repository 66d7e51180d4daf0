//! Test support for the Kubernetes adapter.

pub(crate) mod apiserver;
pub(crate) mod rbac;
