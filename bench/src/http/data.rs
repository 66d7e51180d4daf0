//! Routes of the HTTP benchmark: objects of the control server, and the same few routes for other proxies.

use lab::network::topology::node_addresses;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::contestant::{CertificateFiles, HttpProxy};

/// Kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HttpLoad {
    /// HTTP/1.1 over open connections.
    Http1,
    /// HTTP/1.1 over open connections with TLS.
    Tls,
    /// HTTP/2 over open connections with TLS.
    Http2,
    /// One request per connection, with a full TLS handshake.
    Handshake,
    /// One request per connection, with a resumed TLS session.
    Resumption,
}

impl HttpLoad {
    /// All kinds, in the order of the page.
    pub const ALL: [Self; 5] = [Self::Http1, Self::Tls, Self::Http2, Self::Handshake, Self::Resumption];

    /// Name of the kind on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Tls => "HTTP/1.1 with TLS",
            Self::Http2 => "HTTP/2 with TLS",
            Self::Handshake => "full handshakes",
            Self::Resumption => "resumed sessions",
        }
    }
}

/// Numbers of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteCounts {
    /// Routes of each proxy, at most 10, all with the same host name.
    pub few: u32,
    /// Routes of a second `tidegate-gateway`, ten for each host name.
    pub many: u32,
}

/// Port of the backend.
pub(super) const BACKEND_PORT: u16 = 9000;
/// Page of the backend.
pub(super) const PAGE: &str = "a short page of the backend, which has sixty-four bytes in total\n";
/// Number of routes with the same host name.
const HOST_ROUTES: u32 = 10;
/// Name of the route that is changed.
pub(super) const CHANGING: &str = "changing";

/// Returns the host name of a route.
pub(super) fn host(number: u32) -> String {
    format!("www-{:05}.example.org", number / HOST_ROUTES)
}

/// Returns the path prefix of a route.
pub(super) fn prefix(number: u32) -> String {
    format!("/app-{}", number % HOST_ROUTES)
}

/// Returns the address of the backend.
pub(super) fn backend() -> String {
    let [address, _] = node_addresses(1);
    address.to_string()
}

impl RouteCounts {
    /// Returns the number of a route in the middle of those of a proxy, which has the host name of all requests.
    pub(super) const fn middle(&self, proxy: HttpProxy) -> u32 {
        match proxy {
            HttpProxy::TidegateMany => self.many / 2 / HOST_ROUTES * HOST_ROUTES,
            HttpProxy::Tidegate | HttpProxy::Haproxy | HttpProxy::Nginx | HttpProxy::Caddy => 0,
        }
    }

    /// Returns the Gateways, routes and the backend.
    pub(super) fn objects(&self, certificate: &CertificateFiles) -> Vec<Value> {
        let ports = json!([{ "port": BACKEND_PORT }]);
        let listeners = |proxy: HttpProxy| {
            let tls = json!({ "certificateRefs": [{ "name": "www" }] });
            json!({ "listeners": [
                { "name": "http", "port": proxy.port(), "protocol": "HTTP" },
                { "name": "https", "port": proxy.tls_port(), "protocol": "HTTPS", "tls": tls },
            ] })
        };
        let pem = json!({ "certificate": certificate.chain, "privateKey": certificate.key });
        let mut all = vec![
            object("Service", "web", &json!({ "ports": ports })),
            object(
                "EndpointSet",
                "web",
                &json!({ "service": "web", "ports": ports, "endpoints": [{ "address": backend() }] }),
            ),
            object("Certificate", "www", &pem),
            object("Gateway", "few", &listeners(HttpProxy::Tidegate)),
            object("Gateway", "many", &listeners(HttpProxy::TidegateMany)),
        ];
        all.extend((0..self.few).map(|number| route("few", number)));
        all.extend((0..self.many).map(|number| route("many", number)));
        all.push(json!({ "kind": "HttpRoute", "metadata": { "name": CHANGING }, "spec": changing(0) }));
        all
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn route(gateway: &str, number: u32) -> Value {
    let rule = json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": prefix(number) } }],
        "backendRefs": [{ "name": "web", "port": BACKEND_PORT }],
    });
    let spec = json!({ "parentRefs": [{ "name": gateway }], "hostnames": [host(number)], "rules": [rule] });
    object("HttpRoute", &format!("{gateway}-{number:05}"), &spec)
}

/// Returns the route that is changed, which redirects requests to a path with the number of the change.
pub(super) fn changing(number: u16) -> Value {
    let path = json!({ "type": "ReplaceFullPath", "replaceFullPath": format!("/change-{number}") });
    let filter = json!({ "type": "RequestRedirect", "requestRedirect": { "path": path } });
    json!({
        "parentRefs": [{ "name": "many" }], "hostnames": ["changing.example.org"],
        "rules": [{ "filters": [filter] }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_hosts_and_paths_of_their_own() {
        let counts = RouteCounts { few: 10, many: 10_000 };
        assert_eq!((host(4321), prefix(4321)), ("www-00432.example.org".to_owned(), "/app-1".to_owned()));
        assert_eq!(counts.middle(HttpProxy::TidegateMany), 5000);
        let files = CertificateFiles { chain: String::new(), key: String::new() };
        assert_eq!(counts.objects(&files).len(), 5 + 10 + 10_000 + 1);
        assert_eq!(PAGE.len(), 65);
    }
}
