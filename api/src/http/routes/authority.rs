//! `/v1/authority`: state, rotation and retirement of the certificate authorities (CAs) that sign the certificates of agents.

use axum::{body::Body, extract::State, response::IntoResponse};
use http::{HeaderMap, StatusCode};
use model::primitives::{
    quantity::Timestamp,
    violation::{Violation, ViolationCode},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::enrol::issuer;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::EnrollmentState,
    http::{
        body,
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{
        Caller, Permission, Subject, Verb,
        authority::{
            RotationError, ShownCa, ShownFormerCa, TRANSITION_SECS_MAX, TRANSITION_SECS_MIN,
            default_transition_secs,
        },
        certificates::{self, AgentRecord},
        enrol::unwritten,
    },
};

/// Maximum number of nodes that are named in the status.
const NODES_LISTED_MAX: usize = 10;

/// Certificate authorities of the cluster, and the certificates of nodes that they have signed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthorityStatus {
    /// Authority that signs certificates.
    current: CertificateAuthority,
    /// Authority that signed before the last rotation, while it is still trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    former: Option<FormerAuthority>,
    /// Number of nodes whose newest certificate is valid and signed by the current authority.
    nodes_current: usize,
    /// Number of nodes whose newest certificate is valid and signed by another authority. They have to renew it before the
    /// former authority is no longer trusted.
    nodes_former: usize,
    /// Names of nodes that are counted in `nodesFormer`, at most 10.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    nodes_to_renew: Vec<String>,
}

/// Certificate authority that has signed certificates of agents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateAuthority {
    /// SHA-256 of the certificate in hexadecimal.
    fingerprint: String,
    /// End of the certificate's validity (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
}

/// Certificate authority before the last rotation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FormerAuthority {
    #[serde(flatten)]
    authority: CertificateAuthority,
    /// Time of the rotation (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    rotated: Timestamp,
    /// Time at which the authority is no longer trusted (RFC 3339, UTC).
    #[schema(value_type = String, format = DateTime)]
    trusted_until: Timestamp,
}

/// Request to rotate the certificate authority.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct RotationRequest {
    /// Time in seconds for which the former authority stays trusted, from 60 to 31536000. Default: the lifetime of agent
    /// certificates and the time in which expired ones can be renewed, 31 days with default settings.
    #[schema(minimum = 60, maximum = 31536000)]
    transition_seconds: Option<u32>,
}

/// Query parameters of the retirement of a certificate authority.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RetirementQuery {
    /// Retires the authority although nodes have valid certificates of it. They need new join tokens.
    #[serde(default)]
    force: bool,
}

/// Registers the routes of certificate authorities.
pub(super) fn add(router: Routes) -> Routes {
    let asks = |verb| Permission::On(verb, Subject::Authority);
    let show = Doc::new("readAuthorityStatus", "Server", "Read the state of the certificate authorities")
        .describe(
            "Returns the certificate authority that signs the certificates of agents, the former one during a rotation, and \
             the number of nodes that still have a certificate of the former one.",
        )
        .answer::<AuthorityStatus>(200, "Returned with the certificate authorities.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Conflict]);
    let rotate = Doc::new("rotateAuthority", "Server", "Rotate the certificate authority")
        .describe(
            "Creates a new certificate authority. The former one stays trusted for a time, in which all connected agents renew \
             their certificates and receive the new authority. Rejected while a rotation is in progress.",
        )
        .authored()
        .body::<RotationRequest>(&OBJECT_TYPES, "Length of the transition.")
        .answer::<AuthorityStatus>(200, "Returned with the certificate authorities.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::Invalid, Code::Conflict]);
    let retire = Doc::new("retireAuthority", "Server", "Retire the former certificate authority")
        .describe(
            "Ends a rotation: certificates of the former authority are no longer accepted, and connections with them are \
             closed; at other control servers within about a second. Rejected while nodes have valid certificates of \
             it, unless `force` is set.",
        )
        .authored()
        .query::<RetirementQuery>()
        .empty(204, "Returned if the former authority is no longer trusted.")
        .problems(&[Code::Conflict]);
    let status = Route::at("/v1/authority").on(HttpMethod::Get, asks(Verb::Get), show, read_status);
    let rotation =
        Route::at("/v1/authority/rotate").on(HttpMethod::Post, asks(Verb::Update), rotate, rotate_authority);
    let former = Route::at("/v1/authority/former").on(
        HttpMethod::Delete,
        asks(Verb::Delete),
        retire,
        retire_authority,
    );
    router.routes(status.done()).routes(rotation.done()).routes(former.done())
}

async fn read_status(State(state): State<EnrollmentState>, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    Ok(render(form, &status(&state)?))
}

fn status(state: &EnrollmentState) -> Result<AuthorityStatus, Problem> {
    let now = state.source.now();
    let (current, former) = issuer(state)?.authority.shown(now);
    let (mut nodes_current, mut others) = (0, Vec::new());
    for (node, _, record) in state.vault.list::<AgentRecord>(certificates::PREFIX) {
        if !record.is_held(now) {
            continue;
        }
        // Records of earlier releases do not name the CA; before the first rotation there was one only.
        let is_current = match &record.authority {
            Some(authority) => *authority == current.fingerprint,
            None => former.is_none(),
        };
        if is_current {
            nodes_current += 1;
        } else {
            others.push(node);
        }
    }
    let nodes_former = others.len();
    others.truncate(NODES_LISTED_MAX);
    Ok(AuthorityStatus {
        current: current.into(),
        former: former.map(Into::into),
        nodes_current,
        nodes_former,
        nodes_to_renew: others,
    })
}

async fn rotate_authority(
    State(state): State<EnrollmentState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let form = form(&headers)?;
    let issuer = issuer(&state)?;
    let (_, value) = body::read_one(&headers, body).await?;
    let RotationRequest { transition_seconds } = body::typed(&value)?;
    if let Some(wrong) =
        transition_seconds.filter(|secs| !(TRANSITION_SECS_MIN..=TRANSITION_SECS_MAX).contains(secs))
    {
        let message = format!("must be between {TRANSITION_SECS_MIN} and {TRANSITION_SECS_MAX}, not {wrong}");
        let violation = Violation::new("/transitionSeconds", ViolationCode::Invalid, message);
        return Err(Problem::invalid(vec![violation]));
    }
    let default = || default_transition_secs(issuer.life_secs, state.renewal_grace_secs);
    let transition_secs = transition_seconds.map_or_else(default, i64::from);
    issuer.authority.rotate(transition_secs, &*state.source).await.map_err(|error| refused(&error))?;
    caller.record_object("Authority".to_owned());
    Ok(render(form, &status(&state)?))
}

async fn retire_authority(
    State(state): State<EnrollmentState>,
    caller: Caller,
    ApiQuery(RetirementQuery { force }): ApiQuery<RetirementQuery>,
) -> Answer {
    let AuthorityStatus { former, nodes_former, nodes_to_renew, .. } = status(&state)?;
    if let Some(former) = former.filter(|_| nodes_former > 0 && !force) {
        let detail = format!(
            "{nodes_former} nodes have valid certificates of the former authority, such as {}",
            nodes_to_renew.join(", ")
        );
        return Err(Problem::new(Code::Conflict, detail).hint(format!(
            "wait until they have renewed them, at the latest until {}; with force=true they need new join tokens",
            former.trusted_until
        )));
    }
    issuer(&state)?.authority.retire(state.source.now()).await.map_err(|error| refused(&error))?;
    caller.record_object("Authority".to_owned());
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Converts the reason why the CAs were not changed to a problem response.
fn refused(error: &RotationError) -> Problem {
    match error {
        RotationError::InProgress(_) => Problem::new(Code::Conflict, error.to_string())
            .hint("DELETE /v1/authority/former (`tidegate authority retire`) ends the rotation"),
        RotationError::NoFormer => Problem::new(Code::Conflict, error.to_string())
            .hint("POST /v1/authority/rotate (`tidegate authority rotate`) begins one"),
        RotationError::Create(cause) => {
            tracing::error!(%cause, "cannot create a CA");
            Problem::new(Code::Internal, "the CA could not be created; the reason is in the log")
        }
        RotationError::Vault(error) => unwritten(error),
    }
}

impl From<ShownCa> for CertificateAuthority {
    fn from(ShownCa { fingerprint, expires }: ShownCa) -> Self {
        Self { fingerprint, expires }
    }
}

impl From<ShownFormerCa> for FormerAuthority {
    fn from(ShownFormerCa { ca, since, until }: ShownFormerCa) -> Self {
        Self { authority: ca.into(), rotated: since, trusted_until: until }
    }
}
