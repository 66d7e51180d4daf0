//! `/v1/enrol`, `/v1/renew`, `/v1/agents`: certificates of nodes.

use axum::{Extension, body::Body, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode, header};
use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::{Shared, feed::NodePath};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::server_state::ServerState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiPath,
    },
    security::{
        Permission, Subject, Verb,
        ca::Signed,
        certificates::{self, AgentRecord, Proven},
        enrol::{self, Desk},
    },
    write::caller,
};

/// The path at which machines join: the one where a join token is all that is asked for.
pub(crate) const ENROL_PATH: &str = "/v1/enrol";
/// The path at which nodes renew their certificates.
pub(crate) const RENEW_PATH: &str = "/v1/renew";
/// The path of the authority's certificate, which is no secret.
pub(crate) const CA_PATH: &str = "/v1/ca";

/// A machine that joins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EnrolRequest {
    /// The join token.
    #[schema(value_type = String, max_length = 256)]
    token: Secret,
    /// The name of the node.
    #[schema(value_type = String, max_length = 253)]
    node: Name,
    /// The request to sign, as PEM (RFC 2986): a key on P-256 or Ed25519, no extensions.
    #[schema(max_length = 8192)]
    csr: String,
}

/// A node that renews its certificate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// The request to sign, as PEM (RFC 2986): a key on P-256 or Ed25519, no extensions.
    #[schema(max_length = 8192)]
    csr: String,
}

/// A certificate of a node.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Enrolled {
    /// The certificate, and those between it and the authority, as PEM.
    certificate: String,
    /// The authorities of control servers, as PEM.
    ca: String,
    /// When the certificate ends.
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
}

/// What is known of the certificates of the nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentList {
    /// The nodes, by name.
    items: Vec<AgentCertificate>,
}

/// What is known of the certificates of a node.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentCertificate {
    /// The node.
    node: String,
    /// The serial number of its newest certificate, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// When that was signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    issued: Option<Timestamp>,
    /// When that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
    /// Whether it counts.
    is_valid: bool,
}

/// Adds the routes.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::Certificate);
    let enrol = Doc::new("enrol", "Agent", "Signs the key of a machine that has a join token.")
        .describe(
            "The token is used up. A name that somebody holds is given only to a token that was made for it.",
        )
        .body::<EnrolRequest>(&OBJECT_TYPES, "Token, name and key.")
        .answer::<Enrolled>(200, "The certificate.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::Invalid,
            Code::Unauthenticated,
            Code::Forbidden,
            Code::Conflict,
        ]);
    let renew = Doc::new(
        "renewCertificate",
        "Agent",
        "Signs a new key for the node whose certificate the connection shows.",
    )
    .body::<RenewRequest>(&OBJECT_TYPES, "The key.")
    .answer::<Enrolled>(200, "The certificate.", &OBJECT_TYPES, &[])
    .problems(&[Code::NotAcceptable, Code::Invalid, Code::Unauthenticated, Code::Conflict]);
    let ca = Doc::new(
        "authority",
        "Server",
        "The certificates of the authorities of the control servers; for `--ca-file`.",
    )
    .text(200, "The certificates.", "application/x-pem-file")
    .problems(&[Code::Conflict]);
    let list =
        Doc::new("listAgentCertificates", "Node", "Lists what is known of the certificates of the nodes.")
            .answer::<AgentList>(200, "The nodes.", &OBJECT_TYPES, &[])
            .problems(&[Code::NotAcceptable]);
    let revoke = Doc::new("revokeAgentCertificate", "Node", "Takes back every certificate of a node.")
        .describe("Its connections are cut; at other control servers within a second or so. It joins again with a new join token.")
        .authored()
        .named("node", "The name of the node.")
        .empty(204, "They do not count any longer.")
        .problems(&[Code::Conflict]);
    let routes = [
        Route::at(ENROL_PATH).on(HttpMethod::Post, Permission::Open, enrol, join),
        Route::at(RENEW_PATH).on(HttpMethod::Post, Permission::Agent, renew, renew_certificate),
        Route::at(CA_PATH).on(HttpMethod::Get, Permission::Open, ca, authority),
        Route::at("/v1/agents").on(HttpMethod::Get, asks(Verb::List), list, agents),
        Route::at("/v1/agents/{node}/certificate").on(
            HttpMethod::Delete,
            asks(Verb::Delete),
            revoke,
            take_back,
        ),
    ];
    routes.into_iter().fold(router, |router, route| router.routes(route.done()))
}

/// What signs, where the server speaks TLS.
pub(super) fn desk(app: &ServerState) -> Result<Desk<'_>, Problem> {
    let (Some(authority), Some(tls)) = (&app.authority, &app.settings.tls) else {
        return Err(Problem::new(
            Code::Conflict,
            "this server speaks no TLS, and has no authority that signs",
        )
        .hint("start it with --tls on"));
    };
    Ok(Desk { vault: &app.vault, authority, source: &*app.source, life_secs: tls.agent_life_secs })
}

async fn join(State(app): State<Shared>, headers: HeaderMap, body: Body) -> Answer {
    let form = form(&headers)?;
    let desk = desk(&app)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let EnrolRequest { token, node, csr } = body::typed(&value)?;
    caller::note_object(format!("Node {node}"));
    let signed = enrol::enrol(desk, &token, &node, &csr).await?;
    Ok(render(form, &enrolled(&desk, signed)))
}

async fn renew_certificate(
    State(app): State<Shared>,
    proven: Option<Extension<Proven>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let desk = desk(&app)?;
    let Extension(proven) = proven.ok_or_else(enrol::taken_back)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let RenewRequest { csr } = body::typed(&value)?;
    let signed = enrol::renew(desk, &proven, &csr).await?;
    Ok(render(form, &enrolled(&desk, signed)))
}

fn enrolled(desk: &Desk<'_>, signed: Signed) -> Enrolled {
    let Signed { chain: certificate, serial: _, expires } = signed;
    Enrolled { certificate, ca: desk.authority.trusted().bundle, expires }
}

async fn authority(State(app): State<Shared>) -> Answer {
    let bundle = desk(&app)?.authority.trusted().bundle;
    Ok(([(header::CONTENT_TYPE, "application/x-pem-file")], bundle).into_response())
}

async fn agents(State(app): State<Shared>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let now = app.source.now();
    let known = app.vault.list::<AgentRecord>(certificates::PREFIX).into_iter();
    let items = known.map(|(node, _, record)| {
        let is_valid = record.is_held(now);
        let AgentRecord { serial, issued, expires, revoked_through: _ } = record;
        AgentCertificate { node, serial, issued, expires, is_valid }
    });
    Ok(render(form, &AgentList { items: items.collect() }))
}

async fn take_back(State(app): State<Shared>, ApiPath(NodePath { node }): ApiPath<NodePath>) -> Answer {
    certificates::revoke(&app.vault, &node, app.source.now())
        .await
        .map_err(|error| enrol::unwritten(&error))?;
    caller::note_object(format!("Node {node}"));
    tracing::info!(%node, "the certificates of a node were taken back");
    Ok(StatusCode::NO_CONTENT.into_response())
}
