//! Has a release build made again when a file of the page comes or goes.
//!
//! In other builds the page is read from the disk while the server runs, so that changing it builds nothing.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rerun-if-changed=../web");
    }
}
