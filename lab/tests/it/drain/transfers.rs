//! Test of long transfers during a drain of their backend: some complete, and others run until the deadline
//! resets them.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, wait},
    network::client::at,
};
use model::primitives::quantity::Timestamp;
use serde_json::json;

use super::tidegate;

const PORT: u16 = 9000;
/// Bytes that a slow transfer sends every [`PACE`].
const CHUNK: usize = 16 << 10;
const PACE: Duration = Duration::from_millis(10);
/// Interval between two segments of a nearly idle transfer, so that each is acknowledged long before the next.
const QUIET_PACE: Duration = Duration::from_millis(100);
/// Time without data after which a transfer counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Number of further bytes that must arrive to prove that a transfer continues.
const FURTHER: u64 = 1000;

/// Direction of a transfer, and the event that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The server sends until the test orders it to finish.
    Finite,
    /// The server sends without end.
    Endless,
    /// The server sends a small chunk every [`QUIET_PACE`], without end.
    Quiet,
    /// The client sends without end.
    Upload,
}

impl Manner {
    const ALL: [Self; 4] = [Self::Finite, Self::Endless, Self::Quiet, Self::Upload];

    const fn word(self) -> &'static str {
        match self {
            Self::Finite => "finite",
            Self::Endless => "endless",
            Self::Quiet => "quiet",
            Self::Upload => "upload",
        }
    }
}

/// Transfer server that first sends its name. The threads of the server end with their connections.
struct Server {
    is_all: Arc<AtomicBool>,
    /// Size of each finite transfer in bytes.
    sent: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    fn start(namespace: &Namespace, name: &str) -> Self {
        let server = Self { is_all: Arc::default(), sent: Arc::default() };
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listener = namespace.inside(|| TcpListener::bind(everywhere)).unwrap();
        let (name, is_all, sent) = (name.to_owned(), Arc::clone(&server.is_all), Arc::clone(&server.sent));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (name, is_all, sent) = (name.clone(), Arc::clone(&is_all), Arc::clone(&sent));
                thread::spawn(move || {
                    let _client_may_be_gone = serve(stream, &name, &is_all, &sent);
                });
            }
        });
        server
    }
}

fn serve(mut stream: TcpStream, name: &str, is_all: &AtomicBool, sent: &Mutex<Vec<u64>>) -> io::Result<()> {
    writeln!(stream, "{name}")?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut word = String::new();
    reader.read_line(&mut word)?;
    let chunk = pattern();
    match word.trim_end() {
        "upload" => io::copy(&mut reader, &mut io::sink()).map(drop),
        "quiet" => loop {
            stream.write_all(&chunk[..100])?;
            thread::sleep(QUIET_PACE);
        },
        "endless" => loop {
            stream.write_all(&chunk)?;
            thread::sleep(PACE);
        },
        _ => {
            let mut bytes = 0;
            while !is_all.load(Ordering::SeqCst) {
                stream.write_all(&chunk)?;
                bytes += chunk.len() as u64;
                thread::sleep(PACE);
            }
            sent.lock().unwrap().push(bytes);
            stream.shutdown(Shutdown::Both)
        }
    }
}

/// Returns the bytes of a transfer. A missing part changes the sequence, so that it is detected.
fn pattern() -> Vec<u8> {
    (0..CHUNK).map(|place| u8::try_from(place % 251).unwrap_or(0)).collect()
}

/// Result of a transfer as seen by its client.
struct End {
    at: SystemTime,
    /// `Ok` for an orderly close, otherwise the kind of the I/O error.
    how: Result<(), ErrorKind>,
}

/// Long transfer as seen by its client.
struct Transfer {
    manner: Manner,
    mode: &'static str,
    bytes: Arc<AtomicU64>,
    client: JoinHandle<End>,
}

impl Transfer {
    fn start(from: &Namespace, to: SocketAddr, manner: Manner, mode: &'static str) -> Self {
        let mut stream = from.inside(|| TcpStream::connect(to)).unwrap();
        stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut name = String::new();
        reader.read_line(&mut name).unwrap();
        assert_eq!(name, "web-1\n");
        writeln!(stream, "{}", manner.word()).unwrap();
        let bytes = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&bytes);
        let client = thread::spawn(move || {
            let how = match manner {
                Manner::Upload => upload(&mut stream, &counted),
                Manner::Quiet => download(&mut reader, &counted, 100),
                Manner::Finite | Manner::Endless => download(&mut reader, &counted, CHUNK),
            };
            End { at: SystemTime::now(), how: how.map_err(|error| error.kind()) }
        });
        Self { manner, mode, bytes, client }
    }

    fn wait_further(&self) {
        let before = self.bytes.load(Ordering::SeqCst);
        let what = format!("{:?} in {} mode to go on", self.manner, self.mode);
        wait::until_true(&what, || self.bytes.load(Ordering::SeqCst) >= before + FURTHER).unwrap();
        assert!(!self.client.is_finished(), "{what}: it has ended");
    }
}

fn download(reader: &mut impl Read, counted: &AtomicU64, period: usize) -> io::Result<()> {
    let expected = pattern();
    let mut buffer = [0; 4096];
    let mut place = 0;
    loop {
        let length = reader.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        for byte in &buffer[..length] {
            assert_eq!(*byte, expected[place], "something else than was sent");
            place = (place + 1) % period;
        }
        counted.fetch_add(length as u64, Ordering::SeqCst);
    }
}

fn upload(stream: &mut TcpStream, counted: &AtomicU64) -> io::Result<()> {
    let chunk = pattern();
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    loop {
        let length = stream.write(&chunk)?;
        counted.fetch_add(length as u64, Ordering::SeqCst);
        thread::sleep(PACE);
    }
}

/// Drains a workload with open transfers of each kind on a node in each of `modes`. Asserts that during the
/// drain all transfers continue, new connections reach other workloads, and finite transfers complete. The
/// other transfers are reset at the deadline, not earlier, and each client receives the reset.
pub(crate) fn outlast_a_drain_until_its_deadline(modes: &[&'static str]) {
    let nodes = u8::try_from(modes.len()).unwrap();
    let options = Options { nodes, modes: modes.to_vec(), ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    for number in 1..=nodes {
        cluster.add_place(&format!("inside-{number}"), &format!("node{number}"), 50).unwrap();
    }
    let servers = [("web-1", "node1".to_owned()), ("web-2", format!("node{nodes}"))].map(|(name, node)| {
        cluster.add_place(name, &node, if name == "web-1" { 11 } else { 12 }).unwrap();
        Server::start(cluster.place(name).unwrap(), name)
    });
    cluster.apply_objects(&[cluster.workload_record("web-1", "web").unwrap()]).unwrap();
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": PORT }] });
    cluster.add_service("web", spec).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let mut transfers = Vec::new();
    for (turn, mode) in modes.iter().enumerate() {
        let from = cluster.place(&format!("inside-{}", turn + 1)).unwrap();
        transfers.extend(Manner::ALL.map(|manner| Transfer::start(from, to, manner, mode)));
    }
    transfers.iter().for_each(Transfer::wait_further);
    cluster.apply_objects(&[cluster.workload_record("web-2", "web").unwrap()]).unwrap();
    cluster.wait_verified("default/web").unwrap();

    tidegate(&cluster, &["drain", "workload", "web-1", "--reason", "update"]).unwrap();
    cluster.wait_verified("default/web").unwrap();
    transfers.iter().for_each(Transfer::wait_further);
    for turn in 1..=modes.len() {
        let from = cluster.place(&format!("inside-{turn}")).unwrap();
        (0..10).for_each(|_| assert_eq!(who_answers(from, to), "web-2"));
    }
    servers[0].is_all.store(true, Ordering::SeqCst);
    let (finite, endless): (Vec<_>, Vec<_>) =
        transfers.into_iter().partition(|transfer| transfer.manner == Manner::Finite);
    let mut received: Vec<_> = finite
        .into_iter()
        .map(|transfer| {
            let end = transfer.client.join().unwrap();
            assert_eq!(end.how, Ok(()), "in {} mode", transfer.mode);
            transfer.bytes.load(Ordering::SeqCst)
        })
        .collect();
    let mut sent = servers[0].sent.lock().unwrap().clone();
    received.sort_unstable();
    sent.sort_unstable();
    assert_eq!(received, sent, "bytes of what finished");
    endless.iter().for_each(Transfer::wait_further);

    let said = tidegate(&cluster, &["drain", "workload", "web-1", "--deadline", "2s", "--wait"]).unwrap();
    assert!(said.ends_with("no connection is left\n"), "{said}");
    let drained = cluster.object("namespaces/default/workloads/web-1").unwrap();
    let deadline = drained["spec"]["maintenance"]["deadline"].as_str().unwrap().to_owned();
    let deadline = Timestamp::try_from(deadline).unwrap().unix_seconds();
    let deadline = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(deadline).unwrap());
    let mut untold = Vec::new();
    for transfer in endless {
        let end = transfer.client.join().unwrap();
        let (manner, mode) = (transfer.manner, transfer.mode);
        let after = end.at.duration_since(deadline);
        let after =
            after.unwrap_or_else(|error| panic!("{manner:?} in {mode} mode: {error} before the deadline"));
        println!("{manner:?} in {mode} mode: cut {} ms after the deadline: {:?}", after.as_millis(), end.how);
        if end.how == Err(ErrorKind::WouldBlock) {
            untold.push((manner, mode));
        }
    }
    assert_eq!(untold, [], "clients that nobody told that their connection was cut");
}

fn who_answers(from: &Namespace, to: SocketAddr) -> String {
    let stream = from.inside(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let mut name = String::new();
    BufReader::new(stream).read_line(&mut name).unwrap();
    name.trim_end().to_owned()
}
