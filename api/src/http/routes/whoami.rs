//! `GET /v1/whoami`: who the server takes one for, and what one may do.

use axum::extract::State;
use http::HeaderMap;
use model::primitives::name::{Name, Namespace};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Identity, Permission, Subject, Verb, access, tokens::Binding},
};

/// Who one is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WhoAmI {
    /// What was proven.
    identity: Proven,
    /// What the holder of the token may do; the sum of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    bindings: Vec<Binding>,
    /// Whether the server asks everybody to prove who they are.
    auth_required: bool,
}

/// What was proven.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", tag = "type")]
enum Proven {
    /// Nothing, and nothing is asked: everything is allowed.
    Anyone,
    /// A node's agent.
    Agent {
        /// The node.
        #[schema(value_type = String)]
        node: Name,
    },
    /// The holder of a token.
    Token {
        /// The id of the token.
        id: String,
        /// Its name.
        name: String,
    },
}

/// What one would like to do.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wish {
    /// What: a verb of rules.
    #[param(max_length = 63, example = "update")]
    verb: String,
    /// To what: a kind of rules.
    #[param(max_length = 63, example = "Service")]
    kind: String,
    /// Where; without it, in all namespaces, or outside of them.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
}

/// Whether one may.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MayI {
    /// Whether it is allowed. Pools and ranges of endpoints may limit it still.
    allowed: bool,
    /// Who asks.
    who: String,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let who = Doc::new("whoAmI", "Security", "Says who the server takes one for, and what is bound to that.")
        .answer::<WhoAmI>(200, "Who one is.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let may = Doc::new("mayI", "Security", "Says whether one may do something.")
        .query::<Wish>()
        .answer::<MayI>(200, "Whether one may.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router
        .routes(Route::at("/v1/whoami").on(HttpMethod::Get, Permission::Known, who, read).done())
        .routes(Route::at("/v1/whoami/may").on(HttpMethod::Get, Permission::Known, may, ask).done())
}

async fn read(State(app): State<Shared>, ApiQuery(_): ApiQuery<NoQuery>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let access = access::current();
    let identity = match access.identity() {
        // Nobody gets here: the permission of the route is to be somebody.
        Identity::Anyone | Identity::Nobody => Proven::Anyone,
        Identity::Agent(node) => Proven::Agent { node: node.clone() },
        Identity::Token { id, name } => Proven::Token { id: id.clone(), name: name.clone() },
    };
    let bindings = access.grants().iter().map(|grant| grant.binding.clone()).collect();
    Ok(render(form, &WhoAmI { identity, bindings, auth_required: app.desk.is_required() }))
}

async fn ask(
    State(_): State<Shared>,
    ApiQuery(Wish { verb, kind, namespace }): ApiQuery<Wish>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let known_verbs = || Verb::ALL.map(Verb::as_str).join(", ");
    let known_kinds = || Subject::all().map(Subject::as_str).collect::<Vec<_>>().join(", ");
    let verb = Verb::parse(&verb).ok_or_else(|| bad("verb", &known_verbs()))?;
    let subject = Subject::parse(&kind).ok_or_else(|| bad("kind", &known_kinds()))?;
    let access = access::current();
    let allowed = access.may(verb, subject, namespace.as_ref());
    Ok(render(form, &MayI { allowed, who: access.to_string() }))
}

fn bad(parameter: &str, known: &str) -> Problem {
    Problem::bad_request(format!("query parameter: `{parameter}` must be one of {known}"))
}
