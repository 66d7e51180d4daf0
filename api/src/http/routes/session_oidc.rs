//! `/v1/session/oidc`: login of browsers to the status page at the issuer of OpenID Connect.
//!
//! Both routes answer a browser that navigates, so that failures redirect to the sign-in view, which displays the remedy.

use axum::{
    extract::{Query, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use model::primitives::quantity::Timestamp;
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        config::oidc::{CALLBACK_PATH, LOGIN_PATH},
        error::{Answer, Code, LoginRedirect, Problem},
    },
    http::{
        openapi::{Doc, Route, Routes},
        params::ApiQuery,
    },
    security::{
        Caller, Permission,
        authenticator::Login,
        oidc::{CodeResponse, LoginEnd, LoginFault, LoginStart, PageLogin, PageView},
    },
};

/// Query of a login that begins.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LoginQuery {
    /// View of the page that the browser returns to: the part of the page's address after `#`, which begins with a slash.
    /// Default: the overview.
    #[serde(default)]
    #[param(value_type = Option<String>, max_length = 1024, example = "/services/default/web")]
    view: PageView,
}

/// Query of the response of the issuer (RFC 6749, 4.1.2). Further parameters are ignored.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the fields describe the query for the OpenAPI document")]
struct CallbackQuery {
    /// Authorization code of the issuer, which is exchanged for an ID token.
    #[param(max_length = 4096)]
    code: Option<String>,
    /// Value by which the server recognizes the login of the browser.
    #[param(max_length = 256)]
    state: Option<String>,
    /// Issuer of the response (RFC 9207). Required if the issuer supports it.
    #[param(max_length = 2048)]
    iss: Option<String>,
    /// Error code of the issuer, for example `access_denied`.
    #[param(max_length = 256)]
    error: Option<String>,
}

/// Registers the routes of the login at the issuer.
pub(super) fn add(router: Routes) -> Routes {
    let begin_doc = Doc::new("beginOidcLogin", "Security", "Log in to the page at the issuer")
        .describe(
            "Begins a login by the authorization code flow with PKCE: redirects the browser to the issuer, and stores the \
             login in a cookie for ten minutes. If the issuer cannot be reached, redirects to the sign-in view of the status \
             page. Needs the setting `--oidc-page-url`.",
        )
        .query::<LoginQuery>()
        .redirect("Returned with the address at the issuer, or of the sign-in view.")
        .problems(&[Code::NotFound]);
    let finish_doc = Doc::new("finishOidcLogin", "Security", "Receive the response of the issuer")
        .describe(
            "Ends a login: compares `state` with the cookie, exchanges the code, verifies the ID token, and redirects to the \
             status page with a session cookie. The session ends with the ID token at the latest. If the login fails, \
             redirects to the sign-in view, which shows the reason.",
        )
        .query::<CallbackQuery>()
        .redirect("Returned with the address of the view that the login began at, or of the sign-in view.")
        .problems(&[Code::NotFound]);
    router
        .routes(Route::at(LOGIN_PATH).on(HttpMethod::Get, Permission::Open, begin_doc, begin).done())
        .routes(Route::at(CALLBACK_PATH).on(HttpMethod::Get, Permission::Open, finish_doc, finish).done())
}

async fn begin(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(LoginQuery { view }): ApiQuery<LoginQuery>,
) -> Answer {
    let login = page_login(&app)?;
    let from = caller.origin().source;
    if app.authenticator.check_attempts(from, app.source.now()).is_err() {
        return redirect(&LoginFault::TooMany.location(Some(&view)));
    }
    match login.begin(view.clone(), &*app.source).await {
        Ok(LoginStart { location, cookie }) => {
            let mut response = redirect(&location)?;
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            Ok(response)
        }
        Err(fault) => redirect(&fault.location(Some(&view))),
    }
}

async fn finish(State(app): State<Shared>, caller: Caller, uri: Uri, headers: HeaderMap) -> Answer {
    let login = page_login(&app)?;
    let (from, now) = (caller.origin().source, app.source.now());
    if app.authenticator.check_attempts(from, now).is_err() {
        return redirect(&LoginFault::TooMany.location(None));
    }
    // A malformed response has no state.
    let response = Query::try_from_uri(&uri).map(|Query(response)| response);
    let response: CodeResponse = response.unwrap_or_default();
    let LoginEnd { view, user } = login.finish(&headers, &response, now).await;
    let opened = user.and_then(|user| {
        let opened = app.authenticator.log_in_user(user, &app.source.secret(), now);
        opened.map_err(|_| LoginFault::TooMany)
    });
    let mut response = match opened {
        Ok(opened) => {
            if let Some(before) = caller.access().session() {
                app.authenticator.sessions.end(before);
            }
            welcome(&caller, opened, &view.unwrap_or_default())?
        }
        Err(fault) => {
            count(&app, fault, (&caller, now));
            let mut response = redirect(&fault.location(view.as_ref()))?;
            response.extensions_mut().insert(LoginRedirect(Some(code_of(fault))));
            response
        }
    };
    response.headers_mut().append(header::SET_COOKIE, login.no_cookie());
    Ok(response)
}

/// Redirects a user who has logged in to the view, with the session cookie.
fn welcome(caller: &Caller, Login { access, cookie }: Login, view: &PageView) -> Answer {
    caller.record_object(format!("Session of {access}"));
    tracing::info!(who = %access, "logged in to the status page at the issuer");
    let mut response = redirect(&view.location())?;
    response.extensions_mut().insert(LoginRedirect(None));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Counts a failed login against its address, unless the fault is not that of the client.
fn count(app: &Shared, fault: LoginFault, (caller, now): (&Caller, Timestamp)) {
    match fault {
        LoginFault::Denied | LoginFault::Unreachable | LoginFault::NoRole | LoginFault::TooMany => {}
        LoginFault::Expired | LoginFault::Mismatch | LoginFault::Rejected | LoginFault::InvalidToken => {
            app.authenticator.record_failure(caller.origin().source, now);
        }
    }
}

/// Returns the error code of a failed login for the audit log.
fn code_of(fault: LoginFault) -> Code {
    match fault {
        LoginFault::Expired
        | LoginFault::Mismatch
        | LoginFault::Denied
        | LoginFault::Rejected
        | LoginFault::InvalidToken => Code::Unauthenticated,
        LoginFault::NoRole => Code::Forbidden,
        LoginFault::Unreachable => Code::Unavailable,
        LoginFault::TooMany => Code::TooManyRequests,
    }
}

fn page_login(app: &Shared) -> Result<PageLogin<'_>, Problem> {
    let login = app.authenticator.oidc().and_then(|oidc| oidc.page());
    login.ok_or_else(|| {
        Problem::new(Code::NotFound, "the status page has no login at an issuer")
            .hint("start the control server with --oidc-page-url, or log in with a token")
    })
}

fn redirect(location: &str) -> Result<Response, Problem> {
    let value = HeaderValue::from_str(location)
        .map_err(|_| Problem::new(Code::Internal, "the address of the redirect is not header text"))?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, value);
    Ok(response)
}
