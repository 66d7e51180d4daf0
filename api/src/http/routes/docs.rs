//! The document, and a page to try it from. No asset comes from outside.

use axum::{Router, response::IntoResponse, routing::get};
use http::{HeaderValue, header};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::Shared;

/// Where the document is.
const DOCUMENT: &str = "/openapi.json";

/// The document as it is checked in, which a test holds to be what the code gives. To make it of the code takes 56 MiB and is the
/// same each time, so no server does.
const CHECKED_IN: &str = include_str!("../../../../openapi/tidegate-v1.json");

/// Adds the document itself and the page that shows it.
pub(super) fn serve(router: Router<Shared>, _: OpenApi) -> Router<Shared> {
    let document = get(async || {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], CHECKED_IN).into_response()
    });
    let config = Config::new([Url::new("Tidegate", DOCUMENT)]);
    let ui = SwaggerUi::new("/docs").config(config);
    router.route(DOCUMENT, document).merge(Router::from(ui))
}
