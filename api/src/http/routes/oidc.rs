//! `GET /v1/oidc`: issuer and client of OpenID Connect, for programs that log users in.

use axum::extract::State;
use http::HeaderMap;
use serde::Serialize;
use utoipa::{ToSchema, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::CredentialState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::Permission,
};

/// Settings of OpenID Connect that a program needs to log a user in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Oidc)]
struct OidcView {
    /// Issuer whose ID tokens the server accepts as bearer tokens.
    #[schema(example = "https://id.example.org/realms/ops")]
    issuer: String,
    /// Client that the ID tokens must be issued to.
    #[schema(example = "tidegate")]
    client_id: String,
}

/// Registers the route of OpenID Connect.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readOidc", "Security", "Read the settings of OpenID Connect")
        .describe(
            "Returns the issuer whose ID tokens the server accepts as bearer tokens, and the client that they must be issued \
             to. Needs no authentication.",
        )
        .answer::<OidcView>(200, "Returned with issuer and client.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    router.routes(Route::at("/v1/oidc").on(HttpMethod::Get, Permission::Open, doc, read).done())
}

async fn read(
    State(state): State<CredentialState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let oidc = state.authenticator.oidc().ok_or_else(|| {
        Problem::new(Code::NotFound, "the server accepts no ID tokens")
            .hint("start the control server with --oidc-issuer, or log in with a token")
    })?;
    let settings = oidc.settings();
    let view = OidcView { issuer: settings.issuer.clone(), client_id: settings.client_id.clone() };
    Ok(render(form, &view))
}
