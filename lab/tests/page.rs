//! The status page in a real browser with a running cluster: it shows the values of the API, follows events,
//! and performs changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![allow(clippy::unwrap_in_result, reason = "a test fails by panicking, also in its helpers")]
#![allow(clippy::print_stdout, reason = "what axe-core finds beside what fails is printed")]

#[path = "page/fields.rs"]
mod fields;
#[path = "page/following.rs"]
mod following;
#[path = "page/keyboard.rs"]
mod keyboard;
#[path = "page/login.rs"]
mod login;
#[path = "page/pictures.rs"]
mod pictures;
#[path = "page/stage.rs"]
mod stage;
#[path = "page/views.rs"]
mod views;
#[path = "page/writing.rs"]
mod writing;
