//! Test endpoint that works or fails in a selected manner, and its TLS certificates.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use lab::host::netns::Namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, ServerName},
};

/// DNS name in the certificate of a working endpoint.
pub(crate) const NAME: &str = "web.example";
/// Path that health checks request; clients request a different one.
pub(crate) const CHECK_PATH: &str = "/healthz";
/// Delay of a slow endpoint: longer than any check timeout.
const SLOWLY: Duration = Duration::from_secs(2);
/// Idle time after which a connection is abandoned.
const IDLE_MAX: Duration = Duration::from_secs(30);
const REQUEST_BYTES_MAX: usize = 4096;

/// Behavior of a test endpoint: working, or failing in a certain manner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Correct response to every request and check.
    Well,
    /// Refusal of connections, because the port is closed.
    Refuses,
    /// Silence: all packets to the endpoint are dropped.
    Vanishes,
    /// Acceptance of connections, but no response.
    Hangs,
    /// Response with status 500 to every request.
    Fails,
    /// Correct responses that arrive after any timeout.
    Slow,
    /// TLS certificate for another name.
    Impostor,
    /// Normal service to clients. Checks get their results from a script ([`Answering::play`]); a bad result
    /// is a response with status 503.
    Plays,
}

/// Test endpoint. Dropping it closes its port.
pub(crate) struct Answering {
    namespace: Namespace,
    port: u16,
    shared: Arc<Shared>,
    listening: Option<Listening>,
}

struct Shared {
    name: String,
    behaviour: Mutex<Behaviour>,
    checks: AtomicUsize,
    score: Mutex<Score>,
    tls: Option<Certificates>,
}

/// Scripted results of the next health checks: a finite list, then a sequence that repeats.
#[derive(Default)]
struct Score {
    left: VecDeque<bool>,
    again: Vec<bool>,
}

impl Score {
    fn next(&mut self) -> bool {
        if self.left.is_empty() {
            self.left.extend(&self.again);
        }
        self.left.pop_front().unwrap_or(true)
    }
}

/// Certificates of a TLS endpoint: a valid one, and one for another name.
#[derive(Clone)]
pub(crate) struct Certificates {
    own: Arc<ServerConfig>,
    other: Arc<ServerConfig>,
}

impl Answering {
    /// Starts a working endpoint on every address of the namespace.
    pub(crate) fn start(namespace: &Namespace, name: &str, port: u16, tls: Option<Certificates>) -> Self {
        let shared = Shared {
            name: name.to_owned(),
            behaviour: Mutex::new(Behaviour::Well),
            checks: AtomicUsize::new(0),
            score: Mutex::default(),
            tls,
        };
        let mut answering =
            Self { namespace: namespace.clone(), port, shared: Arc::new(shared), listening: None };
        answering.behave(Behaviour::Well);
        answering
    }

    /// Changes the behavior from now on.
    pub(crate) fn behave(&mut self, behaviour: Behaviour) {
        let before = std::mem::replace(&mut *self.shared.behaviour.lock().unwrap(), behaviour);
        if behaviour == Behaviour::Refuses {
            self.listening = None;
        } else if self.listening.is_none() {
            self.listening = Some(Listening::start(&self.namespace, self.port, &self.shared));
        }
        // Drops its replies by a blackhole route.
        let rule = format!("pref 10 ipproto tcp sport {} blackhole", self.port);
        if behaviour == Behaviour::Vanishes {
            self.namespace.ip(&[format!("rule add {rule}")]).unwrap();
        } else if before == Behaviour::Vanishes {
            self.namespace.ip(&[format!("rule del {rule}")]).unwrap();
        }
    }

    /// Sets the results of the next health checks: first `once` in order, then `again` repeatedly. Without
    /// such a script, every check succeeds.
    pub(crate) fn play(&self, once: &[bool], again: &[bool]) {
        let mut score = self.shared.score.lock().unwrap();
        score.left.extend(once);
        score.again = again.to_vec();
    }

    /// Returns the number of HTTP health checks that the endpoint has answered so far.
    pub(crate) fn checks(&self) -> usize {
        self.shared.checks.load(Ordering::SeqCst)
    }
}

/// Thread that accepts connections.
struct Listening {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start(namespace: &Namespace, port: u16, shared: &Arc<Shared>) -> Self {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = namespace.inside(|| TcpListener::bind(everywhere)).unwrap();
        let shared = Arc::clone(shared);
        let thread = thread::spawn(move || accept(&listener, &stopped, &shared));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut waiting = [readable(listener.as_fd()), readable(stopped.as_fd())];
        if poll(&mut waiting, PollTimeout::NONE).is_err() {
            continue;
        }
        let [on_client, on_stop] = waiting.map(|fd| fd.any().unwrap_or(false));
        if on_stop {
            return;
        }
        if on_client && let Ok((connection, _)) = listener.accept() {
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                let _client_may_be_gone = serve(connection, &shared);
            });
        }
    }
}

fn serve(mut connection: TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_read_timeout(Some(IDLE_MAX))?;
    let behaviour = *shared.behaviour.lock().unwrap();
    if behaviour == Behaviour::Hangs {
        return io::copy(&mut connection, &mut io::sink()).map(drop);
    }
    let Some(tls) = &shared.tls else { return answer(&mut connection, behaviour, shared) };
    let config = if behaviour == Behaviour::Impostor { &tls.other } else { &tls.own };
    let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    answer(&mut StreamOwned::new(tls, connection), behaviour, shared)
}

/// Reads a request up to its blank line (RFC 9112 §2.1), responds, and waits until the peer closes.
fn answer(stream: &mut (impl Read + Write), behaviour: Behaviour, shared: &Shared) -> io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 512];
    while !request.ends_with(b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    let is_check = request.starts_with(format!("GET {CHECK_PATH} ").as_bytes());
    let is_well = !is_check || shared.score.lock().unwrap().next();
    if is_check {
        shared.checks.fetch_add(1, Ordering::SeqCst);
    }
    let status = match behaviour {
        Behaviour::Fails => "500 Internal Server Error",
        Behaviour::Plays if !is_well => "503 Service Unavailable",
        Behaviour::Slow => {
            thread::sleep(SLOWLY);
            "200 OK"
        }
        Behaviour::Well
        | Behaviour::Refuses
        | Behaviour::Vanishes
        | Behaviour::Hangs
        | Behaviour::Impostor
        | Behaviour::Plays => "200 OK",
    };
    let body = format!("{}\n", shared.name);
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())?;
    stream.flush()?;
    stream.read(&mut buffer).map(drop)
}

/// Certificate authority of the test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn certificates(&self) -> Certificates {
        Certificates { own: self.server(NAME), other: self.server("other.example") }
    }

    fn server(&self, name: &str) -> Arc<ServerConfig> {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_no_client_auth();
        Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap())
    }

    /// Returns the TLS settings of clients that trust this authority.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Arc::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
    }
}

/// Returns the server name that TLS clients verify.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}
