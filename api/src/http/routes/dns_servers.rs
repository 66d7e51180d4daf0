//! `PUT /v1/dns/servers/{server}/report` and `GET /v1/dns/servers`: reports of the DNS servers.

use std::sync::PoisonError;

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode};
use model::{
    observed::dns_servers::DnsReportError,
    primitives::name::Name,
    wire::dns_server::{
        DNS_INSTANCE_BYTES_MAX, DNS_NAMES_REPORTED_MAX, DNS_TEXT_BYTES_MAX, DNS_UPSTREAMS_REPORTED_MAX,
        DNS_VERSION_BYTES_MAX, DNS_ZONES_REPORTED_MAX, DnsServerList, DnsServerReport,
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
struct DnsServerPath {
    server: Name,
}

/// Registers the routes of the DNS servers.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("replaceDnsServerReport", "Cluster", "Replace the report of a DNS server")
        .describe(
            "Replaces the report of a DNS server on this control server. `tidegate-dns` sends a report to every control \
             server every 5 seconds. While a server reports, a report for its name by another identity is rejected, and one \
             by a process that began to report earlier. \
             Reports are kept in memory. Of the built-in roles, `dns-server` and `admin` have the permission.",
        )
        .named("server", "Name of the DNS server.")
        .body::<DnsServerReport>(&OBJECT_TYPES, "Complete report of the DNS server.")
        .empty(204, "Returned if the report was accepted.")
        .problems(&[Code::Forbidden, Code::Invalid, Code::TooManyRequests]);
    let permission = Permission::On(Verb::Update, Subject::DnsServer);
    let report = Route::at("/v1/dns/servers/{server}/report").on(HttpMethod::Put, permission, doc, report);
    let doc = Doc::new("listDnsServers", "Cluster", "List the DNS servers")
        .describe(
            "Returns the DNS servers that have reported to this control server within the last hour, with their zones, \
             upstream servers, busiest names and problems.",
        )
        .answer::<DnsServerList>(200, "Returned with the DNS servers.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let permission = Permission::On(Verb::List, Subject::DnsServer);
    let list = Route::at("/v1/dns/servers").on(HttpMethod::Get, permission, doc, list);
    router.routes(report.done()).routes(list.done())
}

async fn report(
    State(app): State<Shared>,
    ApiPath(DnsServerPath { server }): ApiPath<DnsServerPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    caller: Caller,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let report: DnsServerReport = body::typed(&value)?;
    check(&report)?;
    let author = caller.origin().author;
    // The table is consistent after each change.
    let mut servers = app.dns_servers.lock().unwrap_or_else(PoisonError::into_inner);
    let applied = servers.apply(server, &author, report, app.source.now());
    applied.map_err(|error| {
        let code = match error {
            DnsReportError::Foreign | DnsReportError::Contested => Code::Forbidden,
            DnsReportError::TooMany => Code::TooManyRequests,
        };
        Problem::new(code, error.to_string())
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let servers = app.dns_servers.lock().unwrap_or_else(PoisonError::into_inner).list(app.source.now());
    Ok(render(form, &servers))
}

/// Returns an error if a report exceeds the limits of the schema.
fn check(report: &DnsServerReport) -> Result<(), Problem> {
    let DnsServerReport { version, instance, connected: _, revision: _, zones, upstreams, cache: _, names } =
        report;
    let longest = |texts: &mut dyn Iterator<Item = &String>| texts.map(String::len).max().unwrap_or(0);
    let limits = [
        ("/version", version.len(), DNS_VERSION_BYTES_MAX),
        ("/instance", instance.len(), DNS_INSTANCE_BYTES_MAX),
        ("/zones", zones.len(), DNS_ZONES_REPORTED_MAX),
        ("/zones/*", longest(&mut zones.iter()), DNS_TEXT_BYTES_MAX),
        ("/upstreams", upstreams.len(), DNS_UPSTREAMS_REPORTED_MAX),
        ("/upstreams/*/server", longest(&mut upstreams.iter().map(|one| &one.server)), DNS_TEXT_BYTES_MAX),
        ("/names/names", names.names.len(), DNS_NAMES_REPORTED_MAX),
        ("/names/names/*/name", longest(&mut names.names.iter().map(|one| &one.name)), DNS_TEXT_BYTES_MAX),
    ];
    body::within(limits)
}
