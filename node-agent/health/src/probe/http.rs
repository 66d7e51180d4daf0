//! HTTP/1.1 probe. Redirects are not followed; the status code of the redirect response is the result.

use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Method, StatusCode, Uri,
    body::Incoming,
    client::conn::http1,
    header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use model::kinds::health_check::{HttpCheck, HttpMethod};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::verdict::{Outcome, Verdict};

/// Maximum number of bytes of the body in which the expected text is searched; stated in the documentation of
/// `expectBody`.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Maximum size of the read buffer in bytes. A response with larger headers counts as unexpected.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Status codes that count as success unless the check configures a different range.
const GOOD: std::ops::RangeInclusive<u16> = 200..=399;
/// Value of the `User-Agent` header in probe requests.
pub(super) const AGENT: &str = concat!("tidegate-health-check/", env!("CARGO_PKG_VERSION"));

/// HTTP request of a health check, and the response that the check expects.
pub(super) struct Request {
    check: HttpCheck,
    uri: Uri,
}

impl Request {
    /// Prepares the request of a check.
    ///
    /// # Errors
    /// Returns a message if the path is invalid.
    pub(super) fn new(check: HttpCheck) -> Result<Self, String> {
        let uri: Uri = check.path.parse().map_err(|error| format!("the path is invalid: {error}"))?;
        if uri.authority().is_some() || !check.path.starts_with('/') {
            return Err("the path must not contain a host".to_owned());
        }
        Ok(Self { check, uri })
    }

    /// Sends the request and returns the verdict on the response. The connection is closed afterwards.
    pub(super) async fn ask<S>(&self, stream: S, host: &str) -> Verdict
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(request) = self.request(host) else {
            return Verdict::new(Outcome::NotAsked, "the request cannot be made");
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES_MAX);
        let (mut sender, connection) = match builder.handshake(TokioIo::new(stream)).await {
            Ok(both) => both,
            Err(error) => return words_of(&error),
        };
        let mut exchange = pin!(async {
            match sender.send_request(request).await {
                Ok(response) => self.judge(response).await,
                Err(error) => words_of(&error),
            }
        });
        tokio::select! {
            biased;
            verdict = &mut exchange => verdict,
            // The connection has ended with all bytes read, so the exchange completes.
            _ended = connection => exchange.await,
        }
    }

    fn request(&self, host: &str) -> Option<hyper::Request<Empty<Bytes>>> {
        let method = match self.check.method {
            HttpMethod::Get => Method::GET,
            HttpMethod::Head => Method::HEAD,
            HttpMethod::Options => Method::OPTIONS,
        };
        let request = hyper::Request::builder()
            .method(method)
            .uri(self.uri.clone())
            .header(HOST, HeaderValue::from_str(host).ok()?)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, "*/*")
            .header(CONNECTION, "close");
        request.body(Empty::new()).ok()
    }

    async fn judge(&self, response: hyper::Response<Incoming>) -> Verdict {
        let status = response.status();
        let HttpCheck { method: _, path: _, host: _, expect_status, expect_body } = &self.check;
        let code = status.as_u16();
        let is_good =
            if expect_status.is_empty() { GOOD.contains(&code) } else { expect_status.contains(&code) };
        let words = format!("answered {}", name(status));
        if !is_good {
            return Verdict::new(Outcome::WrongAnswer, words);
        }
        let Some(expect) = expect_body else { return Verdict::new(Outcome::Good, words) };
        match read(response.into_body()).await {
            Ok(body) if String::from_utf8_lossy(&body).contains(expect.as_str()) => {
                Verdict::new(Outcome::Good, words)
            }
            Ok(_) => Verdict::new(Outcome::WrongAnswer, format!("{words} without the expected text")),
            Err(error) => words_of(&error),
        }
    }
}

/// Reads the beginning of a response body, up to [`BODY_BYTES_MAX`] bytes.
async fn read(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = BODY_BYTES_MAX - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if bytes.len() == BODY_BYTES_MAX {
            break;
        }
    }
    Ok(bytes)
}

/// Returns a status code with its standard reason phrase. The phrase sent by the server is not used.
pub(super) fn name(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// Returns the verdict for an HTTP error, or for the I/O error that caused it.
pub(super) fn words_of(error: &hyper::Error) -> Verdict {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if let Some(cause) = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()).next() {
        return Verdict::of_io(cause);
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Verdict::new(Outcome::Refused, "the connection was closed without an answer");
    }
    if error.is_parse() {
        return Verdict::new(Outcome::WrongAnswer, "answered something else than HTTP");
    }
    Verdict::new(Outcome::WrongAnswer, format!("failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str) -> Result<Request, String> {
        Request::new(HttpCheck { path: path.to_owned(), ..HttpCheck::default() })
    }

    #[test]
    fn a_path_is_never_another_host() {
        for path in ["http://169.254.169.254/", "example.com:80", "*", "", "relative"] {
            assert!(request(path).is_err(), "{path}");
        }
        for path in ["/", "/healthz?deep=1", "//169.254.169.254/latest", "/http://elsewhere/"] {
            let request = request(path).unwrap().request("web").unwrap();
            assert_eq!(request.uri().authority(), None, "{path}");
            assert_eq!(request.uri().to_string(), path);
            assert_eq!(request.headers()["host"], "web");
        }
    }
}
