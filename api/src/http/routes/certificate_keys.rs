//! `GET /v1/http/keys`: Certificates of Gateways with their private keys, for gateways.

use axum::extract::State;
use http::HeaderMap;
use model::{http::HttpObjectKey, wire::certificate_keys::CertificateKeyList};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{Caller, Permission, Subject, Verb},
};

/// Query of the certificates.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeyQuery {
    /// Gateways whose certificates are returned, as NAMESPACE/NAME separated by commas. Default: all Gateways.
    #[param(max_length = 8192, example = "shop/edge")]
    gateways: Option<String>,
}

/// Registers the route of the certificates.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listCertificateKeys", "Cluster", "List the certificates of gateways with their keys")
        .describe(
            "Returns the Certificates that listeners of Gateways name with their private keys, which no other \
             response contains. Gateways need them to terminate TLS. Certificates in namespaces for which the caller \
             lacks the permission are left out. Of the built-in roles, `gateway` and `admin` have the permission.",
        )
        .query::<KeyQuery>()
        .answer::<CertificateKeyList>(
            200,
            "Returned with the certificates and their private keys.",
            &OBJECT_TYPES,
            &[],
        )
        .problems(&[Code::NotAcceptable]);
    let permission = Permission::Each(Verb::Get, Some(Subject::CertificateKey));
    router.routes(Route::at("/v1/http/keys").on(HttpMethod::Get, permission, doc, list).done())
}

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<KeyQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let served = query.gateways.as_deref().map(parse).transpose()?;
    let access = caller.access();
    let list = CertificateKeyList::of(&app.view().published().snapshot, |namespace, name| {
        let is_served =
            |all: &Vec<HttpObjectKey>| all.iter().any(|key| key.namespace == *namespace && key.name == *name);
        served.as_ref().is_none_or(is_served)
            && access.may(Verb::Get, Subject::CertificateKey, Some(namespace))
    });
    Ok(render(form, &list))
}

fn parse(text: &str) -> Result<Vec<HttpObjectKey>, Problem> {
    let parsed: Result<_, _> = text.split(',').map(str::parse).collect();
    parsed.map_err(|message| Problem::bad_request(format!("each entry of `gateways` {message}")))
}
