//! Network namespaces, and the thread of the workload network of a node.

use std::{
    fs::File,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use model::primitives::name::Name;
use network::{
    desired::{Block, DesiredNetwork, Encapsulation, NetworkSettings, TunnelKind},
    follow,
    run::{self, NetworkConfig, NetworkShown},
    serve,
};
use nix::sched::{CloneFlags, setns};
use tokio::{
    runtime::Runtime,
    sync::{Notify, watch},
};
use tokio_util::sync::CancellationToken;

static SEQUENCE: AtomicUsize = AtomicUsize::new(0);

/// Network namespace, deleted when dropped.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    pub(crate) fn new(role: &str) -> Self {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tgc-{}-{sequence}-{role}", std::process::id());
        run_program("ip", &["netns", "add", &name]);
        Self { name }
    }

    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    pub(crate) fn ip(&self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        run_program("ip", &[&["-n", &self.name], words.as_slice()].concat())
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                setns(File::open(self.path()).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

fn run_program(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Node with the thread of the workload network and its socket, without a control server.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
    dir: tempfile::TempDir,
    desired: watch::Sender<Option<DesiredNetwork>>,
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    stop: CancellationToken,
    thread: JoinHandle<()>,
    shown: watch::Receiver<NetworkShown>,
}

impl Node {
    pub(crate) fn start() -> Self {
        let mut node = Self {
            namespace: Namespace::new("node"),
            dir: tempfile::tempdir().unwrap(),
            desired: watch::Sender::new(None),
            running: None,
        };
        node.boot("boot");
        node
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("network.sock")
    }

    /// Gives the node a block of each family.
    pub(crate) fn give_blocks(&self) {
        let name = |text: &str| Name::parse(text).unwrap();
        let mut desired = DesiredNetwork::default();
        let settings = NetworkSettings {
            cidrs: ["10.9.0.0/16", "fd09::/16"].map(|cidr| cidr.parse().unwrap()).into(),
            nat_outgoing: false,
            nat_except: std::collections::BTreeSet::new(),
            encapsulation: Encapsulation::None,
            tunnel: TunnelKind::Vxlan,
            reserved: Vec::new(),
            cooldown: Duration::from_secs(60),
            mtu: None,
        };
        desired.networks.insert(name("pods"), settings);
        for range in ["10.9.1.0/24", "fd09:1::/120"] {
            let block = Block { network: name("pods"), node: name("a"), is_draining: false };
            desired.blocks.insert(range.parse().unwrap(), block);
        }
        self.desired.send_replace(Some(desired));
        // Published after the pass that programs the blocks.
        let mut shown = self.running.as_ref().unwrap().shown.clone();
        let runtime = &self.running.as_ref().unwrap().runtime;
        let wait = async { shown.wait_for(|shown| shown.status.blocks == 2).await.map(|_| ()) };
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(10), wait).await })
            .unwrap()
            .unwrap();
    }

    /// Starts the thread anew, in a boot of the machine.
    pub(crate) fn boot(&mut self, boot: &str) {
        self.stop();
        let runtime = Runtime::new().unwrap();
        let config = NetworkConfig {
            own: Name::parse("a").unwrap(),
            state_dir: self.dir.path().to_owned(),
            boot: boot.to_owned(),
        };
        let (desired, socket, stop) = (self.desired.subscribe(), self.socket(), CancellationToken::new());
        let (handle, thread) = self.namespace.inside(|| {
            let _entered = runtime.enter();
            let events = Arc::new(Notify::new());
            follow::start(Arc::clone(&events)).unwrap();
            run::start(&config, desired, events).unwrap()
        });
        let shown = handle.shown();
        let listener = {
            let _entered = runtime.enter();
            serve::listen(&socket).unwrap()
        };
        runtime.spawn(serve::run(listener, handle, stop.clone()));
        self.running = Some(Running { runtime, stop, thread, shown });
    }

    /// Stops the thread; the kernel stays as it is.
    pub(crate) fn stop(&mut self) {
        if let Some(Running { runtime, stop, thread, shown: _ }) = self.running.take() {
            stop.cancel();
            runtime.shutdown_timeout(Duration::from_secs(5));
            thread.join().unwrap();
        }
    }
}
