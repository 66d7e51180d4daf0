//! `token`, `role`, `whoami`, `can-i`, `node join-token` and `node accept`: manage and show authentication and
//! permissions.

use model::{
    kinds::{
        metadata::Labels,
        node::{NodeRequest, NodeSpec},
    },
    primitives::name::Name,
};
use serde_json::{Value, json};

use super::document;
use crate::{
    args::{
        Document, StatusOutput,
        security::{
            CanI, JoinToken, NodeAccept, NodeCommand, NodeRevoke, Role, RoleApply, RoleDelete, Token,
            TokenCreate, TokenRevoke,
        },
    },
    client::{Client, Request, shell_quoted},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    terminal::clean,
    views::{
        drain::entity_tag,
        security,
        typed::{
            decode, decode_items,
            documents::{PermissionCheck, TokenRow, TokenText},
        },
    },
};

pub(crate) async fn token(
    client: &Client,
    command: Token,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    match command {
        Token::Create(wanted) => create(client, wanted, terminal).await,
        Token::List(form) => {
            let answer = client.send(Request::get("/v1/tokens")).await?;
            show(&answer, form.output, security::tokens(&answer, terminal.style), terminal)
        }
        Token::Revoke(which) => revoke(client, which, terminal).await,
    }
}

async fn create(client: &Client, wanted: TokenCreate, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let TokenCreate { name, role, namespace, pool, endpoint_range, expires_in } = wanted;
    let binding = |role: &model::primitives::name::Label| {
        let mut binding = json!({ "role": role });
        let limits = [
            ("namespaces", json!(namespace)),
            ("pools", json!(pool)),
            ("endpointRanges", json!(endpoint_range)),
        ];
        for (field, limit) in limits {
            if limit.as_array().is_some_and(|limit| !limit.is_empty()) {
                binding[field] = limit;
            }
        }
        binding
    };
    let bindings: Vec<_> = role.iter().map(binding).collect();
    let mut body = json!({ "name": name, "bindings": bindings });
    if let Some(life) = expires_in {
        body["ttlSeconds"] = json!(life.as_secs());
    }
    let answer = client.send(Request::post("/v1/tokens").json(&body)).await?;
    print_token(&answer, terminal)?;
    let TokenRow { id, .. } = decode(&answer).unwrap_or_default();
    let id = clean(&id);
    terminal.note(&format!("token {name} created; id {id}. It cannot be displayed again: save it to a file"));
    Ok(ExitCode::Success)
}

async fn revoke(client: &Client, which: TokenRevoke, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let all = client.send(Request::get("/v1/tokens")).await?;
    let wanted = which.token.as_str();
    let mut tokens = decode_items::<TokenRow>(&all, "/items").into_iter();
    // An id that is not listed is sent anyway; the server reports that it does not exist.
    let id = tokens.find(|token| token.name == wanted || token.id == wanted).map(|token| token.id);
    let id = id.unwrap_or_else(|| wanted.to_owned());
    let answer = client.send(Request::delete(format!("/v1/tokens/{}", clean(&id)))).await?;
    let TokenRow { name, .. } = decode(&answer).unwrap_or_default();
    terminal.print(&format!("token {} revoked\n", clean(&name)))?;
    Ok(ExitCode::Success)
}

pub(crate) async fn role(
    client: &Client,
    command: Role,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    match command {
        Role::List(form) => {
            let answer = client.send(Request::get("/v1/roles")).await?;
            show(&answer, form.output, security::roles(&answer, terminal.style), terminal)
        }
        Role::Apply(RoleApply { name, filename }) => {
            let (language, bytes) = Manifest::read(&filename)?.into_body();
            let curl_data = format!("@{}", shell_quoted(&filename.display().to_string()));
            let request =
                Request::put(format!("/v1/roles/{name}")).body(language.media_type(), bytes).label(curl_data);
            client.send(request).await?;
            terminal.print(&format!("role {name} applied\n"))?;
            Ok(ExitCode::Success)
        }
        Role::Delete(RoleDelete { name }) => {
            client.send(Request::delete(format!("/v1/roles/{name}"))).await?;
            terminal.print(&format!("role {name} deleted\n"))?;
            Ok(ExitCode::Success)
        }
    }
}

/// Describes the identity in a response of `/v1/whoami`.
pub(super) fn identity_of(answer: &Value) -> String {
    security::who(answer).lines().next().unwrap_or_default().to_owned()
}

pub(crate) async fn who_am_i(
    client: &Client,
    output: StatusOutput,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let answer = client.send(Request::get("/v1/whoami")).await?;
    show(&answer, output, security::who(&answer), terminal)
}

/// Prints `yes` if the caller may perform the action. Otherwise prints `no` and exits with a failure code.
pub(crate) async fn can_i(client: &Client, wish: CanI, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let CanI { verb, kind, namespace } = wish;
    // Kind names are normalized as in every other command; other words are sent unchanged.
    let kind = crate::resource::parse_kind(&kind).map_or(kind, |kind| kind.as_str().to_owned());
    let request = Request::get("/v1/whoami/may")
        .query("verb", Some(verb))
        .query("kind", Some(kind))
        .query("namespace", namespace.map(|namespace| namespace.to_string()));
    let answer = client.send(request).await?;
    let PermissionCheck { allowed } = decode(&answer).unwrap_or_default();
    terminal.print(if allowed { "yes\n" } else { "no\n" })?;
    Ok(if allowed { ExitCode::Success } else { ExitCode::Failed })
}

pub(crate) async fn node(
    client: &Client,
    command: NodeCommand,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    match command {
        NodeCommand::JoinToken(wanted) => create_join_token(client, wanted, terminal).await,
        NodeCommand::JoinTokens(form) => {
            let answer = client.send(Request::get("/v1/jointokens")).await?;
            show(&answer, form.output, security::join_tokens(&answer, terminal.style), terminal)
        }
        NodeCommand::Certificates(form) => {
            let answer = client.send(Request::get("/v1/agents")).await?;
            show(&answer, form.output, security::certificates(&answer, terminal.style), terminal)
        }
        NodeCommand::Revoke(NodeRevoke { node }) => {
            client.send(Request::delete(format!("/v1/agents/{node}/certificate"))).await?;
            terminal.print(&format!("node {node}: certificates revoked\n"))?;
            terminal.note(&format!(
                "`tidegate node join-token {node}` creates a token with which it joins again"
            ));
            Ok(ExitCode::Success)
        }
        NodeCommand::Accept(NodeAccept { node }) => accept(client, &node, terminal).await,
    }
}

async fn create_join_token(
    client: &Client,
    wanted: JoinToken,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let JoinToken { node, label, expires_in } = wanted;
    let mut body = json!({});
    if let Some(node) = &node {
        body["node"] = json!(node);
    }
    if !label.is_empty() {
        body["labels"] = json!(Labels::from_iter(label));
    }
    if let Some(life) = expires_in {
        body["ttlSeconds"] = json!(life.as_secs().max(1));
    }
    let answer = client.send(Request::post("/v1/jointokens").json(&body)).await?;
    print_token(&answer, terminal)?;
    terminal.note("the token lets one agent join, once: pass it to tidegate-agent with --join-token-file");
    Ok(ExitCode::Success)
}

/// Sets the properties of a Node that its agent has requested and that are pending.
async fn accept(client: &Client, node: &Name, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let path = format!("/v1/nodes/{node}");
    let object = client.send(Request::get(path.clone())).await?;
    let spec: NodeSpec = object.get("spec").and_then(decode).unwrap_or_default();
    let NodeRequest { labels, addresses, workload_cidrs } = spec.requested;
    let accepted = labels.iter().map(|(key, value)| format!("label {key}={value}"));
    let accepted = accepted.chain(addresses.iter().map(|address| format!("address {address}")));
    let accepted = accepted.chain(workload_cidrs.iter().map(|network| format!("workload network {network}")));
    let accepted: Vec<_> = accepted.map(|line| clean(&line)).collect();
    if accepted.is_empty() {
        terminal.print(&format!("node {node} has no pending requests\n"))?;
        return Ok(ExitCode::Success);
    }
    let addresses = [spec.addresses, addresses].concat();
    let networks = [spec.workload_cidrs, workload_cidrs].concat();
    let patch = json!({
        "metadata": { "labels": labels },
        "spec": { "addresses": addresses, "workloadCIDRs": networks },
    });
    client.send(Request::patch(path).json(&patch).if_match(entity_tag(&object))).await?;
    terminal.print(&format!("node {node}: accepted {}\n", accepted.join(", ")))?;
    Ok(ExitCode::Success)
}

/// Prints the text of a created token alone on its line, so that scripts can read it.
fn print_token(answer: &Value, terminal: &mut Terminal) -> Result<(), Failure> {
    let TokenText { token } = decode(answer).unwrap_or_default();
    terminal.print(&format!("{}\n", clean(&token)))
}

/// Prints a response as a table or as a document.
pub(super) fn show(
    answer: &Value,
    output: StatusOutput,
    table: String,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let text = match output {
        StatusOutput::Table => table,
        StatusOutput::Json => document(answer, Document::Json),
        StatusOutput::Yaml => document(answer, Document::Yaml),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}
