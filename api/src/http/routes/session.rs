//! `/v1/session`: how the status page logs in and out. A token is shown once; what it stands for after that is in a cookie
//! that no script reads. And `/v1/page`: what the page is told of its surroundings.

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
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Access, Identity, Permission, access},
    write::caller,
};

/// What is shown to log in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SessionBody {
    /// The text of a token.
    #[schema(value_type = String, write_only, max_length = 256)]
    token: Secret,
}

/// Whether, and as whom, one is logged in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
struct Shown {
    /// Whether it is known who asks.
    authenticated: bool,
    /// Whether the server asks everybody to prove who they are.
    security_enabled: bool,
    /// Whether the status page may only read.
    read_only: bool,
    /// Whether anybody who reaches this server may do anything, also from other machines.
    insecure: bool,
    /// Who asks.
    #[schema(example = "token ci")]
    who: String,
    /// When the session ends at the latest; without requests it ends an hour after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
}

/// What the status page is told of its surroundings.
#[derive(Debug, Serialize, ToSchema)]
struct PageSurroundings {
    /// Where else to look.
    #[schema(max_items = 20)]
    links: Vec<PageLink>,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let read_doc = Doc::new(
        "readSession",
        "Security",
        "Says whether, and as whom, one is logged in to the status page.",
    )
    .answer::<Shown>(200, "How it is.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable]);
    let begin_doc = Doc::new("createSession", "Security", "Logs in to the status page.")
        .describe(
            "A token is shown once; the cookie of the answer stands for it from then on, for 12 hours at most, and until an \
             hour passes without a request. It may do what the token may, as long as the token counts. A request by the \
             cookie that may change something needs the header `X-Tidegate-Page: 1`. The session is of this control server; \
             others do not know it.",
        )
        .body::<SessionBody>(&OBJECT_TYPES, "The token.")
        .answer::<Shown>(200, "The session began.", &OBJECT_TYPES, &[("Set-Cookie", "The session.")])
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Unauthenticated]);
    let end_doc = Doc::new("deleteSession", "Security", "Logs out of the status page.")
        .empty(204, "There is no session, or none any longer.");
    let page_doc = Doc::new("readPage", "Server", "Says where the status page links to.")
        .describe("As the server was told by `--page-link`.")
        .answer::<PageSurroundings>(200, "The links.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let session = Route::at("/v1/session")
        .on(HttpMethod::Get, Permission::Open, read_doc, read)
        .on(HttpMethod::Post, Permission::Open, begin_doc, begin)
        .on(HttpMethod::Delete, Permission::Open, end_doc, end);
    let page = Route::at("/v1/page").on(HttpMethod::Get, Permission::Known, page_doc, page);
    router.routes(session.done()).routes(page.done())
}

async fn read(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &show(&app, &access::current())))
}

async fn begin(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, request: Request) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let SessionBody { token } = body::typed(&value)?;
    let (from, now) = (caller::origin().source, app.source.now());
    let login = app.desk.log_in(token.reveal(), from, (&app.source.secret(), now))?;
    if let Some(before) = access::current().session() {
        app.desk.sessions.end(before);
    }
    caller::note_object(format!("Session of {}", login.access));
    tracing::info!(who = %login.access, "logged in to the status page");
    let mut response = render(form, &show(&app, &login.access));
    response.headers_mut().insert(header::SET_COOKIE, login.cookie);
    Ok(response)
}

async fn end(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>) -> Answer {
    let access = access::current();
    if let Some(session) = access.session() {
        app.desk.sessions.end(session);
        caller::note_object(format!("Session of {access}"));
        tracing::info!(who = %access, "logged out of the status page");
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, app.desk.sessions.no_cookie());
    Ok(response)
}

async fn page(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &PageSurroundings { links: app.settings.page.links.clone() }))
}

fn show(app: &Shared, access: &Access) -> Shown {
    Shown {
        authenticated: match access.identity() {
            Identity::Anyone | Identity::Nobody => false,
            Identity::Agent(_) | Identity::Token { .. } => true,
        },
        security_enabled: app.desk.is_required(),
        read_only: app.settings.page.is_read_only,
        insecure: app.settings.is_insecure,
        who: access.to_string(),
        expires: access.session().and_then(|session| app.desk.sessions.ends(session)),
    }
}
