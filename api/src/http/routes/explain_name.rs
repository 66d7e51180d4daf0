//! `GET /v1/dns/explain`: answers of DNS servers to a name, computed from the state, with the reason of each record.

use std::net::IpAddr;

use axum::extract::State;
use http::HeaderMap;
use model::{
    discovery::dns::{NameExplanation, NameQuestion, RecordType, Zone, ZoneSettings, explain_name},
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
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

/// Name of the cluster zone if the query names none, as of `tidegate-dns`.
const DOMAIN: &str = "cluster.local";
/// Maximum length of a name in the DNS, in characters (RFC 1035 §3.1).
const NAME_LENGTH_MAX: usize = 254;

/// Query of an explanation.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct NameQuery {
    /// Name as a client writes it. With a final dot, the search path of the client is not used.
    #[param(min_length = 1, max_length = 254, example = "web.shop")]
    name: String,
    /// Type of the records: A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT, MX or ANY. Default: A.
    #[param(example = "A", max_length = 5)]
    r#type: Option<String>,
    /// Address of the client. The namespace of the Workload with this address selects the search path.
    #[param(value_type = Option<String>, example = "10.1.1.10")]
    from: Option<IpAddr>,
    /// Namespace of the search path for a client that is no Workload. Default: no search path.
    #[param(value_type = Option<String>, max_length = 63)]
    namespace: Option<Namespace>,
    /// Name of the cluster zone, as the setting `--domain` of the DNS servers. Default: `cluster.local`.
    #[param(value_type = Option<String>, max_length = 253)]
    domain: Option<Name>,
}

/// Registers the route that explains names.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("explainName", "Cluster", "Explain the DNS answers to a name")
        .describe(
            "Computes the answers of `tidegate-dns` from the state, for each name of the client's search path up to \
             the first one with records. Each record has the object from which it follows, and a name that does \
             not exist has the reason. The default times to live of `tidegate-dns` are used. No DNS server is asked.",
        )
        .query::<NameQuery>()
        .answer::<NameExplanation>(200, "Returned with the explanation.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    router.routes(
        Route::at("/v1/dns/explain")
            .on(HttpMethod::Get, on(Verb::Explain, Kind::Service), doc, explain)
            .done(),
    )
}

async fn explain(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<NameQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let NameQuery { name, r#type, from, namespace, domain } = query;
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return Err(Problem::bad_request(format!("`name` must have from 1 to {NAME_LENGTH_MAX} characters")));
    }
    let word = r#type.as_deref().unwrap_or("A");
    let record_type = RecordType::parse(word).ok_or_else(|| {
        Problem::bad_request("`type` must be A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT, MX or ANY")
    })?;
    let domain = match domain {
        Some(domain) => domain,
        None => Name::parse(DOMAIN).map_err(|error| Problem::bad_request(error.to_string()))?,
    };
    let view = app.view();
    let announced = app.announced.current(&view, app.overview.trigger.changes());
    let snapshot = view.published().snapshot.clone();
    // As `tidegate-dns --reverse` of a cluster.
    let reverse = view.published().network.service_cidrs.iter().copied().collect();
    let zone = Zone::new(ZoneSettings { reverse, ..ZoneSettings::new(domain) }, snapshot);
    let zone = zone.with_announced(announced);
    let question = NameQuestion { name, record_type, client: from, namespace };
    Ok(render(form, &explain_name(&zone, &question)))
}
