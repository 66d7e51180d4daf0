//! `GET /v1/explain/policy`: decision of the network policy on a connection, computed from the state.

use axum::extract::State;
use http::HeaderMap;
use model::{
    kinds::{resource::Kind, service::Protocol},
    policy::explain::{ConnectionEnd, PolicyExplanation, PolicyQuestion, explain_policy},
    primitives::quantity::Port,
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::ApiQuery,
    },
    security::{Verb, on},
};

/// Query of an explanation.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PolicyQuery {
    /// Client of the connection: a Workload as `namespace/name`, or an address.
    #[param(max_length = 320, example = "shop/web")]
    from: String,
    /// Endpoint of the connection: a Workload as `namespace/name`, or an address. Not an address of a Service.
    #[param(max_length = 320, example = "shop/api")]
    to: String,
    /// Destination port of the connection. Default: none, for an ICMP echo request.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 65535)]
    port: Option<u16>,
    /// Protocol of the connection: `TCP`, `UDP` or `SCTP`. Default: `TCP`.
    #[param(inline)]
    protocol: Option<Protocol>,
}

/// Registers the route that explains network policy.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("explainPolicy", "Cluster", "Explain the network policy for a connection")
        .describe(
            "Computes the decision of the NetworkPolicies on a connection from the state, with the function that \
             nodes use: the policies that select each end, and the rule that accepts the connection. The address and \
             port are those of the endpoint, after the translation of a Service. No packet is sent.",
        )
        .query::<PolicyQuery>()
        .answer::<PolicyExplanation>(200, "Returned with the explanation.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/explain/policy")
            .on(HttpMethod::Get, on(Verb::Explain, Kind::NetworkPolicy), doc, explain)
            .done(),
    )
}

async fn explain(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<PolicyQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let PolicyQuery { from, to, port, protocol } = query;
    let end = |name: &str, text: &str| -> Result<ConnectionEnd, Problem> {
        text.parse().map_err(|message| Problem::bad_request(format!("query parameter: `{name}` {message}")))
    };
    let number = |port: u16| {
        Port::new(port).ok_or_else(|| Problem::bad_request("query parameter: `port` must be from 1 to 65535"))
    };
    let port = port.map(number).transpose()?;
    if port.is_none() && protocol.is_some() {
        return Err(Problem::bad_request("query parameter: `protocol` requires `port`"));
    }
    let question = PolicyQuestion {
        source: end("from", &from)?,
        destination: end("to", &to)?,
        port: port.map(|port| (protocol.unwrap_or_default(), port)),
    };
    let view = app.view();
    let published = view.published();
    let explanation = explain_policy(&published.policy, &published.snapshot, &question)
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(render(form, &explanation))
}
