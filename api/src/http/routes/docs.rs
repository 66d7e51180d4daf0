//! OpenAPI documents for users and for agents, and a page that displays them. The page loads no files from other
//! hosts.

use axum::{
    Router,
    response::{IntoResponse, Redirect},
    routing::get,
};
use http::{HeaderValue, header};

use super::{Shared, web};

/// Path of the page that displays the OpenAPI documents.
const PAGE: &str = "/docs/";
/// Path of the OpenAPI document for users.
const DOCUMENT: &str = "/openapi.json";
/// Second path of the OpenAPI document for users, next to the routes that it describes.
const DOCUMENT_OF_VERSION: &str = "/v1/openapi.json";
/// Path of the OpenAPI document for agents.
const AGENT_DOCUMENT: &str = "/openapi-agent.json";

/// OpenAPI document for users as checked in; a test verifies that it matches the code. Servers do not generate it,
/// because that takes 56 MiB of memory and always gives the same result.
const CHECKED_IN: &str = include_str!("../../../../openapi/tidegate-v1.json");
/// OpenAPI document for agents as checked in.
const AGENT_CHECKED_IN: &str = include_str!("../../../../openapi/tidegate-agent-v1.json");

/// Adds the routes of the OpenAPI documents and of the page that displays them.
pub(super) fn serve(router: Router<Shared>) -> Router<Shared> {
    let document = |text: &'static str| {
        get(move || async move {
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
        })
    };
    router
        .route(DOCUMENT, document(CHECKED_IN))
        .route(DOCUMENT_OF_VERSION, document(CHECKED_IN))
        .route(AGENT_DOCUMENT, document(AGENT_CHECKED_IN))
        .route("/docs", get(|| async { Redirect::permanent(PAGE) }))
        .route(PAGE, get(web::reference))
}
