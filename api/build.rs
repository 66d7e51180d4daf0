//! Makes Cargo rebuild release binaries when a file of the status page changes, is added or is removed.
//!
//! Debug builds read the page from disk at run time, so a change of the page needs no rebuild.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rerun-if-changed=../web");
    }
}
