//! Requests over open connections by `h2load`, and the evaluation of its output.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use lab::host::netns::Namespace;

use super::{
    Options,
    contestant::{HttpContest, Proxies},
    data::{HttpLoad, host, prefix},
    handshakes::{self, HandshakeKind},
    measured::HttpRound,
};
use crate::{statistics::figures::Summary, usage::TreeUsage};

/// Number of concurrent requests of an HTTP/2 connection.
const STREAMS: u32 = 8;

/// Evaluated output of a load generator.
#[derive(Debug, PartialEq)]
pub(super) struct HttpLoadResult {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) per_second: f64,
}

impl HttpContest {
    /// Measures a proxy for one round: as fast as possible, and then at half of that rate. Handshakes are measured in one part,
    /// in which each client connects again and again.
    pub(super) fn turn(
        &self,
        place: &Namespace,
        proxies: &Proxies,
        options: &Options,
        directory: &Path,
    ) -> Result<HttpRound> {
        let kind = match self.load {
            HttpLoad::Http1 | HttpLoad::Tls | HttpLoad::Http2 => None,
            HttpLoad::Handshake => Some(HandshakeKind::Full),
            HttpLoad::Resumption => Some(HandshakeKind::Resumed),
        };
        let process = proxies.process(self.proxy);
        let before = TreeUsage::of(process)?.processor_ns;
        let (fast, latencies) = match kind {
            Some(kind) => handshakes::connect(place, self, kind, options.slice)?,
            None => (self.request(place, directory, options, &[])?, Vec::new()),
        };
        let processor_ns = TreeUsage::of(process)?.processor_ns.saturating_sub(before);
        let (latencies, failed) = match kind {
            Some(_) => (latencies, fast.failed),
            None => {
                let file = directory.join("requests.log");
                // h2load appends.
                drop(fs::remove_file(&file));
                let rate = (fast.per_second / 2.0 / f64::from(options.clients)).ceil().max(1.0);
                let more = [format!("--rps={rate}"), format!("--log-file={}", file.display())];
                let steady = self.request(place, directory, options, &more)?;
                let log = fs::read_to_string(&file).context("h2load has written no log")?;
                (latencies_us(&log), fast.failed + steady.failed)
            }
        };
        Ok(HttpRound {
            per_second: fast.per_second,
            processor_us: processor_ns as f64 / 1e3 / fast.completed as f64,
            latency_us: Summary::of(latencies).context("no request was answered at half of the rate")?,
            failed,
        })
    }

    fn request(
        &self,
        place: &Namespace,
        directory: &Path,
        options: &Options,
        more: &[String],
    ) -> Result<HttpLoadResult> {
        let (is_tls, is_http2) = match self.load {
            HttpLoad::Http1 => (false, false),
            HttpLoad::Http2 => (true, true),
            HttpLoad::Tls | HttpLoad::Handshake | HttpLoad::Resumption => (true, false),
        };
        let (scheme, port) =
            if is_tls { ("https", self.proxy.tls_port()) } else { ("http", self.proxy.port()) };
        let host = host(self.route);
        let urls: String = (0..self.paths)
            .map(|number| format!("{scheme}://{host}:{port}{}/page\n", prefix(number)))
            .collect();
        let file = directory.join("urls");
        fs::write(&file, urls).context("cannot write the requests")?;
        let words = [
            format!("--connect-to=127.0.0.1:{port}"),
            format!("--input-file={}", file.display()),
            format!("--clients={}", options.clients),
            format!("--duration={}ms", options.slice.as_millis()),
            format!("--max-concurrent-streams={}", if is_http2 { STREAMS } else { 1 }),
        ];
        let protocol = (!is_http2).then(|| "--h1".to_owned());
        let words: Vec<_> = words.into_iter().chain(protocol).chain(more.iter().cloned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        evaluate(&place.run("h2load", &words)?)
    }
}

/// Reads the statistics of `h2load`.
fn evaluate(output: &str) -> Result<HttpLoadResult> {
    let line = |start: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(start));
        line.with_context(|| format!("`{start}` is missing in the output of h2load: {output}"))
    };
    let number = |text: &str, name: &str| -> Result<u64> {
        let part = text.split(',').find_map(|part| part.trim().strip_suffix(name));
        let part = part.with_context(|| format!("no `{name}` in the output of h2load: {output}"))?;
        part.trim().parse().with_context(|| format!("`{part}` is not a number"))
    };
    let rate = line("finished in ")?.split(", ").find_map(|part| part.strip_suffix(" req/s"));
    let per_second = rate.context("h2load printed no rate")?.parse().context("the rate is not a number")?;
    let requests = line("requests: ")?;
    let (completed, failed) = (number(requests, "succeeded")?, number(requests, "failed")?);
    let errors = number(requests, "errored")? + number(requests, "timeout")?;
    ensure!(completed > 0, "no request succeeded: {output}");
    let codes = number(line("status codes: ")?, "2xx")?;
    ensure!(codes >= completed, "{completed} requests, {codes} responses with 200: {output}");
    Ok(HttpLoadResult { completed, failed: failed + errors, per_second })
}

/// Reads the latencies in microseconds from lines with the start, the status code and the duration of each request.
fn latencies_us(log: &str) -> Vec<f64> {
    let lines = log.lines().filter_map(|line| {
        let mut columns = line.split('\t').skip(1);
        (columns.next()? == "200").then(|| columns.next()?.parse::<f64>().ok())?
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_h2load_is_evaluated() {
        let output = "finished in 2.00s, 1234.50 req/s, 8.12MB/s\nrequests: 90 total, 92 started, 90 done, 89 succeeded, 1 failed, \
                      2 errored, 3 timeout\nstatus codes: 89 2xx, 0 3xx, 0 4xx, 1 5xx\n";
        let expected = HttpLoadResult { completed: 89, failed: 6, per_second: 1234.5 };
        assert_eq!(evaluate(output).unwrap(), expected);
        assert!(evaluate(&output.replace("89 2xx", "5 2xx")).is_err());
        assert!(evaluate("").is_err());
        assert_eq!(latencies_us("1700000000000000\t200\t125\n1700000000000001\t503\t9\n"), [125.0]);
    }
}
