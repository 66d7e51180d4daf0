//! Limits of `tidegate-dns`: forwarded questions, loops, clients, connections and error responses.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
};
use serde_json::json;

use crate::{
    discovery::{Dns, SERVER, objects, question, start},
    forwarding::{UPSTREAM, metric, start_upstream},
};

/// Number of different names that are asked.
const NAMES: u16 = 20_000;
/// Number of questions that wait for a response at once.
const WINDOW: usize = 200;
/// Result code of a refused question.
const REFUSED: u8 = 5;

/// Binds a socket at a loopback address in the namespace of the server.
fn socket(dns: &Dns, address: &str) -> UdpSocket {
    let socket = dns.namespace.inside(|| UdpSocket::bind((address, 0)).unwrap());
    socket.connect(SERVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Every one of many different names gets its answer, although the server asks a limited number of them at once.
#[test]
fn f164_no_question_is_lost_at_many_different_names() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let _upstream = start_upstream(&dns, vec!["--address=/many.example.com/192.0.2.9".to_owned()]);
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.7")).unwrap();
    // Questions from before the start of the upstream server failed.
    let failed = metric(&dns, "tidegate_dns_upstream_failures_total");
    let socket = socket(&dns, "127.0.0.1");
    let mut waiting = BTreeSet::new();
    let mut next = 0;
    while next < NAMES || !waiting.is_empty() {
        while next < NAMES && waiting.len() < WINDOW {
            socket.send(&question(next, &format!("n{next}.many.example.com"))).unwrap();
            waiting.insert(next);
            next += 1;
        }
        let mut answer = [0; 512];
        let size = socket.recv(&mut answer).unwrap_or_else(|error| panic!("{error}: {waiting:?} are lost"));
        let id = u16::from_be_bytes([answer[0], answer[1]]);
        assert!(waiting.remove(&id), "{id}");
        assert_eq!(
            (answer[3] & 0xf, answer[7], answer[..size].last_chunk()),
            (0, 1, Some(&[192, 0, 2, 9])),
            "{id}"
        );
    }
    // Without a time to live, nothing is cached.
    assert!(metric(&dns, "tidegate_dns_upstream_questions_total") >= u64::from(NAMES));
    assert_eq!(metric(&dns, "tidegate_dns_upstream_in_flight"), 0);
    assert_eq!(metric(&dns, "tidegate_dns_upstream_failures_total"), failed);
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
    let mut dns = start(&cluster, &[UPSTREAM, "--client-network=127.0.0.2/32,10.0.0.0/8"]);
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
