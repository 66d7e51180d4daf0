//! Content negotiation (RFC 9110 §12.5.1): JSON unless the client prefers another supported media type.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;

use crate::base::error::{Code, Problem};

/// Media type of a response that is not a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `application/json`, the default.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// Media type of a stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamForm {
    /// One JSON object per line.
    Ndjson,
    /// Stream of server-sent events (`text/event-stream`).
    Sse,
}

/// Content coding of a response (RFC 9110, 8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// The body is sent without compression.
    Identity,
    /// The body is compressed with gzip (RFC 1952).
    Gzip,
    /// The body is compressed with Brotli (RFC 7932).
    Brotli,
}

impl Coding {
    /// Returns the coding's name for `Content-Encoding`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }
}

/// Selects the media type of a response that is not a stream, by `Accept`. Returns a problem if the client accepts
/// none.
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Problem> {
    choose(
        headers,
        &[
            ("application/json", Form::Json),
            ("application/yaml", Form::Yaml),
            ("application/x-yaml", Form::Yaml),
            ("text/yaml", Form::Yaml),
        ],
    )
}

/// Selects the stream format by `Accept`. Returns a problem if the client accepts none of the formats.
pub(crate) fn stream_form(headers: &HeaderMap) -> Result<StreamForm, Problem> {
    choose(
        headers,
        &[
            ("application/x-ndjson", StreamForm::Ndjson),
            ("text/event-stream", StreamForm::Sse),
            ("application/json", StreamForm::Ndjson),
        ],
    )
}

/// Creates a response with the value serialized in the selected media type.
pub(crate) fn render(form: Form, value: &impl Serialize) -> Response {
    let (content_type, text) = match form {
        Form::Json => ("application/json", serde_json::to_string(value).map_err(|error| error.to_string())),
        Form::Yaml => ("application/yaml", serde_saphyr::to_string(value).map_err(|error| error.to_string())),
    };
    match text {
        Ok(text) => {
            let mut response = Body::from(text).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
            response
        }
        Err(error) => {
            tracing::error!(error, "cannot serialize a response");
            Problem::new(Code::Internal, "the response cannot be rendered in this media type").into_response()
        }
    }
}

/// Returns true if `Accept-Encoding` permits gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    accepts(headers, Coding::Gzip)
}

/// Returns true if `Accept-Encoding` names the content coding with a quality above 0; `*` does not count.
pub(crate) fn accepts(headers: &HeaderMap, coding: Coding) -> bool {
    let ranges = ranges(headers, &header::ACCEPT_ENCODING);
    ranges.iter().any(|(name, quality)| name == coding.as_str() && *quality > 0)
}

/// Selects from `offers` (media types with their values) the value of the media type with the highest quality
/// in `Accept`; of several with equal quality, the first. Without the header, this is the first offer.
/// Returns a problem if the client accepts none of the media types.
fn choose<T: Copy>(headers: &HeaderMap, offers: &[(&'static str, T)]) -> Result<T, Problem> {
    let wanted = ranges(headers, &header::ACCEPT);
    if wanted.is_empty() {
        return Ok(offers[0].1);
    }
    let quality = |offer: &str| {
        let family = offer.split('/').next().unwrap_or_default();
        let of = |name: &str| wanted.iter().find(|(range, _)| range == name).map(|(_, quality)| *quality);
        of(offer).or_else(|| of(&format!("{family}/*"))).or_else(|| of("*/*")).unwrap_or(0)
    };
    let best =
        offers.iter().rev().max_by_key(|(name, _)| quality(name)).filter(|(name, _)| quality(name) > 0);
    best.map(|(_, form)| *form).ok_or_else(|| {
        let names: Vec<_> = offers.iter().map(|(name, _)| *name).collect();
        Problem::new(Code::NotAcceptable, format!("`Accept` must allow one of {}", names.join(", ")))
    })
}

/// Returns the elements of an `Accept…` header, each with its quality in thousandths. Header values that are
/// not ASCII are skipped. A malformed quality counts as 1, or as 0 if it begins with `0.`.
fn ranges(headers: &HeaderMap, name: &http::HeaderName) -> Vec<(String, u16)> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let parts = texts.flat_map(|text| text.split(',')).filter(|part| !part.trim().is_empty());
    parts
        .map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            let range = pieces.next().unwrap_or_default().to_ascii_lowercase();
            let quality =
                pieces.find_map(|piece| piece.strip_prefix("q=").or_else(|| piece.strip_prefix("Q=")));
            (range, quality.map_or(1000, thousandths))
        })
        .collect()
}

fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{fraction:0<3}");
    let fraction: u16 = digits.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if whole == "0" { fraction } else { 1000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_for(accept: &str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        form(&headers).ok()
    }

    #[test]
    fn json_is_the_default_and_quality_decides() {
        assert_eq!(form(&HeaderMap::new()).ok(), Some(Form::Json));
        assert_eq!(form_for("*/*"), Some(Form::Json));
        assert_eq!(form_for("application/*;q=0.1"), Some(Form::Json));
        assert_eq!(form_for("application/yaml"), Some(Form::Yaml));
        assert_eq!(form_for("application/json;q=0.5, application/yaml;q=0.9"), Some(Form::Yaml));
        assert_eq!(form_for("text/html,*/*;q=0.8"), Some(Form::Json));
        assert_eq!(form_for("image/png"), None);
        assert_eq!(form_for("application/json;q=0"), None);
    }
}
