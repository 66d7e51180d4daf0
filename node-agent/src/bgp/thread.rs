//! The thread, with a runtime of its own: its sockets are all made in the network namespace that it was born in.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

use super::hub::{self, Start};

pub(super) fn spawn(start: Start) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Builder::new().name("bgp".to_owned()).spawn(move || {
        runtime.block_on(hub::run(start));
        // Connections that are still being closed have had their time.
        runtime.shutdown_background();
    })
}
