//! `/v1/session`: login and logout of the status page. A token is sent once and exchanged for a cookie that
//! scripts cannot read. `/v1/page`: settings of the page.

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, header};
use model::primitives::{quantity::Timestamp, secret::Secret};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        config::page::PageLink,
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Access, Caller, Identity, Permission, authenticator::Login},
};

/// Request to log in to the status page.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SessionBody {
    /// Text of the token by which the user logs in.
    #[schema(value_type = String, write_only, max_length = 256)]
    token: Secret,
}

/// Login state of the caller.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
struct SessionView {
    /// True if the caller is authenticated.
    authenticated: bool,
    /// True if the server requires authentication.
    security_enabled: bool,
    /// True if the status page is read-only.
    read_only: bool,
    /// True if authentication is disabled although other machines can reach the server: every client has all
    /// permissions.
    insecure: bool,
    /// Identity of the caller, as text.
    #[schema(example = "token ci")]
    who: String,
    /// Latest end of the session (RFC 3339, UTC). The session ends earlier after one hour without a request.
    /// Absent if the caller has no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
    /// Login at the issuer of OpenID Connect. Absent if users log in with a token only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    issuer_login: Option<IssuerLogin>,
}

/// Login to the status page at the issuer of OpenID Connect.
#[derive(Debug, Serialize, ToSchema)]
struct IssuerLogin {
    /// Host of the issuer, for the label of the link.
    #[schema(example = "id.example.org")]
    host: String,
    /// URL at which a browser begins the login.
    #[schema(example = "https://control.example.org:7440/v1/session/oidc")]
    url: String,
}

/// Settings of the status page that browsers read.
#[derive(Debug, Serialize, ToSchema)]
struct PageSurroundings {
    /// External links of the page.
    #[schema(max_items = 20)]
    links: Vec<PageLink>,
}

/// Registers the routes of sessions: login, logout and the current session.
pub(super) fn add(router: Routes) -> Routes {
    let read_doc = Doc::new("readSession", "Security", "Read the login state of the caller")
        .describe(
            "Returns the identity and the end of the session of the status page, or the state without \
             a session. Needs no authentication.",
        )
        .answer::<SessionView>(200, "Returned with the login state.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let begin_doc = Doc::new("createSession", "Security", "Log in to the status page")
        .describe(
            "Exchanges a token for a session cookie, which is valid for at most 12 hours and expires \
             after one hour without a request. The session has the permissions of the token while the \
             token is valid. Mutating requests with the cookie need the header `X-Tidegate-Page: 1`. The \
             session exists at this control server only.",
        )
        .body::<SessionBody>(&["application/json"], "Token to log in with.")
        .answer::<SessionView>(
            200,
            "Returned with the session cookie.",
            &OBJECT_TYPES,
            &[("Set-Cookie", "Session cookie of the status page.")],
        )
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Unauthenticated]);
    let end_doc = Doc::new("deleteSession", "Security", "Log out of the status page")
        .describe(
            "Ends the session of the cookie and deletes the cookie. Other sessions of the same token \
             continue.",
        )
        .empty(204, "Returned if the session has ended or there was none.");
    let page_doc = Doc::new("readPage", "Server", "Read the settings of the status page")
        .describe("Returns the links configured with `--page-link`.")
        .answer::<PageSurroundings>(200, "Returned with the settings of the page.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let session = Route::at("/v1/session")
        .on(HttpMethod::Get, Permission::Open, read_doc, read)
        .on(HttpMethod::Post, Permission::Open, begin_doc, begin)
        .on(HttpMethod::Delete, Permission::Open, end_doc, end);
    let page = Route::at("/v1/page").on(HttpMethod::Get, Permission::Known, page_doc, page);
    router.routes(session.done()).routes(page.done())
}

async fn read(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &session_view(&app, caller.access())))
}

async fn begin(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (from, now) = (caller.origin().source, app.source.now());
    app.authenticator.check_attempts(from, now)?;
    let login = log_in(&app, request, now).await.inspect_err(|problem| {
        // The rate limit of a valid token is not a failed attempt.
        if problem.code() != Code::TooManyRequests {
            app.authenticator.record_failure(from, now);
        }
    })?;
    if let Some(before) = caller.access().session() {
        app.authenticator.sessions.end(before);
    }
    caller.record_object(format!("Session of {}", login.access));
    tracing::info!(who = %login.access, "logged in to the status page");
    let mut response = render(form, &session_view(&app, &login.access));
    response.headers_mut().insert(header::SET_COOKIE, login.cookie);
    Ok(response)
}

async fn log_in(app: &Shared, request: Request, now: Timestamp) -> Result<Login, Problem> {
    let (parts, body) = request.into_parts();
    let SessionBody { token } = body::typed(&body::read_credential(&parts.headers, body).await?)?;
    app.authenticator.log_in(token.reveal(), &app.source.secret(), now)
}

async fn end(State(app): State<Shared>, caller: Caller, ApiQuery(_): ApiQuery<NoQuery>) -> Answer {
    let access = caller.access();
    if let Some(session) = access.session() {
        app.authenticator.sessions.end(session);
        caller.record_object(format!("Session of {access}"));
        tracing::info!(who = %access, "logged out of the status page");
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, app.authenticator.sessions.no_cookie());
    Ok(response)
}

async fn page(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &PageSurroundings { links: app.settings.page.links.clone() }))
}

fn session_view(app: &Shared, access: &Access) -> SessionView {
    SessionView {
        authenticated: match access.identity() {
            Identity::Anyone | Identity::Nobody => false,
            Identity::Agent(_) | Identity::Token { .. } | Identity::User { .. } => true,
        },
        security_enabled: app.authenticator.is_required(),
        read_only: app.settings.page.is_read_only,
        insecure: app.settings.is_insecure,
        who: access.to_string(),
        expires: access.session().and_then(|session| app.authenticator.sessions.ends(session)),
        issuer_login: issuer_login(app),
    }
}

fn issuer_login(app: &Shared) -> Option<IssuerLogin> {
    let oidc = app.authenticator.oidc()?;
    let url = oidc.page()?.settings().login_url();
    let issuer = oidc.settings().issuer.as_str();
    let host = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
    Some(IssuerLogin { host: host.split('/').next().unwrap_or_default().to_owned(), url })
}
