//! Webhook provider of ExternalDNS: static records of DnsZones, read and changed over HTTP. The protocol is that of the
//! package `provider/webhook` of ExternalDNS, with its media type.
//!
//! Changes are made as dynamic updates are: each becomes a write of the DnsZone at a control server.

mod endpoint;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hickory_proto::op::ResponseCode;
use model::{discovery::dns::ZoneUpdate, primitives::domain_name::DomainName};
use serde::Serialize;
use tokio::net::TcpListener;

use self::endpoint::{EndpointChanges, endpoints_of, normalize};
use crate::{
    responder::Zones,
    update::{UpdateAuthor, UpdateQueue, ZoneChange},
};

/// Media type of all messages, with the version of the protocol.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/external.dns.webhook+json;version=1");
/// Maximum size of a request in bytes, enough for all records of a zone.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Provider of the records of some zones.
#[derive(Debug)]
pub(crate) struct ExternalDns {
    pub(crate) zones: Zones,
    pub(crate) updates: UpdateQueue,
    /// Names of the zones that ExternalDNS may read and change.
    pub(crate) names: Vec<DomainName>,
}

/// Zones for which ExternalDNS asks.
#[derive(Debug, Serialize)]
struct DomainFilter {
    include: Vec<String>,
}

impl ExternalDns {
    /// Serves the protocol until the process ends.
    pub(crate) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let router = Router::new()
            .route("/", get(zones))
            .route("/records", get(records).post(change))
            .route("/adjustendpoints", post(adjust))
            .route("/healthz", get(|| std::future::ready("ok\n")))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::new(self));
        axum::serve(listener, router.into_make_service_with_connect_info::<std::net::SocketAddr>()).await
    }

    /// Returns the changes of each zone. `None` if a name is in none of the zones.
    fn by_zone(&self, changes: EndpointChanges) -> Option<Result<BTreeMap<String, ZoneUpdate>, String>> {
        let zone = self.zones.borrow().clone()?;
        let place = |name: &str| {
            let (_, spec) = zone.snapshot().dns_zone_of(name)?;
            self.names.contains(&spec.zone).then(|| (spec.zone.to_string(), spec.ttl))
        };
        Some(changes.into_updates(place))
    }
}

async fn zones(State(provider): State<Arc<ExternalDns>>) -> Response {
    let include = provider.names.iter().map(ToString::to_string).collect();
    message(&DomainFilter { include })
}

async fn records(State(provider): State<Arc<ExternalDns>>) -> Response {
    let Some(zone) = provider.zones.borrow().clone() else { return not_ready() };
    let specs = provider.names.iter().filter_map(|name| {
        let (_, spec) = zone.snapshot().dns_zone_of(name.as_str())?;
        (spec.zone == *name).then_some(spec)
    });
    message(&specs.flat_map(endpoints_of).collect::<Vec<_>>())
}

async fn adjust(Json(mut endpoints): Json<Vec<serde_json::Value>>) -> Response {
    endpoints.iter_mut().for_each(normalize);
    message(&endpoints)
}

async fn change(
    State(provider): State<Arc<ExternalDns>>,
    ConnectInfo(client): ConnectInfo<std::net::SocketAddr>,
    Json(changes): Json<EndpointChanges>,
) -> Response {
    let updates = match provider.by_zone(changes) {
        Some(Ok(updates)) => updates,
        Some(Err(problem)) => return (StatusCode::BAD_REQUEST, problem).into_response(),
        None => return not_ready(),
    };
    for (zone, update) in updates {
        let code = provider.updates.make(external_change(zone.clone(), client.ip(), update)).await;
        if code == ResponseCode::ServFail {
            let problem =
                format!("the records of {zone} cannot be written; the log of tidegate-dns has the cause\n");
            return (StatusCode::SERVICE_UNAVAILABLE, problem).into_response();
        }
        if code != ResponseCode::NoError {
            let problem =
                format!("the changes of {zone} were rejected; the log of tidegate-dns has the cause\n");
            return (StatusCode::BAD_REQUEST, problem).into_response();
        }
    }
    StatusCode::NO_CONTENT.into_response()
}

const fn external_change(zone: String, client: IpAddr, update: ZoneUpdate) -> ZoneChange {
    ZoneChange { zone, author: UpdateAuthor::ExternalDns, client, transaction: None, update }
}

fn not_ready() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "no state yet: no control server has been reached since the start\n")
        .into_response()
}

/// Returns a response with the media type of the protocol.
fn message(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => ([(CONTENT_TYPE, MEDIA_TYPE)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
