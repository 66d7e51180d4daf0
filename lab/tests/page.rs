//! The status page in a real browser against a running cluster: what it shows is what the API says, it follows what happens, and
//! what can be changed on it is changed.

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
