//! Test support: starts the control server and `tidegate-sync` as real processes on loopback that end with
//! the test.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test's helpers are tests, and each test uses some"
)]

pub mod docker;

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Timeout of every condition that a test waits for. Generous, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until the condition holds; panics with the last value on timeout.
pub fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_good: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if is_good(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "never: {what}; last seen: {seen:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Control server process of a test.
pub struct Api {
    child: Child,
    pub url: String,
    /// Token of the requests of the test, if the server requires authentication.
    token: Option<String>,
}

impl Api {
    pub fn start(store: &str, port: u16) -> Self {
        Self::start_with(store, port, &[])
    }

    /// Starts a server that requires authentication. The test uses the bootstrap token.
    pub fn secured() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bootstrap-token");
        let more = ["--auth", "required", "--bootstrap-token-file", file.to_str().unwrap()];
        let mut api = Self::start_with("memory:", 0, &more);
        api.token = Some(fs::read_to_string(&file).unwrap().trim().to_owned());
        api
    }

    /// Starts a server with more flags.
    pub fn memory_with(flags: &[&str]) -> Self {
        Self::start_with("memory:", 0, flags)
    }

    fn start_with(store: &str, port: u16, more: &[&str]) -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_tidegate-sync")).with_file_name("tidegate-api");
        assert!(binary.exists(), "tidegate-api is not built: cargo build -p api");
        let mut child = Command::new(binary)
            .env_clear()
            .args(["--listen", &format!("127.0.0.1:{port}"), "--store", store])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("tidegate-api listening on ")
            .unwrap_or_else(|| panic!("{line:?}"))
            .to_owned();
        Self { child, url, token: None }
    }

    pub fn memory() -> Self {
        Self::start("memory:", 0)
    }

    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Sends SIGTERM as a service manager does, and returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        assert!(
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success()
        );
        self.child.wait().unwrap().code()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a request and returns status and JSON.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.call_as(self.token.as_deref(), method, path, body)
    }

    /// Sends a request with a token and returns status and JSON.
    pub fn call_as(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        request(self.url.strip_prefix("http://").unwrap(), token, method, path, body).unwrap()
    }

    /// Creates a token with one role binding.
    pub fn create_token(&self, name: &str, binding: &Value) -> String {
        let body = serde_json::json!({ "name": name, "bindings": [binding] });
        let (status, made) = self.call("POST", "/v1/tokens", Some(&body));
        assert!((200..300).contains(&status), "{made}");
        made["token"].as_str().unwrap().to_owned()
    }

    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, None).1
    }

    /// Applies an object without an apply set.
    pub fn apply(&self, object: &Value) {
        let (status, answer) = self.call("POST", "/v1/apply", Some(object));
        assert_eq!(status, 200, "{answer}");
    }

    /// Returns the names of all objects of a kind, by its plural.
    pub fn names(&self, plural: &str) -> Vec<String> {
        let list = self.get(&format!("/v1/{plural}"));
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn revision(&self) -> Value {
        self.get("/v1/services")["metadata"]["resourceVersion"].clone()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `tidegate-sync` process of a test.
pub struct Sync {
    child: Child,
    listen: String,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Sync {
    pub fn start(apis: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = command(apis)
            .args(["--listen", &free])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, listen: free, log, _directory: directory }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the problems that `tidegate-sync` reports; empty if there are none.
    pub fn trouble(&self) -> String {
        match request(&self.listen, None, "GET", "/readyz", None) {
            Ok((200, _)) => String::new(),
            Ok((_, text)) => text.as_str().unwrap_or_default().to_owned(),
            Err(error) => error,
        }
    }

    pub fn wait_until_equal(&self) {
        eventually("in sync with the source", || self.trouble(), String::is_empty);
    }

    /// Returns the reported networks of the engine.
    pub fn networks(&self) -> Value {
        request(&self.listen, None, "GET", "/networks", None).map_or(Value::Null, |(_, networks)| networks)
    }

    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = request(&self.listen, None, "GET", "/metrics", None).ok()?;
        let text = text.as_str()?.to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("tidegate_sync_{name} ")))?;
        line.parse().ok()
    }

    /// Sends SIGUSR1, which confirms the removals that wait for confirmation.
    pub fn confirm(&self) {
        assert!(
            Command::new("kill").args(["-USR1", &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Sends SIGTERM as a service manager does, and returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        assert!(
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success()
        );
        self.child.wait().unwrap().code()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of tidegate-sync\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

pub fn command(apis: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-sync"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).args(["--api", apis]);
    command
}

/// Runs `tidegate-sync` to completion. Returns exit code, stdout and stderr.
pub fn run(apis: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(apis).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Replaces a file by renaming a new file, as editors do.
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn request(
    address: &str,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), String> {
    let say = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(say)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(say)?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    let credential = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{credential}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .map_err(say)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(say)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    Ok((status, serde_json::from_str(rest).unwrap_or_else(|_| Value::String(rest.to_owned()))))
}

/// Network namespace with loopback and a default route that leads nowhere; removed on drop.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// Runs a test and all its processes in a new network namespace.
pub fn in_namespace(name: &str, test: impl FnOnce() + Send) {
    let namespace = Namespace(format!("tg-{}-{name}", std::process::id()));
    let ip = |arguments: &[&str]| {
        assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
    };
    ip(&["netns", "add", &namespace.0]);
    let inside = |arguments: &[&str]| ip(&[&["-n", &namespace.0], arguments].concat());
    inside(&["link", "set", "lo", "up"]);
    inside(&["link", "add", "out", "type", "veth", "peer", "name", "away"]);
    inside(&["address", "add", "192.0.2.1/24", "dev", "out"]);
    inside(&["link", "set", "out", "up"]);
    inside(&["link", "set", "away", "up"]);
    inside(&["route", "add", "default", "via", "192.0.2.254"]);
    let place = File::open(format!("/run/netns/{}", namespace.0)).unwrap();
    thread::scope(|scope| {
        let test = scope.spawn(move || {
            nix::sched::setns(place, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            test();
        });
        if let Err(panic) = test.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
