//! Questions of `tidegate-dns` to upstream servers over TLS and without it, with Unbound, which forwards the names of the cluster back to
//! `tidegate-dns`.

use std::{fs, path::Path};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    processes::process::{Plan, Process},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::{
    discovery::{Dns, objects, start},
    forwarding::metric,
};

/// Port of the server that must be used.
const PORT: &str = "5861";
/// Name in the setting of all servers.
const NAME: &str = "dns.example.org";

/// Difference between the port without TLS and the port with TLS of an upstream server.
const PLAIN_OFFSET: u16 = 10;
/// Number of addresses of `long.example.com`: too many for a response over UDP.
const LONG: usize = 200;

/// Configuration of Unbound with an address for `db.example.com`, and `tidegate-dns` for the names of the cluster.
const UNBOUND: &str = "server:
  directory: \"PATH\"
  username: \"\"
  chroot: \"\"
  pidfile: \"\"
  use-syslog: no
  logfile: \"\"
  interface: 127.0.0.1@PORT
  interface: 127.0.0.1@PLAIN
  tls-port: PORT
  tls-service-key: \"PATH/key.pem\"
  tls-service-pem: \"PATH/certificate.pem\"
  num-threads: 1
  do-not-query-localhost: no
  module-config: \"iterator\"
  local-zone: \"example.com.\" static
  local-data: \"db.example.com. 60 IN A ADDRESS\"
LONGforward-zone:
  name: \"cluster.local\"
  forward-addr: 127.0.0.1@5300
remote-control:
  control-enable: no
";

/// Server of a test with the directory of its files.
struct Unbound {
    process: Process,
    /// Removed when the test ends.
    _directory: tempfile::TempDir,
}

/// Starts Unbound beside `tidegate-dns` with a certificate and its key. It answers `db.example.com` with an address.
fn start_unbound(dns: &Dns, port: &str, (certificate, key): (String, KeyPair), address: &str) -> Unbound {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| fs::write(directory.path().join(name), content).unwrap();
    let path = directory.path().display().to_string();
    let plain = (port.parse::<u16>().unwrap() + PLAIN_OFFSET).to_string();
    let long: String =
        (0..LONG).map(|n| format!("  local-data: \"long.example.com. 60 IN A 192.0.2.{n}\"\n")).collect();
    let words = [("PATH", &*path), ("PORT", port), ("PLAIN", &plain), ("ADDRESS", address), ("LONG", &long)];
    let configuration =
        words.iter().fold(UNBOUND.to_owned(), |text, (word, value)| text.replace(word, value));
    write("configuration", configuration);
    write("certificate.pem", certificate);
    write("key.pem", key.serialize_pem());
    let process = Process::start(Plan {
        label: "unbound".to_owned(),
        namespace: dns.namespace.clone(),
        program: "/usr/sbin/unbound".into(),
        arguments: vec!["-d".to_owned(), "-c".to_owned(), format!("{path}/configuration")],
        environment: Vec::new(),
        log: directory.path().join("log"),
    })
    .unwrap();
    Unbound { process, _directory: directory }
}

/// Asks a server over TLS. Returns its address records; `None` if there is no connection or the certificate is invalid.
fn over_tls(dns: &Dns, port: &str, authority: &Path, name: &str) -> Option<String> {
    let trusted = format!("+tls-ca={}", authority.display());
    let host = format!("+tls-hostname={NAME}");
    let words = ["@127.0.0.1", "-p", port, "+tls", &trusted, &host, "+short", "+tries=1", "+time=2", name];
    dns.namespace.run("dig", &words).ok()
}

/// F164: questions go to the upstream server with a valid certificate only, over a connection that stays open. Without this
/// server they fail, although others answer. Unbound forwards the names of the cluster to `tidegate-dns`. Without TLS, the same
/// server is asked over UDP and TCP.
#[test]
fn f164_upstream_servers_over_tls_are_used_with_a_valid_certificate_only() {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "Test CA");
    let authority = CertifiedIssuer::self_signed(params, authority_key).unwrap();
    let files = tempfile::tempdir().unwrap();
    let authority_file = files.path().join("ca.pem");
    fs::write(&authority_file, authority.pem()).unwrap();
    let certificate = |names: &[&str]| {
        let key = KeyPair::generate().unwrap();
        let params =
            CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        (params.signed_by(&key, &authority).unwrap().pem(), key)
    };
    let untrusted = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();

    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let servers = ["5862", "5863", PORT].map(|port| format!("tls://127.0.0.1:{port}#{NAME}"));
    let (upstream, trusted) = (servers.join(","), authority_file.display());
    let arguments = [
        "--cache-entries=0".to_owned(),
        "--cache-negative-entries=0".to_owned(),
        format!("--upstream-ca-file={trusted}"),
        format!("--upstream={upstream}"),
    ];
    let mut dns = start(&cluster, &arguments.each_ref().map(String::as_str));
    dns.wait_ready();
    let untrusted = (untrusted.cert.pem(), untrusted.signing_key);
    let _untrusted = start_unbound(&dns, "5862", untrusted, "192.0.2.66");
    let _other = start_unbound(&dns, "5863", certificate(&["other.example.org"]), "192.0.2.67");
    let mut good = start_unbound(&dns, PORT, certificate(&[NAME, "127.0.0.1"]), "192.0.2.7");
    let listening = |port: &str| {
        let filter = format!("sport = :{port}");
        let listening = || !dns.namespace.run("ss", &["-Htnl", &filter]).unwrap().is_empty();
        wait::until_true("the upstream server", listening).unwrap();
    };
    ["5862", "5863", PORT].into_iter().for_each(listening);

    let answer = "  NOERROR\n  answer db.example.com 60 A 192.0.2.7";
    for _ in 0..20 {
        assert_eq!(dns.one("db.example.com", "A"), answer);
    }
    let asked = metric(&dns, "tidegate_dns_upstream_questions_total");
    assert!(asked >= 20, "{asked}");
    let open = dns.namespace.run("ss", &["-Htn", "state", "established", "dport", "=", &format!(":{PORT}")]);
    assert_eq!(open.unwrap().lines().count(), 1);
    for port in ["5862", "5863"] {
        let line =
            dns.process.log().lines().filter(|line| line.contains("over TLS") && line.contains(port)).count();
        assert!(line >= 1, "{port}: {}", dns.process.log());
    }
    // In the other direction.
    let own = over_tls(&dns, PORT, &authority_file, "web.shop.svc.cluster.local");
    assert_eq!(own.as_deref(), Some("10.96.0.10\n"));

    good.process.kill();
    assert_eq!(dns.one("db.example.com", "A"), "  SERVFAIL");
    good.process.start_again().unwrap();
    listening(PORT);
    // The failure is cached for a second.
    wait::until_true("the answer", || dns.one("db.example.com", "A") == answer).unwrap();

    // Without a name, the certificate must have the address.
    dns.process.terminate().unwrap();
    *dns.process.arguments_mut().last_mut().unwrap() = format!("--upstream=tls://127.0.0.1:{PORT}");
    dns.process.start_again().unwrap();
    dns.wait_ready();
    assert_eq!(dns.one("db.example.com", "A"), answer);
    *dns.process.arguments_mut().last_mut().unwrap() = "--upstream=tls://127.0.0.1:5863".to_owned();
    dns.process.terminate().unwrap();
    dns.process.start_again().unwrap();
    dns.wait_ready();
    assert_eq!(dns.one("db.example.com", "A"), "  SERVFAIL");

    // Without TLS, over UDP and, for a truncated response, over TCP.
    *dns.process.arguments_mut().last_mut().unwrap() = "--upstream=127.0.0.1:5871".to_owned();
    dns.process.terminate().unwrap();
    dns.process.start_again().unwrap();
    dns.wait_ready();
    assert_eq!(dns.one("db.example.com", "A"), answer);
    let long = dns.dig(&["+tcp"], &[("long.example.com", "A")]).remove(0);
    assert_eq!(long.matches("  answer long.example.com 60 A 192.0.2.").count(), LONG, "{long}");
    assert_eq!(dns.one("missing.example.com", "A").lines().next(), Some("  NXDOMAIN"));
}
