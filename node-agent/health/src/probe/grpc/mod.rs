//! Probe by the gRPC health checking protocol: `grpc.health.v1.Health/Check` must return SERVING.

pub(super) mod wire;

use std::pin::pin;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, StatusCode, Uri, Version,
    body::Incoming,
    client::conn::http2,
    header::{CONTENT_TYPE, TE, USER_AGENT},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use self::wire::ServingStatus;
use super::http::{AGENT, name, words_of};
use crate::verdict::{Outcome, Verdict};

/// Path of the HTTP/2 request, which names the gRPC method.
const PATH: &str = "/grpc.health.v1.Health/Check";
/// Maximum size of a response in bytes; a regular response has seven bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// HTTP/2 flow control window in bytes: the initial value defined by the protocol (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;
/// Maximum size of response headers in bytes.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Sends the request and returns the verdict on the response. The connection is closed afterwards.
pub(super) async fn ask<S>(stream: S, service: &str, scheme: &str, authority: &str) -> Verdict
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(request) = request(service, scheme, authority) else {
        return Verdict::new(Outcome::NotAsked, "the request cannot be made");
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX);
    let (mut sender, connection) = match builder.handshake(TokioIo::new(stream)).await {
        Ok(both) => both,
        Err(error) => return words_of(&error),
    };
    let mut exchange = pin!(async {
        match sender.send_request(request).await {
            Ok(response) => judge(response).await,
            Err(error) => words_of(&error),
        }
    });
    tokio::select! {
        biased;
        verdict = &mut exchange => verdict,
        ended = connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => words_of(&error),
        },
    }
}

fn request(service: &str, scheme: &str, authority: &str) -> Option<hyper::Request<Full<Bytes>>> {
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(PATH).build().ok()?;
    let request = hyper::Request::post(uri)
        .version(Version::HTTP_2)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, AGENT);
    request.body(Full::new(wire::render_request(service).into())).ok()
}

async fn judge(response: hyper::Response<Incoming>) -> Verdict {
    let status = response.status();
    if status != StatusCode::OK {
        return Verdict::new(Outcome::WrongAnswer, format!("answered {}", name(status)));
    }
    // A response without a message has its status in the headers.
    if let Some(verdict) = refusal(response.headers()) {
        return verdict;
    }
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return words_of(&error),
        };
        if let Some(verdict) = frame.trailers_ref().and_then(refusal) {
            return verdict;
        }
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > ANSWER_BYTES_MAX {
            return Verdict::new(Outcome::WrongAnswer, "answered too much for the gRPC health protocol");
        }
        bytes.extend_from_slice(&data);
    }
    match wire::parse_response(&bytes) {
        Ok(ServingStatus::Serving) => Verdict::new(Outcome::Good, "answered SERVING"),
        Ok(ServingStatus::NotServing) => Verdict::new(Outcome::WrongAnswer, "answered NOT_SERVING"),
        Ok(ServingStatus::ServiceUnknown) => Verdict::new(Outcome::WrongAnswer, "answered SERVICE_UNKNOWN"),
        Ok(ServingStatus::Unknown) => Verdict::new(Outcome::WrongAnswer, "answered UNKNOWN"),
        Ok(ServingStatus::Other(number)) => {
            Verdict::new(Outcome::WrongAnswer, format!("answered the unknown status {number}"))
        }
        Err(fault) => Verdict::new(Outcome::WrongAnswer, format!("answered no health message: {fault}")),
    }
}

/// Returns the verdict for a gRPC status other than OK; `None` if the status is OK or absent.
fn refusal(headers: &HeaderMap) -> Option<Verdict> {
    let status = headers.get("grpc-status")?;
    let words = match status.as_bytes() {
        b"0" => return None,
        b"5" => "does not know the service (NOT_FOUND)".to_owned(),
        b"12" => "does not speak the health protocol (UNIMPLEMENTED)".to_owned(),
        b"14" => "answered UNAVAILABLE".to_owned(),
        other => format!("answered with the gRPC status {}", String::from_utf8_lossy(other)),
    };
    Some(Verdict::new(Outcome::WrongAnswer, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_its_authority() {
        for authority in ["10.0.0.1:50051", "[fd00::1]:50051", "web.example"] {
            let request = request("db", "http", authority).unwrap();
            assert_eq!(request.uri().to_string(), format!("http://{authority}/grpc.health.v1.Health/Check"));
        }
    }

    #[test]
    fn only_the_status_ok_goes_on() {
        let of = |status: &'static str| {
            refusal(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]))
        };
        assert_eq!(refusal(&HeaderMap::new()), None);
        assert_eq!(of("0"), None);
        assert_eq!(of("5").unwrap().words, "does not know the service (NOT_FOUND)");
        assert_eq!(of("x").unwrap().words, "answered with the gRPC status x");
    }
}
