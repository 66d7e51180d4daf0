//! Other people's routing daemons, each with a directory and sockets of its own; killed with their guards.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::unistd::{Group, User, chown};
use serde_json::Value;

use super::{Namespace, bfd::eventually};

/// A directory for configuration and sockets.
struct Place(PathBuf);

impl Place {
    fn new(namespace: &Namespace, program: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{}-{program}", namespace.name()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.file(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A daemon in the foreground of a namespace.
struct Daemon(Child);

impl Daemon {
    fn start(namespace: &Namespace, place: &Place, command: &[&str]) -> Self {
        let log = fs::File::create(place.0.join(format!("{}.log", command[0].replace('/', "-")))).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", namespace.name()])
            .args(command)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// FRR: zebra and one daemon.
pub struct Frr {
    daemons: Vec<Daemon>,
    namespace: String,
    place: Place,
}

impl Frr {
    /// Starts zebra and `bfdd` with a configuration.
    pub fn bfdd(namespace: &Namespace, configuration: &str) -> Self {
        let place = Place::new(namespace, "frr");
        place.write("zebra.conf", "");
        place.write("vtysh.conf", "");
        place.write("bfdd.conf", configuration);
        let user = User::from_name("frr").unwrap().expect("FRR is installed").uid;
        let group = Group::from_name("frr").unwrap().expect("FRR is installed").gid;
        chown(&place.0, Some(user), Some(group)).unwrap();
        let mut frr = Self { daemons: Vec::new(), namespace: namespace.name().to_owned(), place };
        frr.start(namespace, "zebra", &[]);
        let control = frr.place.file("bfdd.sock");
        frr.start(namespace, "bfdd", &["--bfdctl", &control]);
        frr
    }

    fn start(&mut self, namespace: &Namespace, daemon: &str, more: &[&str]) {
        let (program, configuration) =
            (format!("/usr/lib/frr/{daemon}"), self.place.file(&format!("{daemon}.conf")));
        let (pid, zebra) = (self.place.file(&format!("{daemon}.pid")), self.place.file("zserv.api"));
        let directory = self.place.0.to_str().unwrap();
        let arguments = ["-f", &configuration, "-i", &pid, "-z", &zebra, "--vty_socket", directory];
        let command = [&[program.as_str()], &arguments[..], &["--log", "stdout"], more].concat();
        self.daemons.push(Daemon::start(namespace, &self.place, &command));
        let terminal = self.place.file(&format!("{daemon}.vty"));
        eventually(&format!("{daemon} runs"), || Path::new(&terminal).exists(), || self.log());
    }

    /// Runs commands of the FRR shell, one after the other.
    pub fn vtysh(&self, commands: &[&str]) -> String {
        let arguments: Vec<_> = commands.iter().flat_map(|command| ["-c", command]).collect();
        let directory = self.place.0.to_str().unwrap();
        let prefix = ["netns", "exec", &self.namespace, "vtysh", "--vty_socket", directory];
        super::run("ip", &[&prefix[..], &arguments].concat())
    }

    /// What `show … json` says.
    pub fn show(&self, what: &str) -> Value {
        let text = self.vtysh(&[&format!("show {what} json")]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// What it says of the BFD session with a peer.
    pub fn bfd_peer(&self, peer: &str) -> Value {
        let peers = self.show("bfd peers");
        let found = peers.as_array().unwrap().iter().find(|entry| entry["peer"] == peer);
        found.cloned().unwrap_or_default()
    }

    /// How often the BFD session with a peer came up and went down.
    pub fn bfd_changes(&self, peer: &str) -> (u64, u64) {
        let peers = self.show("bfd peers counters");
        let entry = peers.as_array().unwrap().iter().find(|entry| entry["peer"] == peer).unwrap();
        (entry["session-up"].as_u64().unwrap(), entry["session-down"].as_u64().unwrap())
    }

    fn log(&self) -> String {
        let logs = fs::read_dir(&self.place.0).unwrap().flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

/// BIRD 2.
pub struct Bird {
    _daemon: Daemon,
    namespace: String,
    place: Place,
}

impl Bird {
    pub fn start(namespace: &Namespace, configuration: &str) -> Self {
        let place = Place::new(namespace, "bird");
        let configuration = place.write("bird.conf", configuration);
        let (control, pid) = (place.file("bird.ctl"), place.file("bird.pid"));
        let command = ["bird", "-f", "-c", &configuration, "-s", &control, "-P", &pid];
        let daemon = Daemon::start(namespace, &place, &command);
        let log = place.0.join("bird.log");
        eventually(
            "bird runs",
            || Path::new(&control).exists(),
            || fs::read_to_string(&log).unwrap_or_default(),
        );
        Self { _daemon: daemon, namespace: namespace.name().to_owned(), place }
    }

    pub fn birdc(&self, command: &[&str]) -> String {
        let control = self.place.file("bird.ctl");
        let prefix = ["netns", "exec", &self.namespace, "birdc", "-s", &control];
        super::run("ip", &[&prefix[..], command].concat())
    }

    /// Takes another configuration.
    pub fn configure(&self, configuration: &str) {
        self.place.write("bird.conf", configuration);
        let answer = self.birdc(&["configure"]);
        assert!(answer.contains("Reconfigur"), "{answer}");
    }

    /// The columns of a BFD session: address, interface, state, since, interval, timeout.
    pub fn bfd_session(&self, peer: &str) -> Vec<String> {
        let text = self.birdc(&["show", "bfd", "sessions"]);
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(peer));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    pub fn bfd_is_up(&self, peer: &str) -> bool {
        self.bfd_session(peer).get(2).is_some_and(|state| state == "Up")
    }
}
