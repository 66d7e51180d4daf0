//! Test support: Docker engine with a single locally built image.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test's helpers are tests, and each test uses some"
)]

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use super::eventually;

/// Source code of the only program in the image. It serves its name on port 80 or `PORT`; as `check` it
/// is the health check, controlled by `sick` and `well`; as `ask` it is the client. As process 1 of its
/// container it ignores SIGTERM.
const PROGRAM: &str = r#"
use std::{env, fs, io::{Read, Write}, net::{TcpListener, TcpStream}, process::exit, time::Duration};
fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("ask") => {
            let address = arguments[2].parse().unwrap();
            let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else { exit(1) };
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).is_err() { exit(1) }
            print!("{answer}");
        }
        Some("check") => exit(i32::from(fs::metadata("/sick").is_ok())),
        Some("sick") => drop(fs::write("/sick", "").unwrap()),
        Some("well") => fs::remove_file("/sick").unwrap(),
        _ => {
            let port: u16 = env::var("PORT").map_or(80, |port| port.parse().unwrap());
            for stream in TcpListener::bind(("::", port)).unwrap().incoming() {
                let Ok(mut stream) = stream else { continue };
                let _ = write!(stream, "{}", env::var("NAME").unwrap());
            }
        }
    }
}
"#;

const IMAGE_FILE: &str = "FROM scratch\nCOPY program /program\nEXPOSE 80\n\
    HEALTHCHECK --interval=300ms --timeout=5s --retries=1 CMD [\"/program\", \"check\"]\nENTRYPOINT [\"/program\"]\n";

/// Docker engine of a test, whose containers are removed when it is dropped.
pub struct Engine {
    daemon: Child,
    directory: tempfile::TempDir,
    cgroup: String,
    is_apart: bool,
}

impl Engine {
    /// Starts an engine in the caller's network namespace.
    pub fn start() -> Self {
        Self::start_in(false)
    }

    /// Starts an engine on a simulated separate machine, reachable only by its socket.
    pub fn start_apart() -> Self {
        Self::start_in(true)
    }

    fn start_in(is_apart: bool) -> Self {
        static ENGINES: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        let cgroup = format!("tg-sync-{}-{}", std::process::id(), ENGINES.fetch_add(1, Ordering::Relaxed));
        let daemon = Self::spawn(directory.path(), &cgroup, is_apart);
        let engine = Self { daemon, directory, cgroup, is_apart };
        engine.wait();
        let context = engine.path("context");
        fs::create_dir(&context).unwrap();
        fs::write(context.join("program.rs"), PROGRAM).unwrap();
        fs::write(context.join("Dockerfile"), IMAGE_FILE).unwrap();
        let compiled = Command::new("rustc")
            .args(["--edition=2024", "-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-o"])
            .args([context.join("program"), context.join("program.rs")])
            .status();
        assert!(compiled.unwrap().success());
        engine.docker(&["build", "--quiet", "--tag", "backend:1", context.to_str().unwrap()]);
        engine
    }

    fn spawn(directory: &Path, cgroup: &str, is_apart: bool) -> Child {
        let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
        fs::write(directory.join("daemon.json"), "{}").unwrap();
        let place = |name: &str| directory.join(name).display().to_string();
        let mut command = Command::new(if is_apart { "unshare" } else { "dockerd" });
        command
            .args(if is_apart { &["--net", "dockerd"][..] } else { &[] })
            .args(["--config-file", &place("daemon.json"), "--host", &format!("unix://{}", place("socket"))])
            .args(["--data-root", &place("data"), "--exec-root", &place("exec"), "--pidfile", &place("pid")])
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
            .expect("dockerd (Debian package docker.io)")
    }

    fn wait(&self) {
        let is_there = || self.try_docker(&["version"]).status.success();
        eventually("the engine answers", is_there, |is_there| *is_there);
    }

    pub fn restart(&mut self) {
        self.stop();
        self.daemon = Self::spawn(self.directory.path(), &self.cgroup, self.is_apart);
        self.wait();
    }

    pub fn stop(&mut self) {
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.daemon.wait();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self) -> String {
        format!("unix://{}", self.path("socket").display())
    }

    fn try_docker(&self, arguments: &[&str]) -> Output {
        Command::new("docker")
            .env("DOCKER_BUILDKIT", "0")
            .args(["--host", &self.socket()])
            .args(arguments)
            .output()
            .unwrap()
    }

    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a container that is a backend of the Service `web`.
    pub fn run(&self, name: &str, more: &[&str]) {
        let name_variable = format!("NAME={name}");
        let common =
            ["run", "--detach", "--name", name, "--env", &name_variable, "--label", "tidegate.service=web"];
        self.docker(&[&common, more, &["backend:1"]].concat());
    }

    /// Returns the name of the backend that responds at an address.
    pub fn ask(&self, address: &str) -> Option<String> {
        let output = Command::new(self.path("context/program")).args(["ask", address]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let containers =
            String::from_utf8(self.try_docker(&["ps", "--all", "--quiet"]).stdout).unwrap_or_default();
        let containers: Vec<_> = containers.split_whitespace().collect();
        if !containers.is_empty() {
            self.try_docker(&[&["rm", "--force"], &containers[..]].concat());
        }
        self.stop();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(&self.cgroup));
        }
        let _ = fs::remove_dir(Path::new("/sys/fs/cgroup").join(&self.cgroup));
    }
}
