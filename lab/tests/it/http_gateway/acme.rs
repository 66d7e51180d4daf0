//! Certificates from an ACME server: Pebble, which rejects a part of the nonces, and whose requests go through the gateways.

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use lab::{
    host::wait,
    processes::process::{Plan, Process},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::{HttpStage, object, tls::CA_FILE};

/// Directory of the ACME server.
const DIRECTORY: &str = "https://127.0.0.1:14000/dir";
/// Validity of the certificates in seconds. A renewal follows after two thirds.
const VALIDITY_SECS: u32 = 36;
/// Percentage of the nonces that the ACME server rejects.
const NONCES_REJECTED: u32 = 20;
/// Host name of a listener with an ordered certificate.
const HOST: &str = "acme.example.org";

/// Files of the ACME server, which exist before the control server starts.
pub(super) struct TestIssuer {
    directory: tempfile::TempDir,
    processes: Vec<Process>,
    /// First certificate that a gateway presented.
    first: String,
}

impl TestIssuer {
    /// Creates the certificate of the ACME server itself.
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        std::fs::write(directory.path().join("server.pem"), certificate).unwrap();
        std::fs::write(directory.path().join("server.key"), key.serialize_pem()).unwrap();
        Self { directory, processes: Vec::new(), first: String::new() }
    }

    /// Returns the arguments of the control server.
    pub(super) fn arguments(&self) -> Vec<String> {
        let file = self.directory.path().join("server.pem");
        vec![format!("--acme-directory={DIRECTORY}"), format!("--acme-ca-file={}", file.display())]
    }

    /// Starts the ACME server, to which each DNS name has the address of the gateways. Returns its root certificate.
    fn start(&mut self, stage: &HttpStage) -> String {
        let path = |name: &str| self.directory.path().join(name);
        let pebble = json!({
            "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
            "certificate": path("server.pem"), "privateKey": path("server.key"),
            "httpPort": 80, "tlsPort": 443, "ocspResponderURL": "", "externalAccountBindingRequired": false,
            "certificateValidityPeriod": VALIDITY_SECS,
        });
        std::fs::write(path("pebble.json"), json!({"pebble": pebble}).to_string()).unwrap();
        let namespace = stage.cluster.place("control").unwrap().clone();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let address = stage.edge.ip().to_string();
        let dns = [
            "-dns01",
            "127.0.0.1:8053",
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-management",
            "127.0.0.1:8055",
            "-defaultIPv4",
            &address,
            "-defaultIPv6",
            "",
        ];
        let config = path("pebble.json").display().to_string();
        let server = ["-config", &config, "-dnsserver", "127.0.0.1:8053"];
        let rejected = NONCES_REJECTED.to_string();
        let environment = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", &rejected)];
        for (program, arguments) in [("pebble-challtestsrv", words(&dns)), ("pebble", words(&server))] {
            let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let plan = Plan {
                label: program.to_owned(),
                namespace: namespace.clone(),
                program: PathBuf::from(program),
                arguments,
                environment: environment.into(),
                log: path(&format!("{program}.log")),
            };
            self.processes.push(Process::start(plan).unwrap());
        }
        let root = ["-sSk", "--noproxy", "*", "https://127.0.0.1:15000/roots/0"];
        wait::until("the ACME server", || {
            namespace.run("curl", &["-sSkf", "--noproxy", "*", DIRECTORY])?;
            namespace.run("curl", &root)
        })
        .unwrap()
    }
}

fn certificate(stage: &HttpStage, namespace: &str) -> Result<Value> {
    stage.cluster.api.get_json(&format!("/v1/namespaces/{namespace}/certificates/acme"))
}

fn condition(certificate: &Value, wanted: &str) -> Option<Value> {
    let all = certificate["status"]["conditions"].as_array()?;
    all.iter().find(|one| one["type"] == wanted).cloned()
}

/// Returns the certificate that a gateway presents for the host name, in PEM.
fn presented(stage: &HttpStage) -> Result<String> {
    let to = format!("{}:443", stage.edge.ip());
    let text = stage.client.run("openssl", &["s_client", "-connect", &to, "-servername", HOST])?;
    let (_, rest) = text.split_once("-----BEGIN CERTIFICATE-----").context("no certificate")?;
    Ok(rest.split("-----END").next().unwrap_or_default().to_owned())
}

/// The leading control server orders a certificate, whose names the ACME server verifies through the gateways, also the name
/// whose requests are redirected. A Certificate of another namespace gets none for these names.
pub(super) fn certificates_are_ordered(stage: &mut HttpStage) {
    let mut issuer = stage.issuer.take().unwrap();
    let root = issuer.start(stage);
    let mut file =
        std::fs::OpenOptions::new().append(true).open(stage.directory.path().join(CA_FILE)).unwrap();
    file.write_all(root.as_bytes()).unwrap();
    let names = [HOST, "secure.example.org"];
    let spec =
        json!({"acme": {"directory": DIRECTORY, "dnsNames": names, "contacts": ["hostmaster@example.org"]}});
    let mut foreign = object("Certificate", "acme", &spec);
    foreign["metadata"]["namespace"] = "foreign".into();
    let mut gateway = stage.cluster.api.get_json("/v1/namespaces/default/gateways/edge").unwrap();
    let listeners = gateway["spec"]["listeners"].as_array_mut().unwrap();
    listeners.push(super::tls::listener("acme", 443, Some(HOST), Some("acme")));
    let listeners = json!({"spec": {"listeners": listeners}});
    stage.cluster.patch("namespaces/default/gateways/edge", &listeners).unwrap();
    let parents = ["http", "wild", "acme"].map(|listener| json!({"name": "edge", "sectionName": listener}));
    let parents = json!({"spec": {"parentRefs": parents}});
    stage.cluster.patch("namespaces/default/httproutes/default", &parents).unwrap();
    stage.cluster.apply_objects(&[object("Certificate", "acme", &spec), foreign]).unwrap();
    stage.wait_secure(HOST, &["api-1"]);
    issuer.first = presented(stage).unwrap();
    let ordered = certificate(stage, "default").unwrap();
    assert_eq!(condition(&ordered, "Issued").unwrap()["reason"], "Issued", "{ordered}");
    assert_eq!(ordered["status"]["dnsNames"].as_array().unwrap().len(), 2, "{ordered}");
    assert!(ordered["spec"]["issuance"]["challenges"].is_null(), "{ordered}");
    wait::until("the failure of the other namespace", || {
        let other = certificate(stage, "foreign")?;
        let issued = condition(&other, "Issued").context("no condition")?;
        let message = issued["message"].as_str().unwrap_or_default();
        ensure!(issued["reason"] == "OrderFailed" && message.contains("next order"), "{other}");
        Ok(())
    })
    .unwrap();
    let history = stage.cluster.api.get_json("/v1/history?limit=200").unwrap().to_string();
    assert!(!history.contains("PRIVATE KEY") && !stage.cluster.server.log().contains("PRIVATE KEY"));
    stage.issuer = Some(issuer);
}

/// The certificate is renewed before it expires, also by a control server that was started meanwhile.
pub(super) fn ordered_certificates_are_renewed(stage: &HttpStage) {
    let first = &stage.issuer.as_ref().unwrap().first;
    wait::until("the renewed certificate", || {
        let now = presented(stage)?;
        ensure!(now != *first, "{:#}", certificate(stage, "default")?);
        Ok(())
    })
    .unwrap();
    stage.wait_secure(HOST, &["api-1"]);
}
