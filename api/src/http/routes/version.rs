//! `GET /version`: version and build of this server.

use ::base::build;
use http::HeaderMap;
use serde::Serialize;
use utoipa::{ToSchema, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::Permission,
};

/// Version and build of the control server.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    /// Version of the control server.
    #[schema(value_type = String, example = "0.1.0")]
    version: &'static str,
    /// Commit from which the control server was built. Absent if the build did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    commit: Option<&'static str>,
    /// Date of this commit (RFC 3339). Absent if the build did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    date: Option<&'static str>,
    /// Target triple of the build. Absent if the build did not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "x86_64-unknown-linux-gnu")]
    target: Option<&'static str>,
}

/// Registers the route of the version.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readVersion", "Server", "Read the version of the server")
        .describe(
            "Returns version, commit, date and target of this control server. Does not access the store.",
        )
        .answer::<ServerVersion>(200, "Returned with version and build.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(Route::at("/version").on(HttpMethod::Get, Permission::Known, doc, read).done())
}

async fn read(ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let (version, commit, date, target) = (build::VERSION, build::COMMIT, build::DATE, build::TARGET);
    Ok(render(form, &ServerVersion { version, commit, date, target }))
}
