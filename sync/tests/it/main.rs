//! Integration tests of `tidegate-sync`; `support` and `cluster` are the support that the modules share.

mod cluster;
mod dns;
mod docker;
mod engine;
mod files;
mod kubernetes_end_to_end;
mod kubernetes_manifests;
mod kubernetes_translate;
mod kubernetes_watch;
mod support;
