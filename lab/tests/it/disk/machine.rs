//! A control server with a separate disk for its data directory.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::control::Http,
    host::{netns::Namespace, shell},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::json;
use tempfile::TempDir;

/// Padding per object in bytes, so that a disk is full after some hundred writes.
const PADDING: usize = 4096;

/// Kind of disk: its file system and the manner in which it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A file system of a few megabytes in memory: a write reports at once that there is no space.
    Small,
    /// A file system on a thinly provisioned medium: only fsync reports that there is no space.
    Thin,
}

/// Control server with its own disk.
pub(crate) struct Machine {
    pub(crate) server: Process,
    pub(crate) api: Http,
    /// Process that keeps the disk mounted while the server is down.
    holder: Process,
    medium: Medium,
    directory: TempDir,
}

impl Machine {
    pub(crate) fn start(medium: Medium) -> Self {
        let directory = tempfile::Builder::new().prefix("tidegate-disk-").tempdir().unwrap();
        let place = Namespace::new("disk").unwrap();
        for name in ["disk", "medium"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let start = |label: &str, program: &str, arguments: Vec<String>| {
            Process::start(Plan {
                label: label.to_owned(),
                namespace: place.clone(),
                program: program.into(),
                arguments,
                environment: Vec::new(),
                log: directory.path().join(format!("{label}.log")),
            })
            .unwrap()
        };
        // `ip netns exec` gives each program its own mount namespace, so only the holder and processes that
        // join it have the disk.
        let hold = format!("{}\necho ready\nexec sleep infinity", make(medium, directory.path()));
        let mut holder = start("holder", "sh", vec!["-ec".to_owned(), hold]);
        let log = directory.path().join("holder.log");
        let is_made = || {
            ensure!(fs::read_to_string(&log)?.contains("ready"), "there is no disk");
            Ok(())
        };
        holder.wait_ready(is_made).unwrap();
        let server = binaries::find("tidegate-api").unwrap().display().to_string();
        let store = format!("--store=sqlite:{}", directory.path().join("disk/control.sqlite").display());
        let arguments = [server, "--listen=127.0.0.1:7440".to_owned(), store];
        let server = start("server", "nsenter", join(&holder).into_iter().chain(arguments).collect());
        let api = Http::new(&place, "127.0.0.1:7440".parse().unwrap());
        let mut machine = Self { server, api, holder, medium, directory };
        machine.wait_ready();
        machine
    }

    pub(crate) fn wait_ready(&mut self) {
        let api = self.api.clone();
        self.server.wait_ready(|| api.get("/readyz")?.success().map(drop)).unwrap();
    }

    /// Returns the path of the file that fills the disk, which only the process `holder` has mounted.
    pub(crate) fn filler(&self) -> PathBuf {
        let place = match self.medium {
            Medium::Small => "disk/filler",
            Medium::Thin => "medium/filler",
        };
        let own = self.directory.path().join(place);
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid().unwrap()));
        root.join(own.strip_prefix("/").unwrap())
    }

    /// Fills all remaining space of the disk.
    pub(crate) fn fill(&self) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.filler()).unwrap();
        for bytes in [65_536, 4096] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
    }

    /// Unmounts the file system, which discards unsynced data, and mounts it again.
    pub(crate) fn mount_again(&self) {
        let script =
            format!("umount '{0}/disk'\n{1}", self.directory.path().display(), mount(self.directory.path()));
        let mut arguments = join(&self.holder);
        arguments.extend(["sh".to_owned(), "-ec".to_owned(), script]);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        shell::run("nsenter", &arguments).unwrap();
    }

    /// Tries to create an object and returns the status: 201, or 503. For 503, asserts the error code.
    pub(crate) fn write(&self, name: &str) -> Result<u16> {
        let metadata = json!({"name": name, "annotations": {"padding": "x".repeat(PADDING)}});
        let object = json!({"metadata": metadata, "spec": {"clusterIP": "None"}});
        let answer = self.api.send_json("POST", "/v1/namespaces/default/services", &object)?;
        let is_told = answer.status != 503 || answer.json()["code"] == "Unavailable";
        ensure!(is_told, "refused in another way: {}", answer.text);
        Ok(answer.status)
    }

    pub(crate) fn names(&self) -> Result<BTreeSet<String>> {
        let (mut names, mut query) = (BTreeSet::new(), String::new());
        loop {
            let list = self.api.get_json(&format!("/v1/services?limit=500{query}"))?;
            let items = list["items"].as_array().context("no list")?;
            names.extend(items.iter().filter_map(|item| Some(item["metadata"]["name"].as_str()?.to_owned())));
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => query = format!("&continue={next}"),
                Some(_) | None => return Ok(names),
            }
        }
    }
}

/// Returns the `nsenter` arguments that enter the mount namespace of the process `holder`.
fn join(holder: &Process) -> Vec<String> {
    vec!["-t".to_owned(), holder.pid().unwrap().to_string(), "-m".to_owned()]
}

/// Returns the script that creates a disk and mounts it.
fn make(medium: Medium, directory: &Path) -> String {
    let at = directory.display();
    match medium {
        Medium::Small => format!("mount -t tmpfs -o size=4m disk '{at}/disk'"),
        Medium::Thin => format!(
            "mount -t tmpfs -o size=16m medium '{at}/medium'\ntruncate -s 48m '{at}/medium/image'\n\
             mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -J size=4 '{at}/medium/image'\n{}",
            mount(directory)
        ),
    }
}

fn mount(directory: &Path) -> String {
    format!("mount -o loop,errors=continue '{0}/medium/image' '{0}/disk'", directory.display())
}
