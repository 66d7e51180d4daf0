//! Limits of `tidegate-dns`: forwarded questions, loops, clients, connections and error responses.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use serde_json::json;

use crate::{
    discovery::{Dns, SERVER, objects, question, start},
    forwarding::{UPSTREAM, explained, metric, start_upstream},
};

/// Number of different names that are asked in one round.
const NAMES: u32 = 10_000;
/// The same with `TIDEGATE_SOAK`.
const SOAK_NAMES: u32 = 200_000;
/// Number of rounds. In one of them, every name must be answered with its address. On a busy machine, a question may take
/// longer than the 2 s that an upstream server has.
const ROUNDS: u32 = 5;
/// Reciprocal of the share of a round's names that may fail in all rounds together.
const FAILED_SHARE: u32 = 100;
/// Time that an upstream server has for its response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Number of questions that wait for a response at once: more than the server asks at once.
const WINDOW: usize = 3000;
/// Time after which the upstream server answers each of them.
const SHORT_DELAY: Duration = Duration::from_millis(5);
/// Number of questions that are sent at once: more than the server asks at once, so that the others wait in its queue, and not more
/// than the receive buffer of the server holds.
const BURST: u16 = 2000;
/// Number of different questions that the server asks at once.
const IN_FLIGHT_MAX: u64 = 1000;
/// Number of bursts of which one must be answered completely. On a busy machine, a question may take longer than the 2 s that an upstream server has.
const BURSTS_MAX: usize = 5;
/// Time after which the upstream server answers, so that the queue fills.
const DELAY: Duration = Duration::from_millis(200);
/// Size of the receive buffers of the test in bytes.
const BUFFER_BYTES: usize = 8 << 20;
/// Corpus of the fuzz target with messages; the first byte of each file is no part of the message.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/dns_message");
/// Result code of a refused question.
const REFUSED: u8 = 5;

/// Binds a socket at a loopback address in the namespace of the server.
fn socket(dns: &Dns, address: &str) -> UdpSocket {
    let socket = dns.namespace.inside(|| UdpSocket::bind((address, 0)).unwrap());
    socket.connect(SERVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Upstream server that answers every question with one address after a delay.
pub(crate) struct DelayedServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DelayedServer {
    /// Starts the server beside `tidegate-dns`.
    pub(crate) fn start(dns: &Dns, port: u16, delay: Duration) -> Self {
        let socket = dns.namespace.inside(|| UdpSocket::bind(("127.0.0.1", port)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        setsockopt(&socket, RcvBufForce, &BUFFER_BYTES).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut waiting = VecDeque::new();
            let mut buffer = [0; 512];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((size, client)) = socket.recv_from(&mut buffer) {
                    waiting.push_back((Instant::now() + delay, address_answer(&buffer[..size]), client));
                }
                while waiting.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
                    let (_, answer, client) = waiting.pop_front().unwrap();
                    // The client may have a response already, and have closed its socket.
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for DelayedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a question for an address, without EDNS and a time to live.
fn address_answer(question: &[u8]) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let header = [question[0], question[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 9];
    [&header[..], &question[12..end], &record].concat()
}

/// Every one of many different names gets its answer, although many more questions wait than the server asks at once.
#[test]
fn f164_no_question_is_lost_at_many_different_names() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let _upstream = DelayedServer::start(&dns, 5301, SHORT_DELAY);
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.9")).unwrap();
    let names = if env::var_os("TIDEGATE_SOAK").is_some() { SOAK_NAMES } else { NAMES };
    let failed: Vec<_> = (0..ROUNDS).map(|round| ask_many(&dns, round, names)).collect();
    assert!(failed.contains(&0), "{failed:?}");
    let total: u32 = failed.iter().sum();
    assert!(total <= names / FAILED_SHARE, "{failed:?}");
    // Without a time to live, nothing is cached.
    assert!(metric(&dns, "tidegate_dns_upstream_questions_total") >= u64::from(ROUNDS * names));
    assert_eq!(metric(&dns, "tidegate_dns_upstream_in_flight"), 0);
}

/// Asks many different names, of which [`WINDOW`] wait at once. Every question must get a response, and none may fail
/// before the time of the upstream server has passed. Returns the number of those that failed.
fn ask_many(dns: &Dns, round: u32, names: u32) -> u32 {
    let socket = socket(dns, "127.0.0.1");
    setsockopt(&socket, RcvBufForce, &BUFFER_BYTES).unwrap();
    let (mut waiting, mut failed) = (BTreeMap::new(), 0);
    // The identifiers of DNS are used again after 65,536 questions.
    let mut questions =
        (0..names).map(|number| ((number & 0xffff) as u16, format!("n{number}.r{round}.many.example.com")));
    loop {
        for (id, name) in questions.by_ref().take(WINDOW - waiting.len()) {
            socket.send(&question(id, &name)).unwrap();
            assert!(waiting.insert(id, Instant::now()).is_none(), "question {id} is lost");
        }
        if waiting.is_empty() {
            return failed;
        }
        let mut answer = [0; 512];
        let size = socket.recv(&mut answer).unwrap_or_else(|error| {
            panic!("{error}: {} are lost and {failed} failed: {waiting:?}", waiting.len())
        });
        let id = u16::from_be_bytes([answer[0], answer[1]]);
        let sent = waiting.remove(&id).unwrap_or_else(|| panic!("{id} was answered before"));
        let is_answer =
            (answer[3] & 0xf, answer[7], answer[..size].last_chunk()) == (0, 1, Some(&[192, 0, 2, 9]));
        assert!(is_answer || sent.elapsed() >= RESPONSE_TIME_MAX, "failed after {:?}", sent.elapsed());
        failed += u32::from(!is_answer);
    }
}

/// Sends a burst of questions for different names. Returns the number of those that were answered with an address, and the
/// highest number of questions in flight.
fn burst(dns: &Dns, round: usize) -> (u16, u64) {
    let socket = socket(dns, "127.0.0.1");
    setsockopt(&socket, RcvBufForce, &BUFFER_BYTES).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let highest = scope.spawn(|| {
            let mut highest = 0;
            while !ended.load(Ordering::Relaxed) {
                highest = highest.max(metric(dns, "tidegate_dns_upstream_in_flight"));
            }
            highest
        });
        for id in 0..BURST {
            socket.send(&question(id, &format!("n{id}.r{round}.example.com"))).unwrap();
        }
        let mut answer = [0; 512];
        let receive = || socket.recv(&mut answer).ok().map(|_| answer[3] & 0xf == 0 && answer[7] == 1);
        let good = std::iter::from_fn(receive).take(BURST.into()).filter(|is_good| *is_good).count();
        ended.store(true, Ordering::Relaxed);
        (u16::try_from(good).unwrap(), highest.join().unwrap())
    })
}

/// At most 1,000 different questions are asked at once; the others wait in a queue until these are answered.
#[test]
fn f164_questions_wait_in_a_queue() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let _upstream = DelayedServer::start(&dns, 5301, DELAY);
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.9")).unwrap();
    let mut bursts = Vec::new();
    while bursts.last() != Some(&(BURST, IN_FLIGHT_MAX)) {
        assert!(bursts.len() < BURSTS_MAX, "{bursts:?}");
        bursts.push(burst(&dns, bursts.len()));
        assert!(bursts.iter().all(|(_, highest)| *highest <= IN_FLIGHT_MAX), "{bursts:?}");
    }
    wait::until_true("the end of all questions", || metric(&dns, "tidegate_dns_upstream_in_flight") == 0)
        .unwrap();
}

/// Questions for which no file is left wait for one, and the upstream server is not taken for one that fails.
#[test]
fn f164_questions_wait_for_files() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let _upstream = DelayedServer::start(&dns, 5301, DELAY);
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.9")).unwrap();
    let pid = dns.process.pid().unwrap().to_string();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let files = format!("--nofile={0}:{0}", open + 60);
    dns.namespace.run("prlimit", &["--pid", &pid, &files]).unwrap();
    let socket = socket(&dns, "127.0.0.1");
    let count = 200;
    for id in 0..count {
        socket.send(&question(id, &format!("n{id}.example.com"))).unwrap();
    }
    for received in 0..count {
        let mut answer = [0; 512];
        let outcome = socket.recv(&mut answer);
        assert!(outcome.is_ok() && (answer[3] & 0xf, answer[7]) == (0, 1), "{received}: {outcome:?}");
    }
    let explanation = explained(&dns, "db.example.com", "");
    assert_eq!(explanation["handling"][0]["forwarded"]["servers"][0]["state"], "ok", "{explanation}");
}

/// An upstream server that forwards questions back is not used, until it forwards them elsewhere.
#[test]
fn f164_a_loop_of_servers_is_found_and_ends() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let back = "--server=127.0.0.1#5300".to_owned();
    let mut upstream = start_upstream(&dns, vec![back]);
    // The first check may be before the upstream server starts; one that does not respond is checked again.
    wait::until_true("the loop", || {
        dns.one("db.elsewhere.org", "A");
        metric(&dns, "tidegate_dns_upstream_loops") == 1
    })
    .unwrap();
    let asked = metric(&dns, "tidegate_dns_upstream_questions_total");
    assert_eq!(dns.one("other.elsewhere.org", "A"), "  SERVFAIL");
    assert!(metric(&dns, "tidegate_dns_upstream_questions_total") <= asked + 1);
    upstream.process.kill();
    upstream.process.arguments_mut().pop();
    upstream.process.start_again().unwrap();
    wait::until_true("the end of the loop", || dns.one("db.example.com", "A").contains("192.0.2.7")).unwrap();
    assert_eq!(metric(&dns, "tidegate_dns_upstream_loops"), 0);
}

/// Clients outside of the client networks are refused, for names of the cluster and for others. They get answers from
/// the zones of DnsZones.
#[test]
fn f164_clients_outside_of_the_client_networks_are_refused() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let zone = json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": {
        "zone": "example.net", "records": [{ "name": "www.example.net", "type": "A", "values": ["192.0.2.1"] }],
    } });
    cluster.apply_objects(&[zone]).unwrap();
    let ttls = ["--ttl=7", "--ttl-headless=8", "--ttl-negative=9"];
    let networks = "--client-network=127.0.0.2/32,10.0.0.0/8";
    let mut dns = start(&cluster, &[&[UPSTREAM, networks][..], &ttls].concat());
    dns.wait_ready();
    let _upstream = start_upstream(&dns, Vec::new());
    let names = ["web.shop.svc.cluster.local", "db.example.com", "10.0.96.10.in-addr.arpa"];
    for (transport, name) in ["+notcp", "+tcp"].into_iter().flat_map(|it| names.map(|name| (it, name))) {
        let ask = |source: &str| dns.dig(&["-b", source, transport], &[(name, "ANY")]).remove(0);
        wait::until_true("the answer", || ask("127.0.0.2").starts_with("  NOERROR\n  answer ")).unwrap();
        assert_eq!(ask("127.0.0.1"), "  REFUSED", "{name} {transport}");
        let external = dns.dig(&["-b", "127.0.0.1", transport], &[("www.example.net", "A")]).remove(0);
        assert_eq!(external, "  NOERROR\n  answer www.example.net 30 A 192.0.2.1");
    }
    // Questions for all types are not forwarded (RFC 8482): the upstream server has an address for this name.
    let any = dns.dig(&["-b", "127.0.0.2", "+notcp"], &[(names[1], "ANY")]).remove(0);
    assert!(any.contains(" HINFO \"rfc8482\"") && !any.contains("192.0.2.7"), "{any}");
    for (name, part) in [
        ("web.shop.svc.cluster.local", " 7 A "),
        ("hdls.shop.svc.cluster.local", " 8 A "),
        ("missing.shop.svc.cluster.local", "authority cluster.local 9 SOA "),
    ] {
        let answer = dns.dig(&["-b", "127.0.0.2"], &[(name, "A")]).remove(0);
        assert!(answer.contains(part), "{answer}");
    }
    for (client, view, results) in [
        ("127.0.0.2", "is in --client-network 127.0.0.2/32", ["own", "forwarded", "own"]),
        ("127.0.0.1", "is in no --client-network", ["refused", "refused", "own"]),
    ] {
        for (name, result) in [names[0], names[1], "www.example.net"].into_iter().zip(results) {
            let explanation = explained(&dns, name, &format!("&from={client}"));
            assert!(explanation["view"].as_str().unwrap().ends_with(view), "{explanation}");
            assert_eq!(explanation["handling"][0]["result"], result, "{explanation}");
        }
    }
}

/// Returns the number of questions with a result.
fn outcomes(dns: &Dns, outcome: &str) -> u64 {
    let text = dns.status.get("/metrics").unwrap().text;
    let name = format!("tidegate_dns_questions_total{{outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

/// Messages of the fuzz corpus, random ones, and such with names that never end.
fn hostile_messages() -> Vec<Vec<u8>> {
    let files = fs::read_dir(CORPUS).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
    let mut messages: Vec<_> = files.filter_map(|bytes| bytes.get(1..).map(<[u8]>::to_vec)).collect();
    assert!(messages.len() >= 10, "{}", messages.len());
    let head = &question(9, "a.example.org")[..12];
    let end = [0, 1, 0, 1];
    messages.extend([
        // A pointer to itself, one behind the end, and two to each other.
        [head, &[0xc0, 12], &end].concat(),
        [head, &[0xff, 0xff], &end].concat(),
        [head, &[0xc0, 14, 0xc0, 12], &end].concat(),
        // A name that is too long, and a label that is too long.
        [head, &[&[63][..], &[b'a'; 63]].concat().repeat(9), &[0], &end].concat(),
        [head, &[64], &[b'a'; 64], &[0], &end].concat(),
        head.to_vec(),
        Vec::new(),
    ]);
    // A generator of George Marsaglia, so that each run sends the same messages.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let length = usize::try_from(random() % 600).unwrap();
        messages.push((0..length).map(|_| random().to_le_bytes()[0]).collect());
    }
    messages
}

/// Malformed, random, oversized and incomplete messages over UDP and TCP neither stop the server nor change its answers.
#[test]
fn f164_hostile_messages_do_not_stop_the_server() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let messages = hostile_messages();
    let attacker = socket(&dns, "127.0.0.5");
    for message in &messages {
        attacker.send(message).unwrap();
    }
    let server: SocketAddr = SERVER.parse().unwrap();
    let framed =
        |length: usize, bytes: &[u8]| [&u16::try_from(length).unwrap().to_be_bytes(), bytes].concat();
    let largest = framed(usize::from(u16::MAX), &[0xc0; 65_535]);
    let incomplete = [framed(100, &[1; 10]), framed(0, &[]), vec![0]];
    let frames = messages.iter().map(|message| framed(message.len(), message));
    for frame in frames.chain([largest]).chain(incomplete) {
        let mut stream = dns.namespace.inside(|| TcpStream::connect(server).unwrap());
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may close the connection at any byte.
        let sent = stream.write_all(&frame).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = sent.and_then(|()| stream.read_to_end(&mut Vec::new()));
    }
    assert!(dns.process.exit_status().is_none(), "{}", dns.process.log_tail());
    for (outcome, least) in [("Malformed", 20), ("Discarded", 20)] {
        assert!(outcomes(&dns, outcome) >= least, "{outcome}: {}", outcomes(&dns, outcome));
    }
    assert_eq!(
        dns.one("web.shop.svc.cluster.local", "A"),
        "  NOERROR\n  answer web.shop.svc.cluster.local 5 A 10.96.0.10"
    );
    wait::until_true("the end of the connections", || metric(&dns, "tidegate_dns_tcp_connections") == 0)
        .unwrap();
}

/// A source has 20 connections at once, and a silent one is closed after 10 s.
#[test]
fn f164_connections_are_limited() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[]);
    dns.wait_ready();
    let server: SocketAddr = SERVER.parse().unwrap();
    let message = question(7, "missing.svc.cluster.local");
    let framed = [&u16::try_from(message.len()).unwrap().to_be_bytes(), &message[..]].concat();
    let ask = |stream: &mut TcpStream| {
        let mut answer = [0; 4];
        let outcome = stream.write_all(&framed).and_then(|()| stream.read_exact(&mut answer));
        outcome.is_ok_and(|()| answer[2..] == [0, 7])
    };
    let connect = || {
        let stream = dns.namespace.inside(|| TcpStream::connect(server).unwrap());
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    let mut streams: Vec<_> = (0..20).map(|_| connect()).collect();
    assert!(streams.iter_mut().all(ask));
    let start = Instant::now();
    assert!(!ask(&mut connect()));
    assert_eq!(metric(&dns, "tidegate_dns_tcp_connections"), 20);
    assert!(metric(&dns, "tidegate_dns_tcp_connections_refused_total") >= 1);
    let mut rest = Vec::new();
    match streams[0].read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(
        (Duration::from_secs(8)..Duration::from_secs(25)).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    wait::until_true("room for a connection", || ask(&mut connect())).unwrap();
}

/// A source gets a limited number of refusals; others get theirs, and answers of the cluster are not limited.
#[test]
fn f164_refusals_are_limited_for_each_source() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let mut dns = start(&cluster, &[]);
    dns.wait_ready();
    let attacker = socket(&dns, "127.0.0.3");
    attacker.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut refused, mut truncated) = (0, 0);
    let start = Instant::now();
    let count: u16 = 2000;
    for id in 0..count {
        attacker.send(&question(id, "www.example.org")).unwrap();
        // Without pauses, the receive buffers would overflow.
        if id % 100 == 99 {
            let mut answer = [0; 512];
            while attacker.recv(&mut answer).is_ok() {
                refused += u32::from(answer[3] & 0xf == REFUSED);
                truncated += u32::from(answer[2] & 0x02 != 0);
            }
        }
    }
    // 200 at once and 50 a second; half of the others are truncated.
    let allowed = 200 + 50 * (u32::try_from(start.elapsed().as_secs()).unwrap() + 1);
    assert!(refused >= 200 && refused <= allowed, "{refused} of {allowed}");
    let others = u32::from(count) - refused;
    assert!(truncated <= others.div_ceil(2) && truncated >= others / 4, "{truncated} of {others}");
    assert!(metric(&dns, "tidegate_dns_limited_errors_total") >= u64::from(others / 2));
    let mut answer = [0; 512];
    let other = socket(&dns, "127.0.0.4");
    other.send(&question(1, "www.example.org")).unwrap();
    other.recv(&mut answer).unwrap();
    assert_eq!(answer[3] & 0xf, REFUSED);
    attacker.send(&question(2, "web.shop.svc.cluster.local")).unwrap();
    attacker.recv(&mut answer).unwrap();
    assert_eq!((answer[1], answer[3] & 0xf, answer[7]), (2, 0, 1));
}
