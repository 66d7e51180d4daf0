//! Tests of established connections through the userspace relay: every byte arrives, half-closes are
//! forwarded, limits apply, and connections to removed endpoints follow the removal policy.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use model::{
    kinds::service::{Protocol, ProxyProtocol},
    program::{Masquerade, Removal},
    wire::traffic_counts::TargetFailures,
};
use node_agent::dataplane::{
    Dataplane as _, DesiredState, Scope, Traffic,
    userspace::{Limits, UserspaceBackend},
};

use crate::support::{
    self, Namespace,
    net::Server,
    programs::{address, at, desired, forward, key, only, program, set, verified},
    relay::{
        TcpServer, change, connect, echo, echoes, eventually, open, read_pattern, relaying, send_pattern, udp,
    },
};

/// Builds a dual-stack Service at TCP and UDP port 80 with target port `port` on workload a, and on b if `with_b`.
fn service(port: u16, with_b: bool) -> model::program::Program {
    let both4 = [("10.1.1.2", port, 1), ("10.1.2.2", port, 1)];
    let both6 = [("fd01:1::2", port, 1), ("fd01:2::2", port, 1)];
    let count = if with_b { 2 } else { 1 };
    let frontends: Vec<_> = [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .flat_map(|protocol| {
            [
                (at("10.96.0.1", protocol, 80), forward(Masquerade::OffCluster, &both4[..count])),
                (at("fd96::1", protocol, 80), forward(Masquerade::OffCluster, &both6[..count])),
            ]
        })
        .collect();
    program(&["10.96.0.1", "fd96::1"], &[], &frontends)
}

fn only_a(port: u16) -> DesiredState {
    desired(vec![("web", service(port, false))])
}

const VIPS: [&str; 2] = ["10.96.0.1", "fd96::1"];

#[test]
fn either_side_may_end_first_and_the_other_still_speaks() {
    let (topology, _backend) = relaying("us-half", &only_a(9000), Limits::default());
    // Replies after the client has sent everything.
    let _last = TcpServer::start(&topology.a, 9000, |mut stream| {
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        write!(stream, "you said {text}")
    });
    for ip in VIPS {
        let mut stream = connect(&topology.client, ip, 80).unwrap();
        stream.write_all(b"this").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "you said this");
    }
    drop(_last);
    // Sends everything at once and then reads.
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let _first = TcpServer::start(&topology.a, 9000, move |mut stream| {
        stream.write_all(b"hello")?;
        stream.shutdown(Shutdown::Write)?;
        hears.fetch_add(read_pattern(&mut stream)?, Ordering::Relaxed);
        Ok(())
    });
    let mut stream = connect(&topology.client, "10.96.0.1", 80).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    send_pattern(&mut stream, 100_000).unwrap();
    drop(stream);
    eventually("the server hears all", || heard.load(Ordering::Relaxed) == 100_000);
}

#[test]
fn large_transfers_arrive_whole_in_both_directions_at_once() {
    const LENGTH: usize = 48 << 20;
    let (topology, mut backend) = relaying("us-large", &only_a(9000), Limits::default());
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let _server = TcpServer::start(&topology.a, 9000, move |stream| {
        let mut writer = stream.try_clone()?;
        let sender = thread::spawn(move || {
            send_pattern(&mut writer, LENGTH)?;
            writer.shutdown(Shutdown::Write)
        });
        hears.fetch_add(read_pattern(&mut &stream)?, Ordering::Relaxed);
        sender.join().unwrap()
    });
    for (round, ip) in (1..).zip(VIPS) {
        let stream = connect(&topology.client, ip, 80).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sender = thread::spawn(move || {
            send_pattern(&mut writer, LENGTH).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        assert_eq!(read_pattern(&mut &stream).unwrap(), LENGTH);
        sender.join().unwrap();
        eventually("the server hears all", || heard.load(Ordering::Relaxed) == round * LENGTH);
    }
    let traffic = tcp_traffic(&backend.traffic().unwrap());
    assert!(
        traffic.iter().all(|it| it.connections == 1 && it.bytes == Some(2 * LENGTH as u64)),
        "{traffic:?}"
    );
}

fn tcp_traffic(traffic: &[Traffic]) -> Vec<Traffic> {
    traffic.iter().filter(|it| it.protocol == Protocol::Tcp).cloned().collect()
}

/// If a client does not read, flow control stops the server, because the relay limits its buffers. Once the
/// client reads, every byte arrives.
#[test]
fn a_slow_reader_stops_the_sender_and_loses_nothing() {
    const LENGTH: usize = 64 << 20;
    let (topology, _backend) = relaying("us-slow", &only_a(9000), Limits::default());
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&sent);
    let _server = TcpServer::start(&topology.a, 9000, move |mut stream| {
        let chunk: Vec<u8> = (0..251 * 64).map(support::relay::pattern).collect();
        while counts.load(Ordering::Relaxed) < LENGTH {
            stream.write_all(&chunk)?;
            counts.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        Ok(())
    });
    let mut stream = connect(&topology.client, "10.96.0.1", 80).unwrap();
    let mut before = usize::MAX;
    eventually("the server has to wait", || {
        thread::sleep(Duration::from_millis(300));
        let so_far = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, so_far) == so_far && so_far > 0
    });
    // Data in flight is in four socket buffers of the kernel, with a default maximum of 6 MiB each.
    assert!(before < LENGTH / 2, "{before} bytes were taken from the server");
    let received = read_pattern(&mut stream).unwrap();
    assert_eq!(received, sent.load(Ordering::Relaxed));
}

#[test]
fn a_target_that_breaks_off_resets_the_client_and_the_reverse() {
    let (topology, _backend) = relaying("us-reset", &only_a(9000), Limits::default());
    let broke_off = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&broke_off);
    let _server = TcpServer::start(&topology.a, 9000, move |mut stream| {
        let mut first = [0; 1];
        stream.read_exact(&mut first)?;
        if first == *b"1" {
            stream.write_all(b"last words")?;
            // Closing with unread data causes a reset.
            thread::sleep(Duration::from_millis(50));
            return Ok(());
        }
        let error = stream.read(&mut first).unwrap_err();
        noticed.store(error.kind() == ErrorKind::ConnectionReset, Ordering::Relaxed);
        Ok(())
    });
    let mut stream = connect(&topology.client, "10.96.0.1", 80).unwrap();
    stream.write_all(b"1 and more that is not read").unwrap();
    let mut words = [0; 10];
    stream.read_exact(&mut words).unwrap();
    assert_eq!(words, *b"last words");
    assert_eq!(stream.read(&mut words).unwrap_err().kind(), ErrorKind::ConnectionReset);

    let mut stream = connect(&topology.client, "10.96.0.1", 80).unwrap();
    stream.write_all(b"2").unwrap();
    thread::sleep(Duration::from_millis(50));
    nix::sys::socket::setsockopt(
        &stream,
        nix::sys::socket::sockopt::Linger,
        &nix::libc::linger { l_onoff: 1, l_linger: 0 },
    )
    .unwrap();
    drop(stream);
    eventually("the server sees the reset", || broke_off.load(Ordering::Relaxed));
}

#[test]
fn at_the_limit_connections_and_flows_are_refused_and_counted_and_come_again_when_there_is_room() {
    let limits = Limits { connections_max: 2, flows_max: 1, flow_idle: Duration::from_millis(300) };
    let (topology, backend) = relaying("us-limit", &only_a(9000), limits);
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let _datagrams = Server::start(&topology.a, "a", 9001);
    let mut held: Vec<_> = (0..2).map(|_| connect(&topology.client, "10.96.0.1", 80).unwrap()).collect();
    assert!(held.iter_mut().all(|stream| echoes(stream, "in")));
    let third = connect(&topology.client, "10.96.0.1", 80);
    assert!(!third.is_ok_and(|mut stream| echoes(&mut stream, "out")));
    assert_eq!(backend.relay_counters().connections_refused, 1);
    held.pop();
    eventually("there is room again", || {
        connect(&topology.client, "10.96.0.1", 80).is_ok_and(|mut stream| echoes(&mut stream, "in"))
    });
    assert!(echoes(&mut held[0], "still in"));
}

#[test]
fn udp_flows_keep_their_target_expire_when_silent_and_are_limited() {
    let limits = Limits { flows_max: 1, flow_idle: Duration::from_millis(400), ..Limits::default() };
    let (topology, mut backend) = relaying("us-flow", &desired(vec![("web", service(8080, true))]), limits);
    let active = |backend: &mut node_agent::dataplane::userspace::UserspaceBackend| -> u64 {
        backend.traffic().unwrap().iter().filter_map(|it| it.active).sum()
    };
    let patience = Duration::from_secs(2);
    for ip in VIPS {
        let first = topology.client.udp(ip, 80);
        let name = first.ask(patience).unwrap().name;
        for _ in 0..5 {
            assert_eq!(first.ask(patience).unwrap().name, name, "a flow stays");
        }
        assert_eq!(active(&mut backend), 1);
        let refused = backend.relay_counters().flows_refused;
        assert!(topology.client.udp(ip, 80).ask(Duration::from_millis(10)).is_err());
        assert!(backend.relay_counters().flows_refused > refused);
        eventually("a silent flow expires", || active(&mut backend) == 0);
        let next = first.ask(patience).unwrap().name;
        assert_ne!(next, name, "what follows is a new flow");
        eventually("it expires too", || active(&mut backend) == 0);
    }
}

/// Reads a PROXY protocol header from a connection, as a target does, and returns it as text.
fn read_header(stream: &mut impl Read) -> String {
    let mut start = [0; 6];
    stream.read_exact(&mut start).unwrap();
    if start == *b"PROXY " {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0; 1];
            stream.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        return String::from_utf8(line).unwrap().trim_end().to_owned();
    }
    let mut rest = [0; 10];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!([&start[..], &rest[..6]].concat(), *b"\r\n\r\n\0\r\nQUIT\n");
    let mut addresses = vec![0; usize::from(u16::from_be_bytes([rest[8], rest[9]]))];
    stream.read_exact(&mut addresses).unwrap();
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let quad = |at: usize| {
        std::net::Ipv4Addr::from(<[u8; 4]>::try_from(&addresses[at..at + 4]).unwrap()).to_string()
    };
    let long = |at: usize| {
        std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&addresses[at..at + 16]).unwrap()).to_string()
    };
    match (rest[6], rest[7]) {
        (0x21, 0x11) => format!("TCP4 {} {} {} {}", quad(0), quad(4), port(8), port(10)),
        (0x21, 0x12) => format!("UDP4 {} {} {} {}", quad(0), quad(4), port(8), port(10)),
        (0x21, 0x21) => format!("TCP6 {} {} {} {}", long(0), long(16), port(32), port(34)),
        (0x21, 0x22) => format!("UDP6 {} {} {} {}", long(0), long(16), port(32), port(34)),
        other => panic!("{other:x?}"),
    }
}

#[test]
fn the_proxy_protocol_tells_the_target_the_client() {
    let mut wanted = only_a(9000);
    // Version 1 does not support UDP.
    let tcp_only = |desired: &mut DesiredState| {
        let service = desired.programs.get_mut(&key("web")).unwrap();
        Arc::make_mut(&mut service.program)
            .frontends
            .retain(|frontend, _| frontend.protocol == Protocol::Tcp);
    };
    change(&mut wanted, "web", |route| route.proxy_protocol = Some(ProxyProtocol::V1));
    let topology = support::net::Topology::new("us-proxy");
    let mut backend = open(&topology.node, Limits::default());
    let pass = backend.apply(&wanted, &Scope::Everything);
    let refusal = format!("{:?}", pass.outcomes[&key("web")]);
    assert!(refusal.contains("Unsupported") && refusal.contains("v2"), "{refusal}");
    tcp_only(&mut wanted);
    verified(&backend.apply(&wanted, &Scope::Everything));

    let server = TcpServer::start(&topology.a, 9000, |mut stream| {
        let header = read_header(&mut stream);
        let mut rest = String::new();
        stream.read_to_string(&mut rest)?;
        write!(stream, "{header} {rest}")
    });
    let ask = |ip: &str| {
        let mut stream = connect(&topology.client, ip, 80).unwrap();
        stream.write_all(b"payload").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let own_port = stream.local_addr().unwrap().port();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (own_port, answer)
    };
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        change(&mut wanted, "web", |route| route.proxy_protocol = Some(version));
        verified(&backend.apply(&wanted, &only(&["web"])));
        let (port, answer) = ask("10.96.0.1");
        assert_eq!(answer, format!("TCP4 192.0.2.2 10.96.0.1 {port} 80 payload"));
        let (port, answer) = ask("fd96::1");
        assert_eq!(answer, format!("TCP6 2001:db8::2 fd96::1 {port} 80 payload"));
    }
    drop(server);

    let mut wanted = only_a(9000);
    change(&mut wanted, "web", |route| route.proxy_protocol = Some(ProxyProtocol::V2));
    verified(&backend.apply(&wanted, &Scope::Everything));
    let target = topology.a.run(|| std::net::UdpSocket::bind("[::]:9000").unwrap());
    target.set_read_timeout(Some(support::relay::PATIENCE)).unwrap();
    for (ip, word, own) in [("10.96.0.1", "UDP4", "192.0.2.2"), ("fd96::1", "UDP6", "2001:db8::2")] {
        let client = udp(&topology.client, ip, 80);
        let own_port = client.local_addr().unwrap().port();
        for text in ["one", "two"] {
            client.send(text.as_bytes()).unwrap();
            let mut buffer = [0; 256];
            let length = target.recv(&mut buffer).unwrap();
            let mut datagram = &buffer[..length];
            assert_eq!(read_header(&mut datagram), format!("{word} {own} {ip} {own_port} 80"));
            assert_eq!(datagram, text.as_bytes());
        }
    }
}

/// Opens connections through the Service until one leads to workload a, and returns that one.
fn on_a(client: &Namespace, ip: &str) -> TcpStream {
    loop {
        let mut stream = connect(client, ip, 80).unwrap();
        stream.write_all(b"?").unwrap();
        let mut name = [0; 1];
        stream.read_exact(&mut name).unwrap();
        if name == *b"a" {
            return stream;
        }
    }
}

/// Starts a TCP server that sends its name when it has received the first byte, and then echoes.
fn named(namespace: &Namespace, name: &'static str) -> TcpServer {
    TcpServer::start(namespace, 9000, move |mut stream| {
        stream.read_exact(&mut [0; 1])?;
        stream.write_all(name.as_bytes())?;
        echo(stream)
    })
}

fn on_b_only() -> model::program::Program {
    let frontends = [
        (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &[("10.1.2.2", 9000, 1)])),
        (at("fd96::1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &[("fd01:2::2", 9000, 1)])),
    ];
    program(&["10.96.0.1", "fd96::1"], &[], &frontends)
}

/// After an endpoint is removed, its connections continue, are reset at a deadline, or are reset at once,
/// depending on the removal policy. All other connections continue.
#[test]
fn connections_of_an_endpoint_that_goes_end_as_the_removal_policy_says() {
    for (removal, name) in [(Removal::Keep, "keep"), (Removal::Drain(1), "drain"), (Removal::Reset, "reset")]
    {
        let mut wanted = desired(vec![("web", service(9000, true))]);
        change(&mut wanted, "web", |route| route.removal = removal);
        let (topology, mut backend) = relaying(&format!("us-{name}"), &wanted, Limits::default());
        let _servers = [named(&topology.a, "a"), named(&topology.b, "b")];
        for ip in VIPS {
            let mut going = on_a(&topology.client, ip);
            assert!(echoes(&mut going, "before"));
            set(&mut wanted, "web", on_b_only());
            change(&mut wanted, "web", |route| route.removal = removal);
            verified(&backend.apply(&wanted, &only(&["web"])));
            let mut staying = connect(&topology.client, ip, 80).unwrap();
            assert!(echoes(&mut staying, "b"), "new connections go to b");
            match removal {
                Removal::Keep => assert!(echoes(&mut going, "it goes on")),
                Removal::Drain(_) => {
                    backend.upkeep().unwrap();
                    assert!(echoes(&mut going, "it goes on for a while"));
                    eventually("it is cut", || {
                        backend.upkeep().unwrap();
                        !echoes(&mut going, "it goes on")
                    });
                }
                Removal::Reset => eventually("it is cut", || !echoes(&mut going, "it goes on")),
            }
            assert!(echoes(&mut staying, "others go on"));
            set(&mut wanted, "web", service(9000, true));
            change(&mut wanted, "web", |route| route.removal = removal);
            verified(&backend.apply(&wanted, &only(&["web"])));
        }
    }
}

#[test]
fn f065_a_long_transfer_survives_changes_of_other_endpoints_and_the_end_of_the_service() {
    const LENGTH: usize = 64 << 20;
    let mut wanted = desired(vec![("web", service(9000, true))]);
    let (topology, mut backend) = relaying("us-long", &wanted, Limits::default());
    let server = |stream: TcpStream| {
        let mut stream = stream;
        stream.read_exact(&mut [0; 1])?;
        send_pattern(&mut stream, LENGTH)
    };
    let _servers = [TcpServer::start(&topology.a, 9000, server), TcpServer::start(&topology.b, 9000, server)];
    for ip in VIPS {
        let mut stream = connect(&topology.client, ip, 80).unwrap();
        stream.write_all(b"!").unwrap();
        let reader = thread::spawn(move || read_pattern(&mut stream).unwrap());
        for round in 0..20 {
            let weights = [(service(9000, true)), (service(9000, false)), on_b_only()];
            set(&mut wanted, "web", weights[round % 3].clone());
            verified(&backend.apply(&wanted, &only(&["web"])));
        }
        wanted.programs.remove(&key("web"));
        verified(&backend.apply(&wanted, &only(&["web"])));
        assert!(connect(&topology.client, ip, 80).is_err());
        assert_eq!(reader.join().unwrap(), LENGTH);
        set(&mut wanted, "web", service(9000, true));
        verified(&backend.apply(&wanted, &only(&["web"])));
    }
}

/// After a removal of the endpoint of a UDP flow, the client's next datagram from the same port reaches
/// another endpoint. After a restart of the agent, such datagrams still reach an endpoint.
#[test]
fn udp_flows_move_at_once_when_their_endpoint_goes_and_when_the_agent_is_another() {
    let mut wanted = desired(vec![("web", service(8080, true))]);
    let (topology, mut backend) = relaying("us-move", &wanted, Limits::default());
    let patience = Duration::from_secs(3);
    // Consecutive flows of a frontend have different endpoints.
    let clients: Vec<_> = VIPS.iter().flat_map(|ip| [(); 2].map(|()| topology.client.udp(ip, 80))).collect();
    let names: Vec<_> = clients.iter().map(|client| client.ask(patience).unwrap().name).collect();
    for name in ["a", "b"] {
        assert!(names.iter().any(|met| met == name), "{names:?}");
    }
    for (gone, index) in [("a", 0), ("b", 1)] {
        let mut rest = service(8080, true);
        rest.frontends.iter_mut().map(|(_, route)| route).for_each(|route| {
            let all = route.from_elsewhere.targets().unwrap().clone();
            let kept = all.iter().map(|(target, weight)| (*target, *weight)).nth(1 - index);
            *route = support::programs::route(
                &at("10.96.0.1", Protocol::Udp, 80),
                model::program::Verdict::Forward {
                    masquerade: Masquerade::OffCluster,
                    targets: Arc::new(kept.into_iter().collect()),
                },
            );
        });
        set(&mut wanted, "web", rest);
        verified(&backend.apply(&wanted, &only(&["web"])));
        for client in &clients {
            assert_ne!(client.ask(patience).unwrap().name, gone, "they were on {names:?}");
        }
    }
    // A new process has new listeners; the kernel redirects clients to the old ones until flows are deleted.
    drop(backend);
    let mut next = open(&topology.node, Limits::default());
    verified(&next.apply(&wanted, &Scope::Everything));
    for client in &clients {
        assert!(client.ask(patience).is_ok());
    }
    assert!(next.counters().conntrack_deletions >= clients.len() as u64, "{:?}", next.counters());
}

/// The first call of `retire` after a change to another mode removes all rules that redirect connections to
/// the relay. Established connections continue.
#[test]
fn a_retired_relay_captures_nothing_and_lets_established_connections_end() {
    let (topology, mut backend) = relaying("us-retire", &only_a(9000), Limits::default());
    let _server = TcpServer::start(&topology.a, 9000, echo);
    let mut streams: Vec<_> = VIPS.iter().map(|ip| connect(&topology.client, ip, 80).unwrap()).collect();
    assert!(streams.iter_mut().all(|stream| echoes(stream, "before")));
    // The kernel translates packets of established connections as long as any nat rules exist.
    topology.node.nft(
        "add table inet next\n\
         add chain inet next pre { type nat hook prerouting priority -100; }\n\
         add chain inet next out { type nat hook output priority -100; }\n\
         add chain inet next post { type nat hook postrouting priority 100; }\n\
         add rule inet next pre ip daddr 203.0.113.99 tcp dport 1 redirect to :2\n\
         add rule inet next pre ip6 daddr 2001:db8:99::1 tcp dport 1 redirect to :2",
    );
    assert!(!backend.retire().unwrap(), "two connections are left");
    assert!(!topology.node.has_table(node_agent::dataplane::userspace::TABLE));
    assert!(connect(&topology.client, "10.96.0.1", 80).is_err());
    assert!(streams.iter_mut().all(|stream| echoes(stream, "after")));
    assert!(!backend.retire().unwrap());
    streams.clear();
    eventually("nothing is left", || backend.retire().unwrap());
}

#[test]
fn f086_traffic_is_counted_exactly_per_target() {
    let wanted = desired(vec![("web", service(9000, true))]);
    let (topology, mut backend) = relaying("us-count", &wanted, Limits::default());
    let _servers = [TcpServer::start(&topology.a, 9000, echo), TcpServer::start(&topology.b, 9000, echo)];
    let mut streams: Vec<_> = (0..4).map(|_| connect(&topology.client, "10.96.0.1", 80).unwrap()).collect();
    assert!(streams.iter_mut().all(|stream| echoes(stream, "0123456789")));
    let open = tcp_traffic(&backend.traffic().unwrap());
    let v4: Vec<_> = open.iter().filter(|it| it.target.address.is_ipv4()).collect();
    assert_eq!(v4.len(), 2);
    for it in v4 {
        assert_eq!((it.connections, it.bytes, it.active), (2, Some(40), Some(2)), "{it:?}");
    }
    drop(streams);
    eventually("nothing is active", || {
        tcp_traffic(&backend.traffic().unwrap()).iter().all(|it| it.active == Some(0))
    });
}

/// F086: if one target refuses connections and another one breaks them off, the failures are counted at the
/// target that caused them, and clients are served by a target that works. The count of consecutive refusals
/// restarts with the first accepted connection.
#[test]
fn f086_failures_of_targets_are_counted_where_they_happen() {
    let wanted = desired(vec![("web", service(9000, true))]);
    let (topology, mut backend) = relaying("us-failed", &wanted, Limits::default());
    // Round robin: every second connection tries the refusing one first, and is served by the other.
    let _server = TcpServer::start(&topology.b, 9000, echo);
    for _ in 0..6 {
        assert!(echoes(&mut connect(&topology.client, "10.96.0.1", 80).unwrap(), "hello"));
    }
    let failed = |backend: &mut UserspaceBackend, ip: &str| {
        let rows = tcp_traffic(&backend.traffic().unwrap());
        rows.iter().find(|row| row.target.address == address(ip)).and_then(|row| row.failed).unwrap()
    };
    let refused = failed(&mut backend, "10.1.1.2");
    assert!(refused.refused >= 3 && refused.silent + refused.reset + refused.unreachable == 0, "{refused:?}");
    assert_eq!(failed(&mut backend, "10.1.2.2"), TargetFailures::default());
    let rows = backend.refusals().unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.target.address, row.in_a_row), (address("10.1.1.2"), refused.refused));

    let _breaking = TcpServer::start(&topology.a, 9000, |stream| {
        (&stream).read_exact(&mut [0; 5])?;
        let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &at_once)?;
        Ok(())
    });
    eventually("it breaks off, and has taken a connection", || {
        let _broken =
            connect(&topology.client, "10.96.0.1", 80).map(|mut stream| echoes(&mut stream, "hello"));
        failed(&mut backend, "10.1.1.2").reset > 0 && backend.refusals().unwrap().is_empty()
    });
}

/// F086: refusals of a target that is removed before its counters are read are reported once, then dropped.
#[test]
fn f086_what_a_target_did_before_it_went_is_told_a_last_time() {
    let both = desired(vec![("web", service(9000, true))]);
    let (topology, mut backend) = relaying("us-went", &both, Limits::default());
    let _server = TcpServer::start(&topology.a, 9000, echo);
    for _ in 0..6 {
        assert!(echoes(&mut connect(&topology.client, "10.96.0.1", 80).unwrap(), "hello"));
    }
    verified(&backend.apply(&only_a(9000), &Scope::Everything));
    let mut told = None;
    eventually("a target that went is forgotten", || {
        let rows = tcp_traffic(&backend.traffic().unwrap());
        let row = rows.into_iter().find(|row| row.target.address == address("10.1.2.2"));
        told = row.as_ref().and_then(|row| row.failed).or(told);
        row.is_none()
    });
    assert!(told.is_some_and(|failed| failed.refused >= 3), "{told:?}");
}

/// A removed UDP endpoint may still send its pending reply; the next datagram goes to another endpoint.
#[test]
fn the_last_answer_of_an_endpoint_that_goes_arrives() {
    let (topology, mut backend) = relaying("us-last", &only_a(9000), Limits::default());
    let target = topology.a.run(|| std::net::UdpSocket::bind("[::]:9000").unwrap());
    target.set_read_timeout(Some(support::relay::PATIENCE)).unwrap();
    let client = udp(&topology.client, VIPS[0], 80);
    client.send(b"question").unwrap();
    let (_, relay) = target.recv_from(&mut [0; 64]).unwrap();
    verified(&backend.apply(&desired(vec![("web", service(8080, true))]), &only(&["web"])));
    target.send_to(b"answer", relay).unwrap();
    let mut buffer = [0; 256];
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"answer");
    client.send(b"who?\n").unwrap();
    assert!(client.recv(&mut buffer).unwrap() > 0);
}
