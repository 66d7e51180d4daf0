//! What tests of the Kubernetes adapter share.

pub(crate) mod apiserver;
pub(crate) mod rbac;
