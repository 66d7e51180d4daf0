//! `GET /` and `GET /web/…`: static files of the status page. The files contain no cluster data; the page reads
//! the data from the API.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        assets::INDEX,
        error::{Answer, Code, Problem},
        negotiate::{self, Coding},
    },
    http::openapi::{Doc, Route, Routes},
    security::Permission,
};

/// `Cache-Control` value that makes browsers revalidate each file, so that a page never mixes files of two
/// versions.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// Icon of the status page. Browsers go by its media type, so that it need not be in the ICO format.
const ICON: &str = "style/mark.svg";

/// File of the page that displays the OpenAPI documents.
const REFERENCE: &str = "docs.html";

/// Registers the route `GET /`, the only route of the status page in the documented API.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readIndex", "Server", "Read the status page")
        .describe(
            "Returns the HTML of the status page. Its files are below `/web/`; its data comes from \
                   this API.",
        )
        .text(200, "Returned with the page.", "text/html")
        .empty(304, "Returned if the page matches `If-None-Match`.")
        .problems(&[Code::NotFound]);
    router.routes(Route::at("/").on(HttpMethod::Get, Permission::Open, doc, index).done())
}

/// Adds the routes of the page's files, which are not part of the documented API.
pub(super) fn serve(router: Router<Shared>) -> Router<Shared> {
    router.route("/web/{*file}", get(file)).route("/favicon.ico", get(icon))
}

async fn index(State(app): State<Shared>, headers: HeaderMap) -> Answer {
    answer(&app, INDEX, &headers).await
}

/// Returns the icon of the page, which browsers request by this path for responses that name none.
async fn icon(State(app): State<Shared>, headers: HeaderMap) -> Answer {
    answer(&app, ICON, &headers).await
}

/// Returns the page that displays the OpenAPI documents.
pub(super) async fn reference(State(app): State<Shared>, headers: HeaderMap) -> Answer {
    answer(&app, REFERENCE, &headers).await
}

async fn file(State(app): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    answer(&app, &name, &headers).await
}

async fn answer(app: &Shared, name: &str, headers: &HeaderMap) -> Answer {
    let (assets, wanted) = (app.assets.clone(), name.to_owned());
    // The first request of a file compresses it.
    let found = tokio::task::spawn_blocking(move || assets.get(&wanted)).await.unwrap_or_default();
    let asset = found.ok_or_else(|| Problem::of_status(StatusCode::NOT_FOUND, &format!("/web/{name}")))?;
    let (coding, bytes) = asset.form(|coding| negotiate::accepts(headers, coding));
    let tag = asset.tag(coding);
    let mut response = if is_known(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        whole(bytes.clone(), asset.content_type, coding)
    };
    let own = response.headers_mut();
    own.insert(header::ETAG, tag);
    own.insert(header::CACHE_CONTROL, REVALIDATE);
    own.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(response)
}

/// Returns true if the client already has this version of the file (RFC 9110, 13.1.2: weak comparison).
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let tag = tag.to_str().unwrap_or_default();
    let given = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut given = given.flat_map(|text| text.split(',')).map(str::trim);
    given.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

fn whole(bytes: Bytes, content_type: &'static str, coding: Coding) -> Response {
    let mut response = Body::from(bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    match coding {
        Coding::Identity => {}
        Coding::Gzip | Coding::Brotli => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
        }
    }
    response
}
