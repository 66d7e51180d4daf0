//! Time from the write of a changed endpoint until `tidegate-dns` has it in its answers.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use lab::{cluster::deployment::Cluster, host::netns::Namespace};
use serde_json::json;

use super::{Options, contestant::NameServer, data::NameKind};

/// Maximum time until a change is in an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay between questions. Continuous questions would take CPU time from the servers.
const PAUSE: Duration = Duration::from_micros(200);
/// Timeout of one question.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Changes the endpoint of a headless Service. Returns the times in milliseconds from the start of the write until the
/// first answer with the new address.
pub(super) fn measure(cluster: &Cluster, place: &Namespace, options: &Options) -> Result<Vec<f64>> {
    let name = options.names.names(NameKind::Headless).pop().context("there is a headless Service")?;
    let set = name.split('.').next().context("a name has a label")?;
    let path = format!("/v1/namespaces/default/endpointsets/{set}");
    let socket = place.inside(|| UdpSocket::bind("127.0.0.1:0")).context("cannot create a socket")?;
    socket.connect(("127.0.0.1", NameServer::Tidegate.port())).context("cannot connect the socket")?;
    socket.set_read_timeout(Some(TIMEOUT)).context("cannot set the timeout")?;
    let question = question(&name);
    let mut times = Vec::new();
    for change in 0..options.changes {
        let [high, low] = change.to_be_bytes();
        let address = Ipv4Addr::new(10, 127, high, low);
        let body = json!({ "spec": { "endpoints": [{ "address": address }] } }).to_string();
        let headers = [("content-type", "application/merge-patch+json")];
        let start = Instant::now();
        let answered = thread::scope(|scope| {
            let poller = scope.spawn(|| poll(&socket, &question, address));
            cluster.api.send("PATCH", &path, &headers, body)?.success()?;
            poller.join().map_err(|_| anyhow!("the client panicked"))?
        })?;
        times.push(answered.duration_since(start).as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Asks until the answer has the address. Returns the time of that answer.
fn poll(socket: &UdpSocket, question: &[u8], address: Ipv4Addr) -> Result<Instant> {
    let end = Instant::now() + PATIENCE;
    let mut answer = [0; 512];
    while Instant::now() < end {
        socket.send(question).context("cannot ask")?;
        let size = match socket.recv(&mut answer) {
            Ok(size) => size,
            // A busy machine delays an answer, or drops it; the next question shows the change too.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error).context("no answer"),
        };
        // The address is the end of the only record.
        if answer.get(..size).is_some_and(|answer| answer.ends_with(&address.octets())) {
            return Ok(Instant::now());
        }
        thread::sleep(PAUSE);
    }
    bail!("the change is not in an answer after {PATIENCE:?}")
}

/// Encodes a question for the IPv4 address of a name, without EDNS (RFC 1035 §4.1).
fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}
