//! Machines with the addresses that the README uses, each with a name, a working directory and its own
//! `/var/lib`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use lab::{
    cluster::{control::Http, etcd},
    host::netns::{self, Namespace},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use tempfile::TempDir;

/// Returns a value of the variable `PATH` that starts with the directory of the built binaries.
fn path() -> String {
    let built = binaries::find("tidegate-api").unwrap();
    format!("{}:{}", built.parent().unwrap().display(), std::env::var("PATH").unwrap())
}

/// Switch, the machines connected to it, and the programs that run on them.
pub(crate) struct Stage {
    // Field order: processes end before their namespaces are removed.
    programs: BTreeMap<String, Process>,
    machines: BTreeMap<&'static str, Namespace>,
    switch: Namespace,
    directory: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let switch = Namespace::new("fabric").unwrap();
        switch.ip(&["link add switch type bridge", "link set switch up"]).unwrap();
        let directory = tempfile::Builder::new().prefix("tidegate-readme-").tempdir().unwrap();
        Self { programs: BTreeMap::new(), machines: BTreeMap::new(), switch, directory }
    }

    /// Adds a machine with the address 10.0.0.`host`.
    pub(crate) fn add(&mut self, machine: &'static str, host: u8) {
        let namespace = Namespace::new(machine).unwrap();
        let port = format!("port{host}");
        netns::join((&self.switch, &port), (&namespace, "eth0")).unwrap();
        self.switch.ip(&[format!("link set {port} master switch")]).unwrap();
        // A default route, as on a real machine: the kernel needs a route before rules see a virtual address.
        let lines = [format!("addr add 10.0.0.{host}/24 dev eth0"), "route add default dev eth0".to_owned()];
        namespace.ip(&lines).unwrap();
        fs::create_dir(self.directory.path().join(machine)).unwrap();
        self.machines.insert(machine, namespace);
    }

    /// Returns the path of a file in the working directory of a machine.
    pub(crate) fn file(&self, machine: &str, name: &str) -> PathBuf {
        self.directory.path().join(machine).join(name)
    }

    pub(crate) fn place(&self, machine: &str) -> &Namespace {
        &self.machines[machine]
    }

    /// Runs a command on a machine and returns its stdout.
    ///
    /// # Errors
    /// Returns its stderr if it fails.
    pub(crate) fn run(&self, machine: &str, command: &str) -> anyhow::Result<String> {
        let directory = self.file(machine, "");
        let script = format!("cd '{}'; PATH='{}'\n{command}\n", directory.display(), path());
        self.place(machine).run("sh", &["-ec", &script])
    }

    /// Starts a command on a machine. The command continues to run in the background under the name
    /// `program`.
    pub(crate) fn start(&mut self, machine: &str, program: &str, command: &str) {
        let directory = self.file(machine, "");
        let script = format!(
            "hostname {machine}; mount -t tmpfs {machine} /var/lib; cd '{}'; PATH='{}'\nexec {command}\n",
            directory.display(),
            path()
        );
        let label = format!("{program} of {machine}");
        let process = Process::start(Plan {
            label: label.clone(),
            namespace: self.place(machine).clone(),
            program: "unshare".into(),
            arguments: ["--uts", "sh", "-ec", &script].map(str::to_owned).into(),
            environment: Vec::new(),
            log: self.file(machine, &format!("{program}.log")),
        });
        self.programs.insert(label, process.unwrap());
    }

    /// Starts an etcd member on each of `machines`, given as name and last octet of the address, and waits
    /// until they have elected a leader.
    pub(crate) fn start_etcd(&mut self, machines: &[(&'static str, u8)]) {
        let addresses: Vec<_> = machines.iter().map(|(_, host)| [10, 0, 0, *host].into()).collect();
        for (index, (machine, _)) in machines.iter().enumerate() {
            let arguments = etcd::arguments(index, &addresses, self.directory.path()).join(" ");
            self.start(machine, "etcd", &format!("etcd {arguments}"));
        }
        for ((machine, _), address) in machines.iter().zip(addresses) {
            let http = Http::new(self.place(machine), (address, etcd::CLIENT_PORT).into());
            self.program(machine, "etcd").wait_ready(|| etcd::has_leader(&http)).unwrap();
        }
    }

    pub(crate) fn program(&mut self, machine: &str, program: &str) -> &mut Process {
        self.programs.get_mut(&format!("{program} of {machine}")).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (label, program) in &self.programs {
                eprintln!("--- {label} ---\n{}", program.log_tail());
            }
        }
    }
}
