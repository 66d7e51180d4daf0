//! TLS at the listeners of the gateways, with the TLS of OpenSSL as client.

use anyhow::{Result, ensure};
use lab::{host::wait, network::steady_client::SteadyClient};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::{HttpStage, STEADY, object, route};

/// File with the CA certificate of the clients.
pub(super) const CA_FILE: &str = "ca.pem";
/// Host name of a listener whose Certificate does not exist.
const BAD: &str = "bad.example.net";

/// CA of the clients.
pub(super) struct TestAuthority(Issuer<'static, KeyPair>);

impl TestAuthority {
    /// Creates a CA, and writes its certificate for the clients.
    fn create(stage: &HttpStage) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Test CA");
        let certificate = params.self_signed(&key).unwrap().pem();
        std::fs::write(stage.directory.path().join(CA_FILE), certificate).unwrap();
        Self(Issuer::new(params, key))
    }

    /// Returns a Certificate for a host name, with a subject by which clients recognize it.
    fn certificate(&self, object_name: &str, subject: &str, host: &str) -> Value {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        let spec = json!({"certificate": certificate, "privateKey": key.serialize_pem()});
        object("Certificate", object_name, &spec)
    }
}

impl HttpStage {
    /// Sends a request over TLS with a verified certificate. Returns the version of HTTP and the body.
    fn secure_get(&self, options: &[&str], host: &str) -> Result<String> {
        let ca = self.directory.path().join(CA_FILE).display().to_string();
        let to = format!("{host}:443:{}", self.edge.ip());
        let url = format!("https://{host}/");
        let fixed = ["-sS", "--noproxy", "*", "--max-time", "5", "--cacert", &ca, "--resolve", &to];
        let format = ["-w", "HTTP/%{http_version} %{http_code}", &url];
        self.client.run("curl", &[&fixed[..], options, &format].concat())
    }

    /// Waits until a verified request to a host name gets a page over HTTP/2.
    #[track_caller]
    pub(super) fn wait_secure(&self, host: &str, pages: &[&str]) {
        wait::until(&format!("{pages:?} at https://{host}/"), || {
            let text = self.secure_get(&["--http2"], host)?;
            let (page, version) = text.split_once("HTTP/").unwrap_or_default();
            ensure!(pages.contains(&page.trim()) && version == "2 200", "{text}");
            Ok(())
        })
        .unwrap();
    }

    /// Returns the subject of the certificate for a server name, over a version of TLS.
    fn subject(&self, version: &str, server_name: &str) -> Result<String> {
        let to = format!("{}:443", self.edge.ip());
        let words = ["s_client", version, "-connect", &to, "-servername", server_name];
        let text = self.client.run("openssl", &words)?;
        let line = text.lines().find(|line| line.starts_with("subject="));
        Ok(line.unwrap_or_default().replace(' ', ""))
    }
}

pub(super) fn listener(name: &str, port: u16, hostname: Option<&str>, certificate: Option<&str>) -> Value {
    let protocol = if certificate.is_some() { "HTTPS" } else { "HTTP" };
    let mut listener = json!({"name": name, "port": port, "protocol": protocol});
    if let Some(hostname) = hostname {
        listener["hostname"] = hostname.into();
    }
    if let Some(certificate) = certificate {
        listener["tls"] = json!({"certificateRefs": [{"name": certificate}]});
    }
    listener
}

/// The server name selects the certificate; HTTP/2 is negotiated; a listener without Certificate fails alone; plain HTTP
/// is redirected; a renewed certificate applies to new connections without a failed request.
pub(super) fn terminates_tls(stage: &mut HttpStage) {
    let authority = TestAuthority::create(stage);
    let listeners = json!({"spec": {"listeners": [
        listener("http", 80, None, None),
        listener("www", 443, Some("www.example.org"), Some("www")),
        listener("wild", 443, Some("*.example.org"), Some("wild")),
        listener("bad", 443, Some(BAD), Some("none")),
    ]}});
    let certificates = [
        authority.certificate("www", "first", "www.example.org"),
        authority.certificate("wild", "wild", "*.example.org"),
    ];
    stage.cluster.apply_objects(&certificates).unwrap();
    // At the listener for one host name, a route for all host names would be as specific as the one for this name.
    let parents = ["http", "wild"].map(|listener| json!({"name": "edge", "sectionName": listener}));
    let parents = json!({"spec": {"parentRefs": parents}});
    stage.cluster.patch("namespaces/default/httproutes/default", &parents).unwrap();
    stage.cluster.patch("namespaces/default/gateways/edge", &listeners).unwrap();
    stage.wait_secure("www.example.org", &["web-2", "web-3"]);
    stage.wait_secure("other.example.org", &["api-1"]);
    let text = stage.secure_get(&["--http1.1", "--tls-max", "1.2"], "www.example.org").unwrap();
    assert!(text.ends_with("HTTP/1.1 200"), "{text}");
    for (version, server_name, subject) in [
        ("-tls1_3", "www.example.org", "subject=CN=first"),
        ("-tls1_2", "www.example.org", "subject=CN=first"),
        ("-tls1_3", "x.example.org", "subject=CN=wild"),
    ] {
        assert_eq!(stage.subject(version, server_name).unwrap(), subject, "{server_name}");
    }
    for (version, server_name) in
        [("-tls1_3", BAD), ("-tls1_3", "example.net"), ("-tls1_1", "www.example.org")]
    {
        assert!(stage.subject(version, server_name).is_err(), "{version} {server_name}");
    }
    // The gateways report that they listen.
    wait::until("the conditions of the listeners", || {
        let gateway = stage.cluster.api.get_json("/v1/namespaces/default/gateways/edge")?;
        let reasons = ["www", "bad"].map(|listener| {
            let of_listener = &gateway["status"]["listeners"][listener]["conditions"];
            [0, 1].map(|index| of_listener[index]["reason"].clone())
        });
        let wanted = [["CertificatesFound", "Programmed"], ["InvalidCertificateRef", "Invalid"]];
        ensure!(reasons == wanted, "{reasons:?}");
        Ok(())
    })
    .unwrap();
    let list = stage.cluster.api.get_json("/v1/http/gateways").unwrap();
    let names: Vec<_> = list["gateways"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["node1", "node2"], "{list}");
    plain_http_is_redirected(stage);
    certificates_are_renewed(stage, &authority);
}

fn plain_http_is_redirected(stage: &HttpStage) {
    let redirect =
        json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}});
    let mut secure = route("secure", &["secure.example.org"], &[json!({"filters": [redirect]})]);
    secure["spec"]["parentRefs"] = json!([{"name": "edge", "sectionName": "http"}]);
    stage.cluster.apply_objects(&[secure]).unwrap();
    wait::until("the redirection", || {
        let page = stage.get("secure.example.org", "/a?b=c")?;
        let head = page.head.to_ascii_lowercase();
        ensure!(
            page.status == 301 && head.contains("location: https://secure.example.org/a?b=c"),
            "{page:?}"
        );
        Ok(())
    })
    .unwrap();
    stage.wait_secure("secure.example.org", &["api-1"]);
}

fn certificates_are_renewed(stage: &HttpStage, authority: &TestAuthority) {
    let (client, edge) = (stage.client.clone(), stage.edge.ip());
    let ca = stage.directory.path().join(CA_FILE).display().to_string();
    let steady = SteadyClient::start_with(move || {
        let to = format!("www.example.org:443:{edge}");
        let words = ["-sSf", "--noproxy", "*", "--max-time", "5", "--cacert", &ca, "--resolve", &to];
        client.run("curl", &[&words[..], &["https://www.example.org/"]].concat()).map(drop)
    });
    steady.wait(STEADY).unwrap();
    stage.cluster.apply_objects(&[authority.certificate("www", "renewed", "www.example.org")]).unwrap();
    wait::until("the renewed certificate", || {
        for _ in 0..6 {
            let subject = stage.subject("-tls1_3", "www.example.org")?;
            ensure!(subject == "subject=CN=renewed", "{subject}");
        }
        Ok(())
    })
    .unwrap();
    steady.wait(STEADY).unwrap();
    steady.end(0).unwrap();
}
