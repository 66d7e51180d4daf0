//! Thread of the BGP speaker with a single-threaded tokio runtime, so that all sockets are created in the
//! network namespace of the thread.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

use super::hub::{self, HubStart};

pub(super) fn spawn(start: HubStart) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Builder::new().name("bgp".to_owned()).spawn(move || {
        runtime.block_on(hub::run(start));
        // The time for closing connections gracefully is over.
        runtime.shutdown_background();
    })
}
