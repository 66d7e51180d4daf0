//! `GET /v1/whoami`: identity and permissions of the caller.

use std::collections::BTreeSet;

use axum::extract::State;
use http::HeaderMap;
use model::primitives::{
    name::{Name, Namespace},
    quantity::Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

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
    security::{Caller, Identity, Permission, Subject, Verb, tokens::Binding},
};

/// Identity and permissions of the caller.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WhoAmI {
    /// Authenticated identity of the caller.
    identity: CallerIdentity,
    /// Role bindings of the caller's token, or of the groups of the user. The caller has the permissions of all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    bindings: Vec<Binding>,
    /// Namespaces to which the caller's part of each apply set is limited. Absent if it is not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    apply_set_namespaces: Option<BTreeSet<Namespace>>,
    /// True if the server requires authentication.
    auth_required: bool,
}

/// Authenticated identity of a caller.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", tag = "type")]
#[schema(as = Proven)]
enum CallerIdentity {
    /// Authentication is disabled; all requests are allowed.
    Anyone,
    /// Agent of a node.
    Agent {
        /// Name of the node.
        #[schema(value_type = String)]
        node: Name,
    },
    /// Holder of a token.
    Token {
        /// Id of the token.
        id: String,
        /// Name of the token.
        name: String,
    },
    /// User with an ID token of the OpenID Connect issuer.
    User {
        /// Name of the user at the issuer.
        name: String,
        /// Time at which the ID token ends (RFC 3339, UTC).
        #[schema(value_type = String, format = DateTime)]
        expires: Timestamp,
    },
}

/// Query of a permission check: verb, kind and namespace of the action.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PermissionQuery {
    /// Verb of the action, as in the rules of roles, for example `update`.
    #[param(max_length = 63, example = "update")]
    verb: String,
    /// Kind of object the action applies to, as in the rules of roles, for example `Service`.
    #[param(max_length = 63, example = "Service")]
    kind: String,
    /// Namespace of the action. Default: an action on cluster-scoped objects, or in all namespaces.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
}

/// Result of a permission check.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MayI {
    /// True if the action is allowed. Restrictions of role bindings to pools and endpoint ranges are not
    /// checked here and may still prevent the action.
    allowed: bool,
    /// Identity of the caller, as text.
    who: String,
}

/// Registers the routes that describe the caller and its permissions.
pub(super) fn add(router: Routes) -> Routes {
    let who = Doc::new("whoAmI", "Security", "Read the identity of the caller")
        .describe("Returns the authenticated identity of the caller and its role bindings.")
        .answer::<WhoAmI>(200, "Returned with identity and role bindings.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let may = Doc::new("mayI", "Security", "Check a permission of the caller")
        .describe("Checks whether the caller has a permission, without performing the action.")
        .query::<PermissionQuery>()
        .answer::<MayI>(200, "Returned with the result of the check.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router
        .routes(Route::at("/v1/whoami").on(HttpMethod::Get, Permission::Known, who, read).done())
        .routes(Route::at("/v1/whoami/may").on(HttpMethod::Get, Permission::Known, may, ask).done())
}

async fn read(
    State(state): State<CredentialState>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let access = caller.access();
    let identity = match access.identity() {
        // Unreachable: the permission of the route requires an authenticated caller.
        Identity::Anyone | Identity::Nobody => CallerIdentity::Anyone,
        Identity::Agent(node) => CallerIdentity::Agent { node: node.clone() },
        Identity::Token { id, name } => CallerIdentity::Token { id: id.clone(), name: name.clone() },
        Identity::User { name, expires } => CallerIdentity::User { name: name.clone(), expires: *expires },
    };
    let bindings = access.grants().iter().map(|grant| grant.binding.clone()).collect();
    let apply_set_namespaces = access.apply_set_scope();
    let auth_required = state.authenticator.is_required();
    Ok(render(form, &WhoAmI { identity, bindings, apply_set_namespaces, auth_required }))
}

async fn ask(
    State(_): State<CredentialState>,
    caller: Caller,
    ApiQuery(PermissionQuery { verb, kind, namespace }): ApiQuery<PermissionQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let known_verbs = || Verb::ALL.map(Verb::as_str).join(", ");
    let known_kinds = || Subject::all().map(Subject::as_str).collect::<Vec<_>>().join(", ");
    let verb = Verb::parse(&verb).ok_or_else(|| bad("verb", &known_verbs()))?;
    let subject = Subject::parse(&kind).ok_or_else(|| bad("kind", &known_kinds()))?;
    let access = caller.access();
    let allowed = access.may(verb, subject, namespace.as_ref());
    Ok(render(form, &MayI { allowed, who: access.to_string() }))
}

fn bad(parameter: &str, known: &str) -> Problem {
    Problem::bad_request(format!("query parameter: `{parameter}` must be one of {known}"))
}
