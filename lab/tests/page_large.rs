//! The page on a large cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![allow(clippy::print_stdout, reason = "what was measured is printed, never asserted")]

use lab::herd::{Large, Options};

#[test]
fn large() {
    let large = Large::start(Options::default()).unwrap();
    println!("{:?}", large.times);
    println!("{:#}", large.api.get_json("/v1/status").unwrap()["nodes"]);
}
