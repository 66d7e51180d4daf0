//! `/v1/enrol`, `/v1/renew`, `/v1/renew/expired` and `/v1/agents`: issue, renewal and revocation of agent certificates.

use axum::{Extension, body::Body, extract::State, response::IntoResponse};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, StatusCode, header};
use model::primitives::{
    name::Name,
    quantity::Timestamp,
    secret::Secret,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use utoipa::{ToSchema, openapi::HttpMethod};

use super::feed::NodePath;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::EnrollmentState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiPath,
    },
    security::{
        Caller, Permission, Subject, Verb,
        ca::SignedCertificate,
        certificates::{self, AgentRecord, ConnectionCertificate},
        enrol::{self, CertificateIssuer},
        expired::ExpiredRenewal,
    },
};

/// Path at which a machine requests its first certificate. A join token is the only credential required.
pub(crate) const ENROL_PATH: &str = "/v1/enrol";
/// Path at which nodes renew their certificates.
pub(crate) const RENEW_PATH: &str = "/v1/renew";
/// Path at which nodes renew certificates that have expired. The signature in the request is the only credential required.
pub(crate) const RENEW_EXPIRED_PATH: &str = "/v1/renew/expired";
/// Path of the CA certificates by which agents verify control servers. No credential is required.
pub(crate) const CA_PATH: &str = "/v1/ca";

/// Request of a machine for its first certificate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EnrolRequest {
    /// Join token, from `POST /v1/jointokens`.
    #[schema(value_type = String, max_length = 256)]
    token: Secret,
    /// Name of the Node that the machine becomes, for example `node-1`.
    #[schema(value_type = String, max_length = 253)]
    node: Name,
    /// Certificate signing request as PEM (RFC 2986): a P-256 or Ed25519 key without extensions.
    #[schema(max_length = 8192)]
    csr: String,
}

/// Request of a node for a new certificate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// Certificate signing request as PEM (RFC 2986): a P-256 or Ed25519 key without extensions.
    #[schema(max_length = 8192)]
    csr: String,
}

/// Request of a node for a new certificate instead of an expired one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RenewExpiredRequest {
    /// Expired certificate of the node, as PEM.
    #[schema(max_length = 16384)]
    certificate: String,
    /// Certificate signing request as PEM (RFC 2986): a P-256 or Ed25519 key without extensions.
    #[schema(max_length = 8192)]
    csr: String,
    /// Time at which the request was signed (RFC 3339, UTC), at most five minutes from the clock of the server.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// Signature by the private key of the certificate, in base64: ECDSA in ASN.1 form with SHA-256, or Ed25519. The signed bytes are
    /// the line `tidegate: renewal of an expired certificate, version 1`, a line with the time in Unix seconds, the
    /// SHA-256 hash of the certificate (DER), and the SHA-256 hash of `csr`.
    #[schema(max_length = 256)]
    signature: String,
}

/// Certificate that the server has issued to a node.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Enrolled {
    /// Certificate of the node, followed by the CA certificate, as PEM.
    certificate: String,
    /// CA certificates by which the agent verifies control servers, as PEM.
    ca: String,
    /// End of the certificate's validity (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
}

/// List of the agent certificates of all nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentList {
    /// Certificates, ordered by node name.
    items: Vec<AgentCertificate>,
}

/// Newest agent certificate of a node.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentCertificate {
    /// Name of the node.
    node: String,
    /// Serial number of the newest certificate, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// Time at which the certificate was signed (RFC 3339, UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    issued: Option<Timestamp>,
    /// End of the certificate's validity (RFC 3339, UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires: Option<Timestamp>,
    /// True if the certificate is accepted: neither expired nor revoked.
    is_valid: bool,
}

/// Registers the routes of agent certificates.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::AgentCertificate);
    let enrol = Doc::new("enrol", "Agent", "Join a node with a join token")
        .describe(
            "Signs the key of the machine and consumes the join token. The name of an existing Node, and a \
             name that had a certificate before, require a join token created for that name.",
        )
        .body::<EnrolRequest>(&["application/json"], "Join token, node name and key.")
        .answer::<Enrolled>(200, "Returned with the certificate and the CA certificates.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::Invalid,
            Code::Unauthenticated,
            Code::Forbidden,
            Code::Conflict,
        ]);
    let renew = Doc::new("renewCertificate", "Agent", "Renew the certificate of a node")
        .describe(
            "Signs a new certificate for the node of the presented certificate. The previous \
             certificate stays valid until it expires.",
        )
        .body::<RenewRequest>(&OBJECT_TYPES, "Certificate signing request of the agent.")
        .answer::<Enrolled>(200, "Returned with the certificate and the CA certificates.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Unauthenticated, Code::Conflict]);
    let renew_expired = Doc::new("renewExpiredCertificate", "Agent", "Renew the expired certificate of a node")
        .describe(
            "Signs a new certificate for a node that was disconnected for longer than the lifetime of its \
             certificate. The signature proves possession of the certificate's private key. Only the newest certificate \
             of a node is renewed, for a limited time, unless it was revoked.",
        )
        .body::<RenewExpiredRequest>(&["application/json"], "Expired certificate, new key and proof of possession.")
        .answer::<Enrolled>(200, "Returned with the certificate and the CA certificates.", &OBJECT_TYPES, &[])
        .problems(&[
            Code::NotAcceptable,
            Code::Invalid,
            Code::Unauthenticated,
            Code::Forbidden,
            Code::Conflict,
        ]);
    let ca = Doc::new("readAuthority", "Server", "Read the CA certificates")
        .describe(
            "Returns the certificates of the internal CA, which signs the certificates of agents. \
             Needs no authentication. Fails with `Conflict` if the server does not use TLS.",
        )
        .text(200, "Returned with the CA certificates as PEM.", "application/x-pem-file")
        .problems(&[Code::Conflict]);
    let list = Doc::new("listAgentCertificates", "Node", "List the certificates of nodes")
        .describe(
            "Returns the newest certificate of each node with its validity, ordered by the name of the node.",
        )
        .answer::<AgentList>(200, "Returned with the newest certificate of each node.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let revoke = Doc::new("revokeAgentCertificate", "Node", "Revoke the certificates of a node")
        .describe(
            "Closes the connections of the node; at other control servers within about a second. \
                   The node needs a new join token to join again.",
        )
        .authored()
        .named("node", "Name of the Node.")
        .empty(204, "Returned if the certificates were revoked.")
        .problems(&[Code::Conflict]);
    let routes = [
        Route::at(ENROL_PATH).on(HttpMethod::Post, Permission::Open, enrol, join),
        Route::at(RENEW_PATH).on(HttpMethod::Post, Permission::Agent, renew, renew_certificate),
        Route::at(RENEW_EXPIRED_PATH).on(
            HttpMethod::Post,
            Permission::Open,
            renew_expired,
            renew_expired_certificate,
        ),
        Route::at(CA_PATH).on(HttpMethod::Get, Permission::Open, ca, authority),
        Route::at("/v1/agents").on(HttpMethod::Get, asks(Verb::List), list, agents),
        Route::at("/v1/agents/{node}/certificate").on(
            HttpMethod::Delete,
            asks(Verb::Delete),
            revoke,
            revoke_certificate,
        ),
    ];
    routes.into_iter().fold(router, |router, route| router.routes(route.done()))
}

/// Returns the issuer of agent certificates, or a problem if the server runs without TLS.
pub(super) fn issuer(state: &EnrollmentState) -> Result<CertificateIssuer<'_>, Problem> {
    let Some((authority, life_secs)) = &state.authority else {
        return Err(Problem::new(Code::Conflict, "this server does not use TLS and has no CA")
            .hint(
                "let it listen at an address that nodes reach, which turns TLS on: `listen = \"ADDRESS:7440\"` in \
                 /etc/tidegate/api.toml, or --listen ADDRESS:7440",
            ));
    };
    Ok(CertificateIssuer { vault: &state.vault, authority, source: &*state.source, life_secs: *life_secs })
}

async fn join(
    State(state): State<EnrollmentState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let issuer = issuer(&state)?;
    let signed = limited(&state, &caller, sign(&state, issuer, &caller, (&headers, body))).await?;
    Ok(render(form, &enrolled(&issuer, signed)))
}

/// Waits for a request that carries its credential in the body, unless the address of the client has exhausted its failed
/// attempts. Counts a failed attempt.
async fn limited<T>(
    state: &EnrollmentState,
    caller: &Caller,
    attempt: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let (from, now) = (caller.origin().source, state.source.now());
    state.authenticator.check_attempts(from, now)?;
    attempt.await.inspect_err(|problem| {
        // Refusals of a valid credential, and failures of the server, are not failed attempts.
        let is_proven = matches!(problem.code(), Code::Forbidden | Code::Conflict);
        if !is_proven && problem.code().status().is_client_error() {
            state.authenticator.record_failure(from, now);
        }
    })
}

async fn sign(
    state: &EnrollmentState,
    issuer: CertificateIssuer<'_>,
    caller: &Caller,
    (headers, body): (&HeaderMap, Body),
) -> Result<SignedCertificate, Problem> {
    let EnrolRequest { token, node, csr } = body::typed(&body::read_credential(headers, body).await?)?;
    caller.record_object(format!("Node {node}"));
    enrol::enrol(issuer, &token, (&node, state.has_node(&node)), &csr).await
}

async fn renew_certificate(
    State(state): State<EnrollmentState>,
    proven: Option<Extension<ConnectionCertificate>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let issuer = issuer(&state)?;
    let Extension(proven) = proven.ok_or_else(enrol::revoked)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let RenewRequest { csr } = body::typed(&value)?;
    let signed = enrol::renew(issuer, &proven, &csr).await?;
    Ok(render(form, &enrolled(&issuer, signed)))
}

async fn renew_expired_certificate(
    State(state): State<EnrollmentState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let issuer = issuer(&state)?;
    let signed = limited(&state, &caller, sign_expired(&state, issuer, &caller, (&headers, body))).await;
    match &signed {
        Ok(_) => state.metrics.expired_certificates_renewed.inc(),
        Err(_) => state.metrics.expired_certificates_refused.inc(),
    };
    Ok(render(form, &enrolled(&issuer, signed?)))
}

async fn sign_expired(
    state: &EnrollmentState,
    issuer: CertificateIssuer<'_>,
    caller: &Caller,
    (headers, body): (&HeaderMap, Body),
) -> Result<SignedCertificate, Problem> {
    let RenewExpiredRequest { certificate, csr, time, signature } =
        body::typed(&body::read_credential(headers, body).await?)?;
    let signature = BASE64_STANDARD.decode(signature).map_err(|_| {
        Problem::invalid(vec![Violation::new("/signature", ViolationCode::Invalid, "must be base64")])
    })?;
    let request = ExpiredRenewal { certificate: &certificate, csr: &csr, time, signature: &signature };
    let has_node = |node: &Name| state.has_node(node);
    let on_proof = |node: &Name| caller.record_object(format!("Node {node}"));
    enrol::renew_expired(issuer, request, state.renewal_grace_secs, has_node, on_proof).await
}

fn enrolled(issuer: &CertificateIssuer<'_>, signed: SignedCertificate) -> Enrolled {
    let SignedCertificate { chain: certificate, serial: _, expires, authority: _ } = signed;
    Enrolled { certificate, ca: issuer.authority.trusted(issuer.source.now()).bundle, expires }
}

async fn authority(State(state): State<EnrollmentState>) -> Answer {
    let bundle = issuer(&state)?.authority.trusted(state.source.now()).bundle;
    Ok(([(header::CONTENT_TYPE, "application/x-pem-file")], bundle).into_response())
}

async fn agents(State(state): State<EnrollmentState>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let now = state.source.now();
    let known = state.vault.list::<AgentRecord>(certificates::PREFIX).into_iter();
    let items = known.map(|(node, _, record)| {
        let is_valid = record.is_held(now);
        let AgentRecord { serial, issued, expires, revoked_through: _, labels: _, key: _, authority: _ } =
            record;
        AgentCertificate { node, serial, issued, expires, is_valid }
    });
    Ok(render(form, &AgentList { items: items.collect() }))
}

async fn revoke_certificate(
    State(state): State<EnrollmentState>,
    caller: Caller,
    ApiPath(NodePath { node }): ApiPath<NodePath>,
) -> Answer {
    certificates::revoke(&state.vault, &node, state.source.now())
        .await
        .map_err(|error| enrol::unwritten(&error))?;
    caller.record_object(format!("Node {node}"));
    tracing::info!(%node, "the certificates of a node were revoked");
    Ok(StatusCode::NO_CONTENT.into_response())
}
