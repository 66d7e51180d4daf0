//! Tests of the status page in a real browser with a running cluster: the page shows the values of the API,
//! shows events without a reload, and performs changes.

#![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]
#![allow(clippy::print_stdout, reason = "what axe-core finds beside what fails is printed")]

mod fields;
mod following;
mod keyboard;
mod legible;
mod login;
mod names;
mod oidc;
mod overview;
mod pictures;
mod reference;
mod stage;
mod views;
mod writing;
