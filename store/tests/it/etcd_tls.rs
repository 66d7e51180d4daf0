//! Etcd with TLS client authentication and users. Errors must not contain secrets.

use std::{error::Error, fs};

use model::primitives::quantity::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use store::{Options, Store};

use crate::suite::{BIRTH, added, at, etcd::Cluster};

/// Certificate and its private key, each as PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// Creates a CA with a certificate for a server at 127.0.0.1 and one for a client.
fn certificates() -> (String, Pair, Pair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let sign = |names: &[&str]| {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    };
    (authority, sign(&["127.0.0.1", "localhost"]), sign(&["control"]))
}

async fn open(url: &str, options: &Options) -> Result<std::sync::Arc<dyn Store>, String> {
    let opened = store::open_with(url, options, Timestamp::from_unix_seconds(BIRTH)).await;
    opened.map_err(|error| {
        let mut text = format!("{error} {error:?}");
        let mut source = error.source();
        while let Some(cause) = source {
            text += &format!(": {cause} {cause:?}");
            source = cause.source();
        }
        text
    })
}

/// Access to an etcd with TLS and users requires the client certificate and the password, and no error
/// contains the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_with_tls_and_users_is_used_by_who_may() {
    let directory = tempfile::Builder::new().prefix("tidegate-store-").tempdir().unwrap();
    let (authority, server, client) = certificates();
    let file = |name: &str, body: &str| {
        let path = directory.path().join(name);
        fs::write(&path, body).unwrap();
        path.display().to_string()
    };
    let ca = file("ca.pem", &authority);
    let (certificate, key) = (file("server.pem", &server.certificate), file("server.key", &server.key));
    let flags =
        ["--cert-file", &certificate, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"];
    let ctl = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
    let cluster = Cluster::start_with_tls(&flags, &ctl);
    cluster.ctl(&["user", "add", "root:canary-of-root"]);
    cluster.ctl(&["user", "grant-role", "root", "root"]);
    cluster.ctl(&["role", "add", "control"]);
    cluster.ctl(&["role", "grant-permission", "control", "--prefix=true", "readwrite", "/tidegate/"]);
    cluster.ctl(&["user", "add", "control:canary-of-control"]);
    cluster.ctl(&["user", "grant-role", "control", "control"]);
    cluster.ctl(&["auth", "enable"]);

    let mut options = Options::default();
    options.etcd.ca_pem = Some(authority.clone().into_bytes());
    options.etcd.identity_pem = Some((client.certificate.into_bytes(), client.key.into_bytes()));
    options.etcd.user = Some(("control".to_owned(), "canary-of-control".to_owned()));
    let store = open(&cluster.url(), &options).await.unwrap();
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let mut leads = store.leadership();
    leads.wait_for(|leads| *leads).await.unwrap();
    assert_eq!(open(&cluster.url(), &options).await.unwrap().load().await.unwrap().objects.len(), 1);
    assert!(!format!("{options:?}").contains("canary"));

    let mut wrong = options.clone();
    wrong.etcd.user = Some(("control".to_owned(), "canary-that-is-wrong".to_owned()));
    let refusal = open(&cluster.url(), &wrong).await.err().expect("is refused");
    assert!(refusal.contains("authentication failed") && !refusal.contains("canary"), "{refusal}");

    let mut elsewhere = options.clone();
    elsewhere.etcd.prefix = "/other/".to_owned();
    let refusal = open(&cluster.url(), &elsewhere).await.err().expect("is refused");
    assert!(refusal.contains("permission denied") && !refusal.contains("canary"), "{refusal}");
}
