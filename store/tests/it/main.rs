//! Integration tests of the stores; `suite` is the support that all modules share.

mod backup;
mod conformance;
mod crash;
mod etcd;
mod etcd_tls;
mod model;
mod sqlite;
mod suite;
