//! Proxies of the HTTP benchmark: their processes, configurations and versions.

use std::{fmt, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::deployment::Cluster,
    host::{netns::Namespace, shell},
    processes::{
        binaries,
        haproxy::Haproxy,
        nginx::Nginx,
        process::{Plan, Process},
    },
};
use serde::{Deserialize, Serialize};

use super::data::{BACKEND_PORT, HttpLoad, PAGE, RouteCounts, backend, host, prefix};

/// Proxy that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HttpProxy {
    /// `tidegate-gateway` with few routes.
    Tidegate,
    /// `tidegate-gateway` with many routes.
    TidegateMany,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// Caddy.
    Caddy,
}

impl HttpProxy {
    /// Proxies with the same few routes.
    pub(super) const PEERS: [Self; 4] = [Self::Tidegate, Self::Haproxy, Self::Nginx, Self::Caddy];

    /// Name of the proxy in the results.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::TidegateMany => "tidegate, many routes",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
        }
    }

    /// Description of the measured configuration, for the page.
    pub(super) const fn settings(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate-gateway, fed by a control server",
            Self::TidegateMany => "the same with the large number of routes",
            Self::Haproxy => "HAProxy, one thread per CPU, `http-reuse always`",
            Self::Nginx => "nginx, one worker per CPU, 64 idle connections to the backend per worker",
            Self::Caddy => "Caddy with its defaults",
        }
    }

    /// Port for requests without TLS.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Tidegate => 8100,
            Self::TidegateMany => 8200,
            Self::Haproxy => 8300,
            Self::Nginx => 8400,
            Self::Caddy => 8500,
        }
    }

    /// Port for requests with TLS.
    pub(super) const fn tls_port(self) -> u16 {
        self.port() + 43
    }
}

/// Proxy and kind of load that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HttpContest {
    pub(super) proxy: HttpProxy,
    pub(super) load: HttpLoad,
    /// Number of a route with the host name of the requests.
    pub(super) route: u32,
    /// Number of paths of the requests.
    pub(super) paths: u32,
}

impl fmt::Display for HttpContest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}, {}", self.proxy.as_str(), self.load.as_str()))
    }
}

/// Returns all contests, one kind of load after another.
pub(super) fn contests(routes: &RouteCounts) -> Vec<HttpContest> {
    let of = |load: HttpLoad| {
        let many = (load == HttpLoad::Http1).then_some(HttpProxy::TidegateMany);
        let proxies = HttpProxy::PEERS.into_iter().chain(many);
        proxies.map(move |proxy| HttpContest { proxy, load, route: routes.middle(proxy), paths: routes.few })
    };
    HttpLoad::ALL.into_iter().flat_map(of).collect()
}

/// Certificate and private key of all proxies in PEM.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    pub(super) chain: String,
    pub(super) key: String,
}

const CHAIN_FILE: &str = "chain.pem";
const KEY_FILE: &str = "key.pem";

/// Creates a self-signed certificate for all host names in a directory.
pub(super) fn create_certificate(directory: &Path) -> Result<CertificateFiles> {
    let path = |name: &str| directory.join(name).display().to_string();
    let (chain, key) = (path(CHAIN_FILE), path(KEY_FILE));
    let words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=example.org",
        "-addext",
        "subjectAltName=DNS:*.example.org",
        "-keyout",
        &key,
        "-out",
        &chain,
    ];
    shell::run("openssl", &words).context("cannot create a certificate")?;
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let files = CertificateFiles { chain: read(&chain)?, key: read(&key)? };
    // HAProxy reads both from one file.
    fs::write(directory.join("both.pem"), format!("{}{}", files.chain, files.key))?;
    Ok(files)
}

/// Running proxies and their backend, which end when dropped.
#[derive(Debug)]
pub(super) struct Proxies {
    tidegate: Process,
    tidegate_many: Process,
    haproxy: Process,
    nginx: Process,
    caddy: Process,
    backend: Process,
}

impl Proxies {
    /// Starts the backend and all proxies, and waits until each one has responded.
    pub(super) fn start(
        place: &Namespace,
        cluster: &Cluster,
        routes: &RouteCounts,
        directory: &Path,
    ) -> Result<Self> {
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok::<_, anyhow::Error>(path.display().to_string())
        };
        let start = |label: &str, program: &str, arguments: &[&str]| {
            Process::start(Plan {
                label: label.to_owned(),
                namespace: place.clone(),
                program: if program == GATEWAY { binaries::find(program)? } else { program.into() },
                arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
                environment: vec![("HOME".to_owned(), directory.display().to_string())],
                log: directory.join(label).with_extension("log"),
            })
        };
        let gateway = |proxy: HttpProxy, serve: &str, status: u16| {
            let (api, status) = (cluster.api.url(), format!("--status-listen=127.0.0.1:{status}"));
            let (api, serve) = (format!("--api={api}"), format!("--serve=default/{serve}"));
            start(proxy.as_str(), GATEWAY, &[&api, &serve, &status, "--address=127.0.0.1"])
        };
        let nginx = |label: &str, servers: &str| {
            let text = nginx(&directory.join(label).with_extension("pid"), servers)?;
            let file = write(&format!("{label}.conf"), text)?;
            start(label, "nginx", &["-p", &directory.display().to_string(), "-e", "stderr", "-c", &file])
        };
        let haproxy = write("haproxy.cfg", haproxy(routes, directory)?)?;
        let caddy = write("Caddyfile", caddy(routes, directory))?;
        let mut proxies = Self {
            backend: nginx("backend", &backend_server())?,
            nginx: nginx("nginx", &nginx_proxy(routes, directory))?,
            tidegate: gateway(HttpProxy::Tidegate, "few", 7444)?,
            tidegate_many: gateway(HttpProxy::TidegateMany, "many", 7445)?,
            haproxy: start("haproxy", "haproxy", &["-db", "-f", &haproxy])?,
            caddy: start("caddy", "caddy", &["run", "--config", &caddy, "--adapter", "caddyfile"])?,
        };
        for contest in contests(routes) {
            let process = proxies.process_mut(contest.proxy);
            process.wait_ready(|| contest.check(place))?;
        }
        Ok(proxies)
    }

    /// Returns the process of a proxy.
    pub(super) const fn process(&self, proxy: HttpProxy) -> &Process {
        match proxy {
            HttpProxy::Tidegate => &self.tidegate,
            HttpProxy::TidegateMany => &self.tidegate_many,
            HttpProxy::Haproxy => &self.haproxy,
            HttpProxy::Nginx => &self.nginx,
            HttpProxy::Caddy => &self.caddy,
        }
    }

    const fn process_mut(&mut self, proxy: HttpProxy) -> &mut Process {
        match proxy {
            HttpProxy::Tidegate => &mut self.tidegate,
            HttpProxy::TidegateMany => &mut self.tidegate_many,
            HttpProxy::Haproxy => &mut self.haproxy,
            HttpProxy::Nginx => &mut self.nginx,
            HttpProxy::Caddy => &mut self.caddy,
        }
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        // SIGTERM ends the workers of nginx as well; after SIGKILL they would live as long as their namespace.
        for process in [&mut self.nginx, &mut self.backend] {
            let _already_gone = process.terminate();
        }
    }
}

const GATEWAY: &str = "tidegate-gateway";

impl HttpContest {
    /// Sends one request to each path, and compares the page.
    pub(super) fn check(&self, place: &Namespace) -> Result<()> {
        let (scheme, port) = match self.load {
            HttpLoad::Http1 => ("http", self.proxy.port()),
            HttpLoad::Tls | HttpLoad::Http2 | HttpLoad::Handshake | HttpLoad::Resumption => {
                ("https", self.proxy.tls_port())
            }
        };
        let host = host(self.route);
        let to = format!("{host}:{port}:127.0.0.1");
        for number in 0..self.paths {
            let url = format!("{scheme}://{host}:{port}{}/page", prefix(number));
            let words = ["-sSk", "--noproxy", "*", "--max-time", "5", "--resolve", &to, &url];
            let page = place.run("curl", &words)?;
            ensure!(page.trim() == PAGE.trim(), "{url}: {page}");
        }
        Ok(())
    }
}

/// Returns the versions of the tested software.
pub(super) fn versions() -> Result<Vec<String>> {
    let first = |command: &str| -> Result<String> {
        let text = shell::run("sh", &["-c", command]).with_context(|| format!("`{command}` failed"))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    Ok(vec![
        format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        Haproxy::version()?,
        Nginx::version()?,
        format!("Caddy {}", first("caddy version")?),
        first("h2load --version")?,
    ])
}

/// Returns a configuration of nginx with `server` blocks.
fn nginx(pid: &Path, servers: &str) -> Result<String> {
    let directory = pid.parent().context("a file is in a directory")?.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = kinds.map(|kind| format!("{kind}_temp_path {directory}/{kind};\n")).concat();
    Ok(format!(
        "daemon off;\nuser root;\npid {};\nworker_processes auto;\n\
         events {{ worker_connections 16384; }}\nhttp {{\naccess_log off;\n{places}keepalive_requests 1000000000;\n\
         keepalive_timeout 300s;\n{servers}\n}}\n",
        pid.display()
    ))
}

fn backend_server() -> String {
    let page = PAGE.trim_end();
    format!(
        "server {{ listen {}:{BACKEND_PORT}; location / {{ default_type text/plain; return 200 \"{page}\\n\"; }} }}",
        backend()
    )
}

fn nginx_proxy(routes: &RouteCounts, directory: &Path) -> String {
    let directory = directory.display();
    let mut text = format!(
        "upstream web {{ server {}:{BACKEND_PORT}; keepalive 64; keepalive_requests 1000000000; }}\n\
         ssl_certificate {directory}/{CHAIN_FILE};\nssl_certificate_key {directory}/{KEY_FILE};\n\
         ssl_protocols TLSv1.2 TLSv1.3;\nssl_session_cache shared:all:10m;\nproxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\nproxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n",
        backend()
    );
    let mut locations = String::new();
    for number in 0..routes.few {
        // Writing to a String cannot fail; the same applies below.
        let _ = write!(locations, "location {}/ {{ proxy_pass http://web; }} ", prefix(number));
    }
    let (plain, tls) = (HttpProxy::Nginx.port(), HttpProxy::Nginx.tls_port());
    for listen in [format!("127.0.0.1:{plain}"), format!("127.0.0.1:{tls} ssl http2")] {
        let _ = writeln!(text, "server {{ listen {listen}; server_name {}; {locations}}}", host(0));
    }
    text
}

fn haproxy(routes: &RouteCounts, directory: &Path) -> Result<String> {
    let threads = std::thread::available_parallelism().context("cannot determine the number of CPUs")?;
    let (plain, tls) = (HttpProxy::Haproxy.port(), HttpProxy::Haproxy.tls_port());
    let mut text = format!(
        "global\n  nbthread {threads}\n  maxconn 16384\n  no strict-limits\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 300s\n  \
         timeout server 60s\n  timeout http-keep-alive 300s\n  option forwardfor\n  http-reuse always\n\
         frontend front\n  bind 127.0.0.1:{plain}\n  bind 127.0.0.1:{tls} ssl crt {}/both.pem alpn h2,http/1.1\n  \
         acl host hdr(host),host_only -i {}\n",
        directory.display(),
        host(0)
    );
    for number in 0..routes.few {
        let _ = writeln!(text, "  use_backend web if host {{ path_beg {}/ }}", prefix(number));
    }
    let _ = writeln!(text, "backend web\n  server one {}:{BACKEND_PORT}", backend());
    Ok(text)
}

fn caddy(routes: &RouteCounts, directory: &Path) -> String {
    let mut handles = String::new();
    for number in 0..routes.few {
        let path = prefix(number);
        let _ =
            writeln!(handles, "  handle {path}/* {{\n    reverse_proxy {}:{BACKEND_PORT}\n  }}", backend());
    }
    let (plain, tls, host) = (HttpProxy::Caddy.port(), HttpProxy::Caddy.tls_port(), host(0));
    let directory = directory.display();
    format!(
        "{{\n  admin off\n  auto_https off\n  default_bind 127.0.0.1\n}}\n\
         http://{host}:{plain} {{\n{handles}}}\n\
         https://{host}:{tls} {{\n  tls {directory}/{CHAIN_FILE} {directory}/{KEY_FILE}\n{handles}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_has_all_peers_and_only_one_has_many_routes() {
        let all = contests(&RouteCounts { few: 10, many: 100 });
        assert_eq!(all.len(), 5 * 4 + 1);
        let many: Vec<_> = all.iter().filter(|one| one.proxy == HttpProxy::TidegateMany).collect();
        assert!(matches!(many[..], [HttpContest { load: HttpLoad::Http1, route: 50, .. }]), "{many:?}");
    }
}
