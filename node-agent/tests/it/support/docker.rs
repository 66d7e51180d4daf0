//! Docker engine inside a network namespace, with one image and without access to a registry.
//!
//! Published ports use Docker's rules only (`--userland-proxy=false`): the userland proxy would respond even
//! if the rules did not work.

use std::{
    fs::{self, File},
    net::IpAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Namespace, dir::StateDir, run};

/// Maximum time for the engine or a container to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

const IMAGE: &str = "tidegate-test:1";

/// Program that is the only content of the image. Without argument, replies `container source-address` on
/// port 80; with an address as argument, connects to it and prints the reply.
const PROGRAM: &str = r#"
use std::{env, io::{Read, Write}, net::{TcpListener, TcpStream}};
fn main() {
    if let Some(address) = env::args().nth(1) {
        let mut answer = String::new();
        TcpStream::connect(address).unwrap().read_to_string(&mut answer).unwrap();
        print!("{answer}");
        return;
    }
    for stream in TcpListener::bind("[::]:80").unwrap().incoming() {
        let Ok(mut stream) = stream else { continue };
        let Ok(peer) = stream.peer_addr() else { continue };
        let _ = write!(stream, "container {}", peer.ip().to_canonical());
    }
}
"#;

/// Docker engine in a namespace. Dropping it removes the engine, its containers and its files.
pub struct Docker<'a> {
    namespace: &'a Namespace,
    daemon: Child,
    cgroup: String,
    dir: StateDir,
}

impl<'a> Docker<'a> {
    /// Starts the engine and builds the image.
    pub fn start(namespace: &'a Namespace, test: &str) -> Self {
        let dir = StateDir::new(&format!("{test}-docker"));
        let cgroup = format!("tg-{test}-{}", std::process::id());
        let daemon = spawn(namespace, dir.path(), &cgroup);
        let docker = Self { namespace, daemon, cgroup, dir };
        docker.wait_until_it_answers();
        docker.make_image();
        docker
    }

    /// Restarts the engine and waits until its containers run again.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = spawn(self.namespace, self.dir.path(), &self.cgroup);
        self.wait_until_it_answers();
    }

    /// Starts a container and publishes `ports` of it. The container starts again whenever the engine starts.
    pub fn publish(&self, name: &str, ports: &str) {
        self.client(&[
            "run",
            "--detach",
            "--restart=always",
            "--stop-signal=SIGKILL",
            "--name",
            name,
            "--publish",
            ports,
            IMAGE,
            "/program",
        ]);
    }

    /// Returns the address of a container.
    pub fn address(&self, name: &str) -> IpAddr {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let address = self.client(&["inspect", "--format", format, name]);
        address.trim().parse().unwrap_or_else(|_| panic!("{name} has no address: {address:?}"))
    }

    /// Connects from inside a container to `address` (IP address and port), and returns the reply.
    pub fn ask_from(&self, name: &str, address: &str) -> String {
        self.client(&["exec", name, "/program", address])
    }

    /// Runs the `docker` command for this engine and returns its output.
    fn client(&self, arguments: &[&str]) -> String {
        run("docker", &[&["--host", &socket(self.dir.path())], arguments].concat())
    }

    fn make_image(&self) {
        let in_dir = |name: &str| self.dir.path().join(name).display().to_string();
        let (source, archive) = (in_dir("program.rs"), in_dir("image.tar"));
        fs::write(&source, PROGRAM).unwrap();
        let options = ["--edition=2024", "-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-o"];
        run("rustc", &[&options[..], &[&in_dir("program"), &source]].concat());
        run("tar", &["-cf", &archive, "-C", &self.dir.path().display().to_string(), "program"]);
        self.client(&["import", &archive, IMAGE]);
    }

    fn wait_until_it_answers(&self) {
        let end = Instant::now() + PATIENCE;
        let host = socket(self.dir.path());
        while !Command::new("docker").args(["--host", &host, "version"]).output().unwrap().status.success() {
            assert!(Instant::now() < end, "the engine does not answer: {}", log(self.dir.path()));
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops the engine with SIGTERM, as a service manager does. Returns true if it ended without being
    /// killed.
    fn stop(&mut self) -> bool {
        let pid = Pid::from_raw(i32::try_from(self.daemon.id()).expect("process ids are small"));
        let _ = kill(pid, Signal::SIGTERM);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.daemon.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        false
    }
}

impl Drop for Docker<'_> {
    fn drop(&mut self) {
        let host = socket(self.dir.path());
        let client = |arguments: &[&str]| {
            let output = Command::new("docker").args(["--host", &host]).args(arguments).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
        };
        let containers = client(&["ps", "--all", "--quiet"]);
        let containers: Vec<_> = containers.split_whitespace().collect();
        if !containers.is_empty() {
            client(&[&["rm", "--force"], &containers[..]].concat());
        }
        self.stop();
        remove_cgroups(&self.cgroup);
    }
}

/// Starts the engine from a thread inside the namespace, because `ip netns exec` would hide the control
/// groups. The engine's directories are below `dir`.
fn spawn(namespace: &Namespace, dir: &Path, cgroup: &str) -> Child {
    let in_dir = |name: &str| dir.join(name).display().to_string();
    fs::write(dir.join("daemon.json"), "{}").unwrap();
    let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    namespace.run(|| {
        Command::new("dockerd")
            .args(["--config-file", &in_dir("daemon.json"), "--host", &socket(dir)])
            .args([
                "--data-root",
                &in_dir("data"),
                "--exec-root",
                &in_dir("exec"),
                "--pidfile",
                &in_dir("pid"),
            ])
            .args([
                "--storage-driver=vfs",
                "--userland-proxy=false",
                "--exec-opt=native.cgroupdriver=cgroupfs",
            ])
            .arg(format!("--cgroup-parent=/{cgroup}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("dockerd (Debian package docker.io): {error}"))
    })
}

fn socket(dir: &Path) -> String {
    format!("unix://{}/socket", dir.display())
}

fn log(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Removes the empty control groups that the engine leaves: a single tree (cgroup v2), or one tree per
/// controller (v1).
fn remove_cgroups(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let _ = fs::remove_dir(root.join(name));
    for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(hierarchy.path().join(name));
    }
}
