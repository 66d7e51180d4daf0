//! OpenAPI document, and a page that displays the document and sends requests. The page loads no files from
//! other hosts.

use axum::{Router, response::IntoResponse, routing::get};
use http::{HeaderValue, header};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::Shared;

/// Path of the OpenAPI document.
const DOCUMENT: &str = "/openapi.json";

/// OpenAPI document as checked in; a test verifies that it matches the code. Servers do not generate it, because
/// that takes 56 MiB of memory and always gives the same result.
const CHECKED_IN: &str = include_str!("../../../../openapi/tidegate-v1.json");

/// Adds the routes of the OpenAPI document and of the page that displays it.
pub(super) fn serve(router: Router<Shared>, _: OpenApi) -> Router<Shared> {
    let document = get(async || {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], CHECKED_IN).into_response()
    });
    let config = Config::new([Url::new("Tidegate", DOCUMENT)]);
    let ui = SwaggerUi::new("/docs").config(config);
    router.route(DOCUMENT, document).merge(Router::from(ui))
}
