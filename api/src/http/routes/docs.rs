//! OpenAPI document and a page to try the API. No external assets.

use axum::{Router, response::IntoResponse, routing::get};
use http::{HeaderValue, header};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::Shared;

/// Path of the OpenAPI document.
const DOCUMENT: &str = "/openapi.json";

/// OpenAPI document as checked in; a test verifies that it matches the code. Generating it takes 56 MiB and
/// always gives the same result, so servers do not.
const CHECKED_IN: &str = include_str!("../../../../openapi/tidegate-v1.json");

/// Adds the document and the page that displays it.
pub(super) fn serve(router: Router<Shared>, _: OpenApi) -> Router<Shared> {
    let document = get(async || {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], CHECKED_IN).into_response()
    });
    let config = Config::new([Url::new("Tidegate", DOCUMENT)]);
    let ui = SwaggerUi::new("/docs").config(config);
    router.route(DOCUMENT, document).merge(Router::from(ui))
}
