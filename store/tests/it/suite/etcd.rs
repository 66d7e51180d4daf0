//! Real etcd servers for tests. They use free loopback ports and always end with the test program.

use std::{
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Shell script that starts etcd, prints its process id, and terminates it at the end of standard input, that
/// is, with the test program.
const WRAPPER: &str = r#"
directory=$1; shift
exec 3<&0
etcd --data-dir "$directory" "$@" </dev/null >"$directory.log" 2>&1 &
server=$!
echo $server
cat <&3 >/dev/null &
wait -n
kill -KILL $server $! 2>/dev/null
rm -rf "$directory" "$directory.log"
"#;
/// Maximum startup time of servers on a busy machine.
const START: Duration = Duration::from_secs(60);

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Running etcd cluster of one or more members.
pub(crate) struct Cluster {
    members: Vec<Member>,
    ctl_flags: Vec<String>,
}

struct Member {
    wrapper: Child,
    process: u32,
    url: String,
}

impl Cluster {
    /// Returns the etcd server that all tests of this program share. The first call starts it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(1, &[]))
    }

    /// Starts a cluster of `size` members with additional etcd flags. Retries with other ports if another
    /// program takes a chosen one.
    pub(crate) fn start(size: usize, flags: &[&str]) -> Self {
        Self::start_as("http", size, flags)
    }

    /// Starts a cluster of one member with TLS, with additional flags for etcd and for `etcdctl`.
    pub(crate) fn start_with_tls(flags: &[&str], ctl_flags: &[&str]) -> Self {
        let mut cluster = Self::start_as("https", 1, flags);
        cluster.ctl_flags = ctl_flags.iter().map(|flag| (*flag).to_owned()).collect();
        cluster
    }

    fn start_as(scheme: &str, size: usize, flags: &[&str]) -> Self {
        for _ in 0..5 {
            if let Some(cluster) = Self::try_start(scheme, size, flags) {
                return cluster;
            }
        }
        panic!("etcd does not start; is it installed?");
    }

    fn try_start(scheme: &str, size: usize, flags: &[&str]) -> Option<Self> {
        // All listeners are kept open until all ports are known, so that the ports are distinct.
        let listeners: Vec<_> = (0..2 * size).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        drop(listeners);
        let (clients, peers) = addresses.split_at(size);
        let clients: Vec<_> = clients.iter().map(|address| format!("{scheme}://{address}")).collect();
        let peers: Vec<_> = peers.iter().map(|address| format!("http://{address}")).collect();
        let names: Vec<_> = (0..size).map(|n| format!("m{n}={}", peers[n])).collect();
        let run = NEXT.fetch_add(1, Ordering::Relaxed);
        let start = |n: usize| {
            let directory = std::env::temp_dir().join(format!("tg-etcd-{}-{run}-{n}", std::process::id()));
            let mut wrapper = Command::new("bash")
                .args(["-c", WRAPPER, "etcd-of-a-test"])
                .arg(directory)
                .args(["--name", &format!("m{n}"), "--log-level", "error", "--logger", "zap"])
                .args(["--listen-client-urls", &clients[n], "--advertise-client-urls", &clients[n]])
                .args(["--listen-peer-urls", &peers[n], "--initial-advertise-peer-urls", &peers[n]])
                .args(["--initial-cluster", &names.join(",")])
                .args(["--initial-cluster-token", &format!("{}-{run}", std::process::id())])
                .args(flags)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(wrapper.stdout.take().unwrap()).read_line(&mut line).unwrap();
            Member { wrapper, process: line.trim().parse().unwrap(), url: clients[n].clone() }
        };
        let mut cluster = Self { members: (0..size).map(start).collect(), ctl_flags: Vec::new() };
        let end = Instant::now() + START;
        while Instant::now() < end {
            let has_ended = |member: &mut Member| member.wrapper.try_wait().unwrap().is_some();
            if cluster.members.iter_mut().any(has_ended) {
                return None;
            }
            if cluster.members.iter().all(|member| is_open(&member.url)) {
                return Some(cluster);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Returns the URL with which a store in the cluster is opened.
    pub(crate) fn url(&self) -> String {
        let urls: Vec<_> = self.members.iter().map(|member| member.url.as_str()).collect();
        format!("etcd:{}", urls.join(","))
    }

    /// Sends a signal such as `STOP` to the member with this number.
    pub(crate) fn signal(&self, number: usize, signal: &str) {
        let process = self.members[number].process.to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        // One thread handles SIGSTOP; on a loaded machine, the others run until it does.
        let is_stopped = || {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
            })
        };
        while signal == "STOP" && !is_stopped() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `etcdctl` against the first member and returns its output; panics if it fails.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// Runs `etcdctl` against the first member and returns its output, or its error if it fails.
    pub(crate) fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.members[0].url, "--command-timeout", "60s"])
            .args(&self.ctl_flags)
            .args(arguments)
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            drop(member.wrapper.stdin.take());
            let _ = member.wrapper.wait();
        }
    }
}

fn is_open(url: &str) -> bool {
    let address = url.split_once("://").unwrap().1.parse().unwrap();
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Returns a key prefix that no other store of this test program uses.
pub(crate) fn fresh_prefix() -> String {
    format!("/tg-{}/", NEXT.fetch_add(1, Ordering::Relaxed))
}
