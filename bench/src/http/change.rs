//! Time from the write of a changed route until it decides requests.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use lab::{cluster::deployment::Cluster, host::netns::Namespace};
use serde_json::json;

use super::{
    Options,
    contestant::HttpProxy,
    data::{CHANGING, changing},
};

/// Maximum time until a change is effective.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay between requests. Continuous requests would take CPU time from the servers.
const PAUSE: Duration = Duration::from_micros(200);
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Changes a route of the gateway with many routes. Returns the times in milliseconds from the start of the write until the first
/// response by the new route.
pub(super) fn measure(cluster: &Cluster, place: &Namespace, options: &Options) -> Result<Vec<f64>> {
    let connect = || TcpStream::connect(("127.0.0.1", HttpProxy::TidegateMany.port()));
    let mut stream = place.inside(connect).context("cannot connect")?;
    stream.set_read_timeout(Some(TIMEOUT)).context("cannot set the timeout")?;
    stream.set_nodelay(true).context("cannot set an option")?;
    let path = format!("/v1/namespaces/default/httproutes/{CHANGING}");
    let mut times = Vec::new();
    for change in 1..=options.changes {
        let body = json!({ "spec": changing(change) }).to_string();
        let headers = [("content-type", "application/merge-patch+json")];
        let begun = Instant::now();
        let effective = thread::scope(|scope| {
            let poller = scope.spawn(|| poll(&mut stream, change));
            cluster.api.send("PATCH", &path, &headers, body)?.success()?;
            poller.join().map_err(|_| anyhow!("the client panicked"))?
        })?;
        times.push(effective.duration_since(begun).as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Sends requests until one is redirected to the path of the change. Returns the time of that response.
fn poll(stream: &mut TcpStream, change: u16) -> Result<Instant> {
    let end = Instant::now() + PATIENCE;
    let expected = format!("/change-{change}\r\n");
    while Instant::now() < end {
        if request(stream, "changing.example.org", "/")?.contains(&expected) {
            return Ok(Instant::now());
        }
        thread::sleep(PAUSE);
    }
    bail!("the change is not effective after {PATIENCE:?}")
}

/// Sends a request over an open connection, and returns the head of the response.
pub(super) fn request(stream: &mut TcpStream, host: &str, path: &str) -> Result<String> {
    let text = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(text.as_bytes()).context("cannot send")?;
    let (mut response, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).context("no response")?;
        ensure!(count > 0, "the connection ended: {}", String::from_utf8_lossy(&response));
        response.extend(buffer.iter().take(count));
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if body.len() >= length_of(head)? {
            return Ok(format!("{head}\r\n"));
        }
    }
}

/// Returns the length of the body of a response; 0 without a header `content-length`.
fn length_of(head: &str) -> Result<usize> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().map_or(Ok(0), |(_, length)| length.trim().parse().context("a length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_body_is_read() {
        assert_eq!(length_of("HTTP/1.1 200 OK\r\nContent-Length: 65\r\na: b").unwrap(), 65);
        assert_eq!(length_of("HTTP/1.1 302 Found").unwrap(), 0);
        assert!(length_of("HTTP/1.1 200 OK\r\ncontent-length: x").is_err());
    }
}
