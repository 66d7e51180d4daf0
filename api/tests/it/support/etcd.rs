//! Real etcd server for tests on free loopback ports, which always stops with the test program.

use std::{
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Shell script that runs etcd and stops it when its standard input is closed, that is, when the test program
/// ends.
const WRAPPER: &str = r#"
directory=$1; shift
exec 3<&0
etcd --data-dir "$directory" "$@" </dev/null >"$directory.log" 2>&1 &
server=$!
echo started
cat <&3 >/dev/null &
wait -n
kill -KILL $server $! 2>/dev/null
rm -rf "$directory" "$directory.log"
"#;
/// Time limit for the start of etcd on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Running etcd server with one member.
pub(crate) struct Etcd {
    wrapper: Child,
    address: String,
}

impl Etcd {
    /// Starts etcd. Retries with other ports if another process has opened them first.
    pub(crate) fn start() -> Self {
        (0..5).find_map(Self::try_start).expect("etcd does not start; is it installed?")
    }

    fn try_start(attempt: usize) -> Option<Self> {
        // Both listeners stay open until both ports are known, so that they differ.
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [address, peer] = listeners.map(|one| one.local_addr().unwrap().to_string());
        let (url, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let directory = std::env::temp_dir().join(format!("tg-etcd-{}-{attempt}", std::process::id()));
        let mut wrapper = Command::new("bash")
            .args(["-c", WRAPPER, "etcd-of-a-test"])
            .arg(directory)
            .args(["--name", "m0", "--log-level", "error", "--logger", "zap"])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("m0={peer}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        BufReader::new(wrapper.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let mut etcd = Self { wrapper, address };
        let end = Instant::now() + START;
        while Instant::now() < end && etcd.wrapper.try_wait().unwrap().is_none() {
            if TcpStream::connect(&etcd.address).is_ok() {
                return Some(etcd);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Returns the URL of a store in this etcd, with a key prefix of its own.
    pub(crate) fn url(&self) -> String {
        format!("etcd:http://{}", self.address)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Closing the input stops the server; wait until it has cleaned up.
        drop(self.wrapper.stdin.take());
        let _ = self.wrapper.wait();
    }
}
