//! `GET /v1/dns/keys`: keys of DnsZones with their secrets, for DNS servers.

use axum::extract::State;
use http::HeaderMap;
use model::wire::dns_keys::DnsKeyList;
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Permission, Subject, Verb},
};

/// Registers the route of the keys.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listDnsKeys", "Cluster", "List the keys of DNS zones")
        .describe(
            "Returns the keys in `spec.keys` of all DnsZones with their secrets, which no other response contains. \
             DNS servers need them to verify the signatures of zone transfers and updates. Of the built-in roles, \
             `dns-server` and `admin` have the permission.",
        )
        .answer::<DnsKeyList>(200, "Returned with the keys and their secrets.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/dns/keys")
            .on(HttpMethod::Get, Permission::On(Verb::Get, Subject::DnsKey), doc, list)
            .done(),
    )
}

async fn list(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &DnsKeyList::of(&app.view().published().snapshot)))
}
