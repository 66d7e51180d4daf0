//! Tests of watching a cluster through API server failures, and of writing statuses back. The API server is a
//! minimal one for tests, but connections are real and the adapter is the production one. Each test takes the
//! place of the engine at the adapter's channels.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::{net::TcpListener, sync::Arc, thread, time::Duration};

use clap::Parser;
use model::kinds::resource::ObjectKey;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, crypto::ring};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use sync::{
    engine::progress::Progress,
    kubernetes::{self, AdapterChannels, KubernetesArguments, resource::Resource},
    wanted::{DesiredObjects, ObservedObjects},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::cluster::{
    self,
    apiserver::{ApiServer, Mood},
};

/// Timeout of every condition that a test waits for; reached only if the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: KubernetesArguments,
}

/// Running adapter, with the engine's ends of its channels held by the test.
pub(crate) struct Adapter {
    pub(crate) wanted: watch::Receiver<DesiredObjects>,
    pub(crate) observed: watch::Sender<ObservedObjects>,
    progress: Arc<Progress>,
    task: JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
    _file: tempfile::NamedTempFile,
}

impl Adapter {
    pub(crate) fn start(server: &ApiServer, flags: &[&str]) -> Self {
        Self::start_with(&server.kubeconfig(), flags)
    }

    fn start_with(kubeconfig: &str, flags: &[&str]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), kubeconfig).unwrap();
        let own = ["x", "--kubeconfig", file.path().to_str().unwrap()];
        let arguments = Cli::parse_from(own.iter().chain(flags)).arguments;
        let (wanted_sender, wanted) = watch::channel(DesiredObjects::default());
        let (observed, observed_receiver) = watch::channel(ObservedObjects::default());
        let stop = CancellationToken::new();
        let progress = Arc::<Progress>::default();
        let ports = AdapterChannels {
            wanted: wanted_sender,
            observed: observed_receiver,
            nodes: watch::channel(Default::default()).0,
            progress: Arc::clone(&progress),
            stop: stop.clone(),
        };
        let task = tokio::spawn(kubernetes::follow(arguments, ports));
        Self { wanted, observed, progress, task, stop, _file: file }
    }

    /// Waits until the adapter desires exactly the objects with these keys.
    pub(crate) async fn wants(&mut self, keys: &[&str]) {
        let names =
            |wanted: &DesiredObjects| wanted.objects.keys().map(ObjectKey::to_store_key).collect::<Vec<_>>();
        let reached = self.wanted.wait_for(|wanted| wanted.is_complete && names(wanted) == keys);
        let reached = tokio::time::timeout(PATIENCE, reached).await.is_ok();
        let found = names(&self.wanted.borrow());
        assert!(reached, "wanted {keys:?}, found {found:?}");
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "shop" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] },
    })
}

pub(crate) fn slice(service: &str, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": format!("{service}-1"), "namespace": "shop", "labels": { "kubernetes.io/service-name": service } },
        "ports": [{ "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": { "name": "lan", "namespace": "metallb-system" },
        "spec": { "addresses": ["192.0.2.0/28"] },
    })
}

pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_long_list_is_read_in_pages_and_changes_follow_it() {
    let server = ApiServer::start(true).await;
    let names: Vec<String> = (0..7).map(|number| format!("s{number}")).collect();
    names.iter().for_each(|name| server.put(&service(name)));
    let mut adapter = Adapter::start(&server, &[]);
    let keys: Vec<String> = names.iter().map(|name| format!("services/shop/{name}")).collect();
    adapter.wants(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(server.pages("services") >= 4, "seven Services do not fit on a page");
    names[1..].iter().for_each(|name| server.delete(&service(name)));
    server.put(&slice("s0", "10.1.1.2"));
    server.put(&pool());
    adapter.wants(&["addresspools//lan", "services/shop/s0", "endpointsets/shop/s0-1"]).await;
}

#[tokio::test]
async fn connections_that_are_cut_and_versions_that_are_forgotten_lose_no_change() {
    let server = ApiServer::start(true).await;
    server.put(&service("a"));
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["services/shop/a"]).await;
    server.cut();
    server.put(&service("b"));
    adapter.wants(&["services/shop/a", "services/shop/b"]).await;
    // While no watch is open, one object is removed and one added, and the server discards the changes.
    server.set_mood(Mood::Unavailable);
    server.cut();
    server.delete(&service("a"));
    server.put(&service("c"));
    server.forget();
    server.set_mood(Mood::Well);
    adapter.wants(&["services/shop/b", "services/shop/c"]).await;
}

#[tokio::test]
async fn an_api_server_that_is_away_takes_nothing_with_it_and_is_found_again() {
    let mut server = ApiServer::start(true).await;
    server.put(&service("a"));
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["services/shop/a"]).await;
    server.stop().await;
    server.put(&service("b"));
    server.set_mood(Mood::Starting);
    server.start_again().await;
    let before = server.answers();
    eventually("it is asked while it starts", || (server.answers() > before + 1).then_some(())).await;
    server.set_mood(Mood::Well);
    adapter.wants(&["services/shop/a", "services/shop/b"]).await;
}

/// A kind that is uninstalled and installed again is read again, and its objects return.
#[tokio::test]
async fn a_kind_that_is_uninstalled_is_found_when_it_is_there_again() {
    let server = ApiServer::start(true).await;
    server.put(&service("a"));
    server.put(&pool());
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["addresspools//lan", "services/shop/a"]).await;
    server.delete(&pool());
    adapter.wants(&["services/shop/a"]).await;
    let before = server.answers();
    server.uninstall("apis/metallb.io/v1beta1", "ipaddresspools");
    eventually("it is asked for", || {
        (server.answers() > before + Resource::METALLB.len() as u64).then_some(())
    })
    .await;
    server.install("apis/metallb.io/v1beta1", "ipaddresspools");
    server.put(&pool());
    adapter.wants(&["addresspools//lan", "services/shop/a"]).await;
}

/// A listing that breaks after the first of two pages is never used.
#[tokio::test]
async fn a_list_that_was_not_read_to_its_end_does_not_count() {
    let server = ApiServer::start(true).await;
    ["a", "b", "c"].iter().for_each(|name| server.put(&service(name)));
    server.set_mood(Mood::Torn);
    let mut adapter = Adapter::start(&server, &[]);
    let pages = server.pages("services");
    eventually("it tries", || (server.pages("services") > pages + 2).then_some(())).await;
    assert!(adapter.wanted.borrow().objects.is_empty() && !adapter.wanted.borrow().is_complete);
    server.set_mood(Mood::Well);
    adapter.wants(&["services/shop/a", "services/shop/b", "services/shop/c"]).await;
    server.set_mood(Mood::Torn);
    server.forget();
    let pages = server.pages("services");
    eventually("it lists again", || (server.pages("services") > pages + 2).then_some(())).await;
    adapter.wants(&["services/shop/a", "services/shop/b", "services/shop/c"]).await;
}

#[tokio::test]
async fn a_server_that_has_lost_its_store_takes_nothing_with_it() {
    let server = ApiServer::start(true).await;
    ["a", "b"].iter().for_each(|name| server.put(&service(name)));
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["services/shop/a", "services/shop/b"]).await;
    let pages = server.pages("services");
    server.lose("api/v1", "services");
    eventually("an empty list", || (server.pages("services") > pages).then_some(())).await;
    server.put(&pool());
    adapter.wants(&["addresspools//lan", "services/shop/a", "services/shop/b"]).await;
    server.put(&service("c"));
    adapter.wants(&["addresspools//lan", "services/shop/a", "services/shop/b", "services/shop/c"]).await;
}

#[tokio::test]
async fn a_cluster_without_metallb_is_no_error() {
    let server = ApiServer::start(false).await;
    server.put(&service("a"));
    Adapter::start(&server, &[]).wants(&["services/shop/a"]).await;
}

/// Returns the observed state of a Service with an address.
fn observed(address: &str) -> ObservedObjects {
    let key = ObjectKey::parse_store_key("services/shop/web").unwrap();
    let status = json!({
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready" }],
        "loadBalancer": { "ingress": [{ "ip": address }] },
    });
    ObservedObjects {
        objects: [(key, json!({ "status": status }))].into_iter().collect(),
        ..ObservedObjects::default()
    }
}

#[tokio::test]
async fn f037_addresses_conditions_and_events_are_written_back_and_stay_right() {
    let server = ApiServer::start(true).await;
    let mut web = service("web");
    web["spec"]["topologyKeys"] = json!(["*"]);
    server.put(&web);
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["services/shop/web"]).await;
    let ingress = || {
        server.get("api/v1", "services", "shop", "web").unwrap()["status"]["loadBalancer"]["ingress"].clone()
    };
    adapter.observed.send_replace(observed("192.0.2.1"));
    eventually("the address", || {
        (ingress() == json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }])).then_some(())
    })
    .await;
    let status = server.get("api/v1", "services", "shop", "web").unwrap()["status"].clone();
    let conditions: Vec<_> =
        status["conditions"].as_array().unwrap().iter().map(|one| (&one["type"], &one["status"])).collect();
    assert_eq!(
        conditions,
        [(&json!("tidegate.io/Ready"), &json!("True")), (&json!("tidegate.io/Supported"), &json!("False"))]
    );
    let events = eventually("an event", || {
        Some(server.all("apis/events.k8s.io/v1", "events")).filter(|all| !all.is_empty())
    })
    .await;
    assert_eq!(
        (&events[0]["reason"], &events[0]["type"]),
        (&json!("NotSupported"), &json!("Warning")),
        "{events:#?}"
    );
    assert_eq!(events[0]["regarding"]["name"], "web");
    // Another writer changes the status, and Tidegate assigns another address.
    let mut other = server.get("api/v1", "services", "shop", "web").unwrap();
    other["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "203.0.113.1" }]);
    server.put(&other);
    eventually("it is put right", || {
        (ingress() == json!([{ "ip": "192.0.2.1", "ipMode": "VIP" }])).then_some(())
    })
    .await;
    adapter.observed.send_replace(observed("192.0.2.2"));
    eventually("the new address", || {
        (ingress() == json!([{ "ip": "192.0.2.2", "ipMode": "VIP" }])).then_some(())
    })
    .await;
    // No further write is needed.
    let version =
        || server.get("api/v1", "services", "shop", "web").unwrap()["metadata"]["resourceVersion"].clone();
    let before = version();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(version(), before);
}

#[tokio::test]
async fn of_two_adapters_one_works_and_the_other_takes_over() {
    let server = ApiServer::start(true).await;
    server.put(&service("a"));
    let of = |name: &'static str| ["--leader-election", "--identity", name];
    let mut first = Adapter::start(&server, &of("first"));
    first.wants(&["services/shop/a"]).await;
    let mut second = Adapter::start(&server, &of("second"));
    let holder = || {
        let lease = server.get("apis/coordination.k8s.io/v1", "leases", "tidegate", "tidegate-sync");
        lease.map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    };
    server.put(&service("b"));
    first.wants(&["services/shop/a", "services/shop/b"]).await;
    assert_eq!(holder().as_deref(), Some("first"));
    assert!(!second.wanted.borrow().is_complete, "it stands by");
    // The adapter disappears without releasing the Lease.
    first.task.abort();
    second.wants(&["services/shop/a", "services/shop/b"]).await;
    assert_eq!(holder().as_deref(), Some("second"));
}

/// A stopped adapter releases its Lease, so that the next one need not wait until it expires.
#[tokio::test]
async fn an_adapter_that_is_stopped_gives_its_lease_back() {
    let server = ApiServer::start(true).await;
    server.put(&service("a"));
    let mut adapter = Adapter::start(&server, &["--leader-election", "--identity", "first"]);
    adapter.wants(&["services/shop/a"]).await;
    let holder = || {
        let lease = server.get("apis/coordination.k8s.io/v1", "leases", "tidegate", "tidegate-sync").unwrap();
        lease["spec"]["holderIdentity"].clone()
    };
    assert_eq!(holder(), "first");
    adapter.stop.cancel();
    (&mut adapter.task).await.unwrap().unwrap();
    assert!(holder().is_null(), "{}", holder());
}

fn secret(of_type: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": of_type,
        "metadata": { "name": "tor-password", "namespace": "metallb-system" }, "data": { "password": password },
    })
}

/// A peer gets its password from a Secret, follows a change of the Secret, and keeps the password after its
/// deletion. No objects are desired before the Secret has been read, and the Role of the manifest allows
/// exactly the requests that were made.
#[tokio::test]
async fn a_password_in_a_secret_reaches_its_peer_and_is_followed() {
    let server = ApiServer::start(true).await;
    server.put(&json!({
        "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "metadata": { "name": "tor", "namespace": "metallb-system" },
        "spec": { "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.254", "passwordSecret": { "name": "tor-password" } },
    }));
    // `hush`, and then `psst`.
    server.put(&secret("kubernetes.io/basic-auth", "aHVzaA=="));
    let mut adapter = Adapter::start(&server, &["--password-secrets"]);
    let password = |wanted: &DesiredObjects| -> Option<String> {
        let key = ObjectKey::parse_store_key("bgppeers//tor").unwrap();
        let peer = wanted.objects.get(&key)?.as_bgp_peer()?.clone();
        assert!(!peer.disabled, "it was never wanted without its password");
        Some(peer.password?.reveal().to_owned())
    };
    adapter.wants(&["bgppeers//tor"]).await;
    assert_eq!(password(&adapter.wanted.borrow()).as_deref(), Some("hush"));
    server.put(&secret("kubernetes.io/basic-auth", "cHNzdA=="));
    let changed = adapter.wanted.wait_for(|wanted| password(wanted).as_deref() == Some("psst"));
    tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
    server.delete(&secret("kubernetes.io/basic-auth", "cHNzdA=="));
    eventually("it is said", || {
        let events = server.all("apis/events.k8s.io/v1", "events");
        events
            .iter()
            .any(|event| event["note"].as_str().unwrap_or_default().contains("does not exist"))
            .then_some(())
    })
    .await;
    assert_eq!(password(&adapter.wanted.borrow()).as_deref(), Some("psst"));
    let asked: Vec<_> = server.asked().into_iter().filter(|rule| rule.ends_with(" secrets")).collect();
    let allowed: Vec<_> = cluster::rbac::allowed("password-secrets.yaml").into_iter().collect();
    assert_eq!(asked, allowed);
}

/// Without `--password-secrets` no Secret is read, and this is reported.
#[tokio::test]
async fn without_being_told_to_the_adapter_reads_no_secret() {
    let server = ApiServer::start(true).await;
    server.put(&json!({
        "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "metadata": { "name": "tor", "namespace": "metallb-system" },
        "spec": { "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.254", "passwordSecret": { "name": "tor-password" } },
    }));
    server.put(&secret("kubernetes.io/basic-auth", "aHVzaA=="));
    let mut adapter = Adapter::start(&server, &[]);
    adapter.wants(&["bgppeers//tor"]).await;
    let key = ObjectKey::parse_store_key("bgppeers//tor").unwrap();
    let peer = adapter.wanted.borrow().objects[&key].as_bgp_peer().unwrap().clone();
    assert!(peer.disabled && peer.password.is_none());
    eventually("it is said", || {
        let events = server.all("apis/events.k8s.io/v1", "events");
        events
            .iter()
            .any(|event| event["note"].as_str().unwrap_or_default().contains("--password-secrets"))
            .then_some(())
    })
    .await;
    assert!(!server.asked().iter().any(|rule| rule.ends_with(" secrets")));
}

/// The Role of the manifests allows exactly the requests that the adapter makes in this test.
#[tokio::test]
async fn the_role_of_the_manifests_allows_exactly_what_is_asked_for() {
    let server = ApiServer::start(true).await;
    let mut web = service("web");
    web["spec"]["topologyKeys"] = json!(["*"]);
    server.put(&web);
    let mut adapter = Adapter::start(&server, &["--leader-election", "--identity", "a"]);
    adapter.wants(&["services/shop/web"]).await;
    adapter.observed.send_replace(observed("192.0.2.1"));
    let allowed = cluster::rbac::allowed("sync/rbac.yaml");
    // A repeated event becomes a series, which takes longer than a test should.
    let rare = ["patch \"events.k8s.io\" events"];
    let needed = eventually("everything is asked for", || {
        let asked = server.asked();
        allowed.iter().all(|rule| asked.contains(rule) || rare.contains(&rule.as_str())).then_some(asked)
    });
    let outcome = tokio::time::timeout(Duration::from_secs(20), needed).await;
    let asked = server.asked();
    let missing: Vec<_> = asked.difference(&allowed).collect();
    let idle: Vec<_> = allowed.difference(&asked).filter(|rule| !rare.contains(&rule.as_str())).collect();
    assert!(
        outcome.is_ok() && missing.is_empty(),
        "asked for and not allowed: {missing:?}; allowed and never asked for: {idle:?}"
    );
}

/// Starts a TLS server whose serving certificate is its own CA certificate. Returns the address and the certificate
/// as PEM.
fn server_with_ca_certificate() -> (String, String) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            // The client sends an alert instead of a request.
            let _rejected = session.complete_io(&mut stream.unwrap());
        }
    });
    (address, certificate.pem())
}

/// An API server whose serving certificate is a CA certificate is rejected by TLS clients. The readiness report has
/// the reason and the remedy.
#[tokio::test]
async fn a_serving_certificate_that_is_a_ca_is_reported_with_the_remedy() {
    let (address, pem) = server_with_ca_certificate();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": {
            "server": format!("https://{address}"), "certificate-authority": ca.to_str().unwrap(),
        } }],
        "users": [{ "name": "test", "user": {} }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    let adapter = Adapter::start_with(&config.to_string(), &[]);
    let is_reported = |lines: &[String]| {
        lines.iter().any(|line| {
            line.starts_with("Service has not been listed completely")
                && line.contains("CaUsedAsEndEntity")
                && line.contains("create a serving certificate signed by this CA")
        })
    };
    let reported = async {
        while !is_reported(&adapter.progress.trouble()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let result = tokio::time::timeout(PATIENCE, reported).await;
    assert!(result.is_ok(), "{:?}", adapter.progress.trouble());
}
