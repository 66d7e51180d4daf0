//! The document, a page to try it from, and the page that says where to look. No asset comes from outside.

use std::sync::Arc;

use axum::{
    Router,
    response::{Html, IntoResponse},
    routing::get,
};
use http::{HeaderValue, header};
use utoipa::openapi::{HttpMethod, OpenApi};
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::Shared;
use crate::{
    openapi::{self, Doc, Route, Routes},
    security::Permission,
};

/// Where the document is.
const DOCUMENT: &str = "/openapi.json";
/// The page at `/`.
const INDEX: &str = include_str!("index.html");

/// Adds the documented route.
pub(super) fn add(router: Routes) -> Routes {
    let doc =
        Doc::new("index", "Server", "A page that says where to look.").text(200, "The page.", "text/html");
    router.routes(Route::at("/").on(HttpMethod::Get, Permission::Open, doc, index).done())
}

async fn index() -> Html<&'static str> {
    Html(INDEX)
}

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
