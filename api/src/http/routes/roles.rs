//! `/v1/roles`: roles, which grant permissions to tokens.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::HeaderMap;
use model::primitives::{
    name::Label,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::tokens::failed;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::CredentialState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, NoQuery},
    },
    security::{
        Caller, Permission, Subject, Verb,
        access::Grant,
        roles::{ROLES_MAX, Role, RoleBody, Rule, VAULT_PREFIX, built_in},
        tokens::Binding,
    },
};

/// Role: a named set of permissions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Role)]
struct RoleView {
    /// Unique name of the role, for example `viewer`.
    #[schema(value_type = String)]
    name: Label,
    /// True for a built-in role, which cannot be changed.
    built_in: bool,
    /// Rules of the role. The role grants the permissions of all of them.
    rules: Vec<Rule>,
}

/// List of all roles.
#[derive(Debug, Serialize, ToSchema)]
struct RoleList {
    /// All roles, ordered by name, with built-in roles first.
    #[schema(max_items = 300)]
    items: Vec<RoleView>,
}

/// Path parameter with the name of a role.
#[derive(Debug, Clone, Deserialize)]
struct RolePath {
    name: Label,
}

/// Registers the routes of roles.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::Role);
    let all = Doc::new("listRoles", "Security", "List roles")
        .describe("Returns the built-in roles and the roles created by users, with their permissions.")
        .answer::<RoleList>(200, "Returned with all roles.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let one = Doc::new("readRole", "Security", "Read a role")
        .describe("Returns one role, built-in or created by a user, with its permissions.")
        .named("name", "Name of the role.")
        .answer::<RoleView>(200, "Returned with the role.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let put = Doc::new("writeRole", "Security", "Create or replace a role")
        .describe(
            "A role cannot contain permissions that the caller does not have. Tokens bound to the role \
             get the new permissions at once. Built-in roles cannot be replaced.",
        )
        .named("name", "Name of the role.")
        .authored()
        .body::<RoleBody>(&OBJECT_TYPES, "Permissions of the role.")
        .answer::<RoleView>(200, "Returned if the role was created or replaced.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Conflict, Code::Invalid]);
    let remove = Doc::new("deleteRole", "Security", "Delete a role without bound tokens")
        .describe("Deletes a role. Fails with `Conflict` if the role is built-in or a token is bound to it.")
        .named("name", "Name of the role.")
        .authored()
        .answer::<RoleView>(200, "Returned with the deleted role.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::Conflict]);
    let single = Route::at("/v1/roles/{name}")
        .on(HttpMethod::Get, asks(Verb::Get), one, read)
        .on(HttpMethod::Put, asks(Verb::Update), put, write)
        .on(HttpMethod::Delete, asks(Verb::Delete), remove, delete);
    router
        .routes(Route::at("/v1/roles").on(HttpMethod::Get, asks(Verb::List), all, list).done())
        .routes(single.done())
}

async fn list(
    State(state): State<CredentialState>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let directory = state.authenticator.directory();
    let fixed = built_in().iter().map(|(name, role)| role_view(name, role));
    let written = directory.written_roles().iter().map(|(name, (_, role))| role_view(name, role));
    Ok(render(form, &RoleList { items: fixed.chain(written).collect() }))
}

async fn read(
    State(state): State<CredentialState>,
    ApiPath(RolePath { name }): ApiPath<RolePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let directory = state.authenticator.directory();
    let role = directory.role(&name).ok_or_else(|| unknown(&name))?;
    Ok(render(form, &role_view(&name, role)))
}

async fn write(
    State(state): State<CredentialState>,
    caller: Caller,
    ApiPath(RolePath { name }): ApiPath<RolePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (_, value) = body::read_one(&parts.headers, body).await?;
    let body: RoleBody = body::typed(&value)?;
    caller.record_object(format!("Role {name}"));
    refuse_built_in(&name)?;
    let role = Arc::new(Role::new(body).map_err(Problem::invalid)?);
    let access = caller.access();
    let whole = Binding { role: name.clone(), namespaces: None, pools: None, endpoint_ranges: None };
    if !access.has_all_of(&Grant { role: Arc::clone(&role), binding: whole }) {
        let message = format!("must not exceed the permissions of {access}");
        return Err(Problem::invalid(vec![Violation::new("/rules", ViolationCode::Forbidden, message)]));
    }
    let directory = state.authenticator.directory();
    let written: &BTreeMap<_, _> = directory.written_roles();
    let version = written.get(&name).map_or(0, |(version, _)| *version);
    if version == 0 && written.len() >= ROLES_MAX {
        let detail = format!("the maximum of {ROLES_MAX} roles is reached");
        return Err(Problem::new(Code::Conflict, detail).hint("delete roles that no token is bound to"));
    }
    let key = format!("{VAULT_PREFIX}{name}");
    state.vault.put(&key, version, &role.body).await.map_err(failed)?;
    tracing::info!(%name, "a role was written");
    Ok(render(form, &role_view(&name, &role)))
}

async fn delete(
    State(state): State<CredentialState>,
    caller: Caller,
    ApiPath(RolePath { name }): ApiPath<RolePath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    caller.record_object(format!("Role {name}"));
    refuse_built_in(&name)?;
    let directory = state.authenticator.directory();
    let (version, role) = directory.written_roles().get(&name).ok_or_else(|| unknown(&name))?;
    let is_bound = |(_, _, token): &(_, _, &Arc<crate::security::tokens::TokenRecord>)| {
        token.bindings.iter().any(|to| to.role == name)
    };
    if let Some((_, _, token)) = directory.tokens().find(is_bound) {
        let detail = format!("token {} is bound to role {name}", token.name);
        return Err(Problem::new(Code::Conflict, detail).hint("revoke the tokens that are bound to it first"));
    }
    let shown = role_view(&name, role);
    let key = format!("{VAULT_PREFIX}{name}");
    state.vault.remove(&key, *version).await.map_err(failed)?;
    tracing::info!(%name, "a role was deleted");
    Ok(render(form, &shown).into_response())
}

fn refuse_built_in(name: &Label) -> Result<(), Problem> {
    if !built_in().contains_key(name) {
        return Ok(());
    }
    let detail = format!("role {name} is built in and cannot be changed");
    Err(Problem::new(Code::Conflict, detail).hint("choose another name"))
}

fn unknown(name: &Label) -> Problem {
    Problem::new(Code::NotFound, format!("there is no role {name}")).hint("GET /v1/roles lists them")
}

fn role_view(name: &Label, role: &Role) -> RoleView {
    RoleView { name: name.clone(), built_in: built_in().contains_key(name), rules: role.body.rules.clone() }
}
