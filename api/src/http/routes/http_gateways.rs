//! `PUT /v1/http/gateways/{gateway}/report` and `GET /v1/http/gateways`: reports of the gateways.

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode};
use model::{
    observed::http_gateways::GatewayReportError,
    primitives::name::Name,
    wire::http_gateway::{
        GATEWAY_CERTIFICATES_MISSING_MAX, GATEWAY_CODES_MAX, GATEWAY_ERROR_BYTES_MAX, GATEWAY_SOCKETS_MAX,
        GATEWAY_VERSION_BYTES_MAX, GATEWAYS_SERVED_MAX, HttpGatewayList, HttpGatewayReport,
    },
};
use serde::Deserialize;
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{Caller, Permission, Subject, Verb},
};

/// Path parameter of a report.
#[derive(Debug, Deserialize)]
struct HttpGatewayPath {
    gateway: Name,
}

/// Registers the routes of the gateways.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("replaceHttpGatewayReport", "Cluster", "Replace the report of a gateway")
        .describe(
            "Replaces the report of a gateway on this control server. `tidegate-gateway` sends a report to every control \
             server every 5 seconds. While a gateway reports, a report for its name by another identity, or by a process that \
             started earlier, is rejected. Reports are kept in memory. Of the built-in roles, `gateway` and `admin` have the \
             permission.",
        )
        .named("gateway", "Name of the gateway.")
        .body::<HttpGatewayReport>(&OBJECT_TYPES, "Complete report of the gateway.")
        .empty(204, "Returned if the report was accepted.")
        .problems(&[Code::Forbidden, Code::Invalid, Code::TooManyRequests]);
    let permission = Permission::On(Verb::Update, Subject::HttpGateway);
    let report = Route::at("/v1/http/gateways/{gateway}/report").on(HttpMethod::Put, permission, doc, report);
    let doc = Doc::new("listHttpGateways", "Cluster", "List the gateways")
        .describe(
            "Returns the gateways (processes of `tidegate-gateway`) that have reported to this control server within the \
             last hour, with their sockets, certificates, requests and problems.",
        )
        .answer::<HttpGatewayList>(200, "Returned with the gateways.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let permission = Permission::On(Verb::List, Subject::HttpGateway);
    let list = Route::at("/v1/http/gateways").on(HttpMethod::Get, permission, doc, list);
    router.routes(report.done()).routes(list.done())
}

async fn report(
    State(app): State<Shared>,
    ApiPath(HttpGatewayPath { gateway }): ApiPath<HttpGatewayPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    caller: Caller,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let report: HttpGatewayReport = body::typed(&value)?;
    check(&report)?;
    let author = caller.origin().author;
    app.observations.apply_gateway(gateway, &author, report, app.source.now()).map_err(|error| {
        let code = match error {
            GatewayReportError::Foreign => Code::Forbidden,
            GatewayReportError::TooMany => Code::TooManyRequests,
        };
        Problem::new(code, error.to_string())
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &app.observations.list_gateways(app.source.now())))
}

/// Returns an error if a report exceeds the limits of the schema.
fn check(report: &HttpGatewayReport) -> Result<(), Problem> {
    let HttpGatewayReport {
        version,
        started_at: _,
        stopping: _,
        connected: _,
        revision: _,
        serves,
        sockets,
        certificates: _,
        certificates_missing,
        connections: _,
        requests,
    } = report;
    let errors = sockets.iter().filter_map(|socket| socket.error.as_ref());
    let limits = [
        ("/version", version.len(), GATEWAY_VERSION_BYTES_MAX),
        ("/serves", serves.len(), GATEWAYS_SERVED_MAX),
        ("/sockets", sockets.len(), GATEWAY_SOCKETS_MAX),
        ("/sockets/*/error", errors.map(String::len).max().unwrap_or(0), GATEWAY_ERROR_BYTES_MAX),
        ("/certificatesMissing", certificates_missing.len(), GATEWAY_CERTIFICATES_MISSING_MAX),
        ("/requests/codes", requests.codes.len(), GATEWAY_CODES_MAX),
    ];
    body::within(limits)
}
