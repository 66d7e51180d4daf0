//! Memory of a proxy for connections that have sent one request and wait.

use std::net::TcpStream;

use anyhow::{Context, Result};
use lab::host::netns::Namespace;

use super::{
    change::request,
    contestant::{HttpProxy, Proxies},
    data::{host, prefix},
    measured::IdleMemory,
};
use crate::usage::TreeUsage;

/// Opens connections, sends one request over each, and returns the memory that they take.
pub(super) fn measure(
    place: &Namespace,
    proxies: &Proxies,
    proxy: HttpProxy,
    count: u32,
) -> Result<IdleMemory> {
    let process = proxies.process(proxy);
    let before_kib = TreeUsage::of(process)?.memory_kib;
    let (host, path) = (host(0), format!("{}/page", prefix(0)));
    let connections = place.inside(|| {
        let all = (0..count).map(|number| -> Result<TcpStream> {
            let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
            request(&mut stream, &host, &path).with_context(|| format!("connection {number}"))?;
            Ok(stream)
        });
        all.collect::<Result<Vec<_>>>()
    });
    let connections = connections.with_context(|| format!("idle connections to {}", proxy.as_str()))?;
    let after_kib = TreeUsage::of(process)?.memory_kib;
    drop(connections);
    Ok(IdleMemory { proxy, connections: count, before_kib, after_kib })
}
