//! The document, and a page to try it from. No asset comes from outside.

use std::sync::Arc;

use axum::{Router, response::IntoResponse, routing::get};
use http::{HeaderValue, header};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::Shared;
use crate::openapi;

/// Where the document is.
const DOCUMENT: &str = "/openapi.json";

/// Adds the document itself and the page that shows it.
pub(super) fn serve(router: Router<Shared>, _: OpenApi) -> Router<Shared> {
    let text: Arc<str> = openapi::document().into();
    let document = get(move || {
        let text = text.to_string();
        async move {
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
        }
    });
    let config = Config::new([Url::new("Tidegate", DOCUMENT)]);
    let ui = SwaggerUi::new("/docs").config(config);
    router.route(DOCUMENT, document).merge(Router::from(ui))
}
