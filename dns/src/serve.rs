//! State of the program for its status server, with the busiest names at `/names` and explanations of names at `/explain`, and
//! for reports to the control servers.

mod external_dns;
mod report;

use std::{net::IpAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::StatusCode,
    routing::get,
};
use daemon::status::{self, Status};
use model::{
    discovery::dns::{NameQuestion, RecordType},
    primitives::name::Namespace,
    wire::dns_names::DnsNamesReport,
};
use serde::Deserialize;

pub(crate) use self::{
    external_dns::ExternalDns,
    report::{StatusReporter, host_name},
};
use crate::{
    metrics::Metrics,
    responder::{Responder, ServerExplanation},
};

/// Maximum length of a name in the DNS with the final dot, in characters (RFC 1035 §3.1).
const NAME_LENGTH_MAX: usize = 254;

/// Query of an explanation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    /// Name as a client writes it.
    name: String,
    /// Type of the records. Default: A.
    r#type: Option<String>,
    /// Address of the client.
    from: Option<IpAddr>,
    /// Namespace of the search path for a client that is no Workload.
    namespace: Option<Namespace>,
}

/// Returns the routes of the status server.
pub(crate) fn routes(metrics: Arc<Metrics>, responder: Arc<Responder>) -> Router {
    let routes = Router::new().route("/names", get(busiest)).route("/explain", get(explain));
    status::routes(metrics).merge(routes.with_state(responder))
}

async fn busiest(State(responder): State<Arc<Responder>>) -> Json<DnsNamesReport> {
    Json(responder.names().report())
}

async fn explain(
    State(responder): State<Arc<Responder>>,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<ServerExplanation>, (StatusCode, &'static str)> {
    let ExplainQuery { name, r#type, from, namespace } = query;
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return Err((StatusCode::BAD_REQUEST, "name: must have from 1 to 254 characters\n"));
    }
    let Some(record_type) = RecordType::parse(r#type.as_deref().unwrap_or("A")) else {
        let problem = "type: must be A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT, MX or ANY\n";
        return Err((StatusCode::BAD_REQUEST, problem));
    };
    Ok(Json(responder.explain(&NameQuestion { name, record_type, client: from, namespace })))
}

impl Status for Metrics {
    fn trouble(&self) -> Vec<String> {
        if self.is_ready() {
            Vec::new()
        } else {
            vec!["no state yet: no control server has been reached since the start".to_owned()]
        }
    }

    fn metrics(&self) -> String {
        self.text()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use reference_pages::{
        command::{self, File},
        golden, metrics,
    };

    use super::*;
    use crate::{args::Args, metrics::Outcome};

    #[test]
    fn every_setting_has_a_row() -> Result<(), String> {
        let description = "`tidegate-dns` reads settings from flags, from environment variables and from the TOML file that \
                           `--config` names.";
        golden::check("tidegate-dns.md", &command::page(&Args::command(), File { description, keys: None }))
    }

    #[test]
    fn every_metric_has_a_row() -> Result<(), String> {
        let introduction = "Metrics of the DNS server at `/metrics` of its `--status-listen` address, in the OpenMetrics text \
                            format.";
        let all = Metrics::default();
        all.count(Outcome::Own);
        all.set_cache((0, 0), 0);
        let families = metrics::families(&all.text());
        golden::check(
            "metrics-tidegate-dns.md",
            &format!("# Metrics of tidegate-dns\n\n{introduction}\n\n{families}"),
        )
    }
}
