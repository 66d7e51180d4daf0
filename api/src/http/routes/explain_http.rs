//! `GET /v1/explain/http`: decision of gateways for a request, computed from the state.

use std::{borrow::Cow, collections::BTreeSet, net::IpAddr, sync::Arc};

use axum::extract::State;
use http::{HeaderMap, HeaderName, Method, Uri};
use model::{
    http::{HttpExplanation, HttpState, RequestHead, explain_http, normalize_host},
    kinds::resource::Kind,
    primitives::quantity::{Port, Timestamp},
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{Verb, on},
};

/// Maximum length of a URL in bytes.
const URL_BYTES_MAX: usize = 8192;
/// Maximum length of all headers in bytes.
const HEADERS_BYTES_MAX: usize = 8192;
/// Port of a URL with the scheme `http` and no port.
const HTTP_PORT: u16 = 80;
/// Port of a URL with the scheme `https` and no port.
const HTTPS_PORT: u16 = 443;

/// Query of an explanation.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HttpQuery {
    /// URL of the request, with the scheme `http` or `https`. Its port is that of the listener. Default of the port: 80 or 443.
    #[param(min_length = 1, max_length = 8192, example = "https://www.example.org/api?a=b")]
    url: String,
    /// Method of the request. Default: GET.
    #[param(min_length = 1, max_length = 32, example = "GET")]
    method: Option<String>,
    /// Headers of the request, one `Name: value` per line. Default: none.
    #[param(max_length = 8192, example = "X-Canary: always")]
    headers: Option<String>,
    /// Address of the client, which the result contains as that of `X-Forwarded-For`. Default: unknown.
    #[param(value_type = Option<String>, example = "198.51.100.7")]
    from: Option<IpAddr>,
}

/// Registers the route that explains HTTP requests.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("explainHttp", "Cluster", "Explain the route of an HTTP request")
        .describe(
            "Computes the decision of gateways for a request from the state, with the function that gateways use: \
             listener, certificate, rule, filters, backends and endpoints, and for each other rule the reason why it \
             does not apply. No request is sent.",
        )
        .query::<HttpQuery>()
        .answer::<HttpExplanation>(200, "Returned with the explanation.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/explain/http")
            .on(HttpMethod::Get, on(Verb::Explain, Kind::Gateway), doc, explain)
            .done(),
    )
}

async fn explain(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<HttpQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let HttpQuery { url, method, headers, from } = query;
    let target = RequestTarget::parse(&url)?;
    let method = method.as_deref().unwrap_or("GET");
    if Method::from_bytes(method.as_bytes()).is_err() {
        return Err(Problem::bad_request("`method` must be the name of a method, such as GET"));
    }
    let fields = fields(headers.as_deref().unwrap_or_default())?;
    let header = |name: &str| {
        let mut values = fields.iter().filter(|(found, _)| found == name).map(|(_, value)| *value);
        let first = values.next()?;
        Some(values.fold(Cow::Borrowed(first), |all, next| Cow::Owned(format!("{all},{next}"))))
    };
    // Over TLS, gateways compare the host name of the request with the server name of the connection.
    let host = match header("host") {
        Some(host) => normalize_host(&host)
            .ok_or_else(|| Problem::bad_request("the header `Host` must be a host name"))?,
        None => target.host.clone(),
    };
    let head = RequestHead {
        port: target.port,
        server_name: target.is_tls.then_some(target.host.as_str()),
        method,
        host: &host,
        path: target.uri.path(),
        query: target.uri.query(),
        header: &header,
    };
    let state = HttpState::new(Arc::new(BTreeSet::new()), app.view().published().snapshot.clone());
    let mut explanation = explain_http(&state, &head, from);
    if let Some(problem) = certificate_problem(&state, &head, app.source.now()) {
        explanation.reason.push_str(&format!("; {problem}"));
    }
    Ok(render(form, &explanation))
}

/// Returns the reason for which clients reject the certificate of the connection; `None` if they accept it, or without one.
fn certificate_problem(state: &HttpState, head: &RequestHead<'_>, now: Timestamp) -> Option<String> {
    let (tls, name) = (&state.table().tls, head.server_name?);
    let key = tls.choose(head.port, name).ok()?;
    let problem = tls.certificates().get(key)?.problem(name, now)?;
    Some(format!("clients reject the connection: certificate {key} {problem}"))
}

/// Parts of the URL of the request to explain.
struct RequestTarget {
    uri: Uri,
    is_tls: bool,
    host: String,
    port: Port,
}

impl RequestTarget {
    fn parse(url: &str) -> Result<Self, Problem> {
        let malformed = || {
            Problem::bad_request(
                "`url` must be a URL with http or https, such as https://www.example.org/path",
            )
        };
        if url.len() > URL_BYTES_MAX {
            return Err(malformed());
        }
        let uri: Uri = url.parse().map_err(|_| malformed())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(malformed()),
        };
        let authority = uri.authority().ok_or_else(malformed)?;
        let host = normalize_host(authority.as_str()).ok_or_else(malformed)?;
        let default = if is_tls { HTTPS_PORT } else { HTTP_PORT };
        let port = Port::new(authority.port_u16().unwrap_or(default)).ok_or_else(malformed)?;
        Ok(Self { uri, is_tls, host, port })
    }
}

/// Parses headers, one in each line. Names are in lower case.
fn fields(text: &str) -> Result<Vec<(String, &str)>, Problem> {
    if text.len() > HEADERS_BYTES_MAX {
        return Err(Problem::bad_request(format!("`headers` must have at most {HEADERS_BYTES_MAX} bytes")));
    }
    let parse = |line| {
        let (name, value) = str::split_once(line, ':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name.as_str().to_owned(), value.trim()))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let all: Option<Vec<_>> = lines.map(parse).collect();
    all.ok_or_else(|| Problem::bad_request("`headers` must consist of lines `Name: value`"))
}
