//! Tests of the health check node port of Services, with requests from real clients.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use model::program::{HealthCheckNodePort, Program};
use node_agent::{dataplane::Scope, health_port::HealthPorts};

use crate::support::{Namespace, enter, net::Topology, programs::*};

const WAIT: Duration = Duration::from_secs(3);

fn asking(number: u16, local_endpoints: u32) -> Program {
    let health_check = Some(HealthCheckNodePort { port: port(number), local_endpoints });
    Program { health_check, ..Program::default() }
}

/// Sends an HTTP request to a port and returns the whole response in lower case.
///
/// # Errors
/// Returns an error if the port is closed.
fn ask(namespace: &Namespace, ip: &str, number: u16) -> std::io::Result<String> {
    let (name, address) = (namespace.name().to_owned(), SocketAddr::new(address(ip), number));
    let request = move || {
        enter(&name);
        let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.to_lowercase())
    };
    thread::spawn(request).join().unwrap()
}

fn check(answer: &str, code: &str, body: &str, weight: &str) {
    assert!(answer.starts_with(&format!("http/1.1 {code} ")), "{answer}");
    assert!(answer.ends_with(&body.to_lowercase()), "{answer}");
    assert!(answer.contains(&format!("x-load-balancing-endpoint-weight: {weight}\r\n")), "{answer}");
    assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
}

/// F039: in both address families, the health check node port returns the number of local endpoints, with an
/// error status if there are none or the agent cannot program the kernel. The port is closed when the Service
/// is deleted.
#[test]
fn f039_the_port_says_whether_the_node_has_endpoints_and_can_be_programmed() {
    let topology = Topology::new("health");
    topology.node.run(|| {
        let mut ports = HealthPorts::default();
        let mut desired = desired(vec![("web", asking(32000, 2)), ("other", asking(32001, 0))]);
        let now = Instant::now();
        ports.follow(&Scope::Everything, &desired);
        assert!(!ports.turn(true, now));
        let body = r#"{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}"#;
        for ip in ["192.0.2.1", "2001:db8::1", "10.1.1.1"] {
            check(&ask(&topology.client, ip, 32000).unwrap(), "200", body, "2");
        }
        let body = r#"{"localEndpoints":0,"service":{"name":"other","namespace":"default"},"serviceProxyHealthy":true}"#;
        check(&ask(&topology.client, "192.0.2.1", 32001).unwrap(), "503", body, "0");

        ports.turn(false, now);
        let body = r#"{"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":false}"#;
        check(&ask(&topology.client, "192.0.2.1", 32000).unwrap(), "503", body, "2");
        ports.turn(true, now);

        set(&mut desired, "web", asking(32000, 0));
        ports.follow(&only(&["web"]), &desired);
        ports.turn(true, now);
        assert!(ask(&topology.client, "192.0.2.1", 32000).unwrap().starts_with("http/1.1 503"));
        desired.programs.remove(&key("web"));
        ports.follow(&only(&["web"]), &desired);
        ports.turn(true, now);
        assert!(until_refused(&topology, 32000), "nobody listens for a Service that is gone");
        assert!(ask(&topology.client, "192.0.2.1", 32001).is_ok());
    });
}

/// Waits until the port refuses connections. The wait is necessary, because the server thread closes the
/// socket asynchronously. Returns false on timeout.
fn until_refused(topology: &Topology, number: u16) -> bool {
    let end = Instant::now() + WAIT;
    while Instant::now() < end {
        if ask(&topology.client, "192.0.2.1", number).is_err() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Clients that connect and send nothing do not keep the checks of other clients and Services from being answered:
/// the oldest connections of their address are closed.
#[test]
fn clients_that_send_nothing_keep_no_other_client_waiting() {
    const OPEN_MAX: usize = 64;
    let topology = Topology::new("healthidle");
    topology.node.run(|| {
        let mut ports = HealthPorts::default();
        let desired = desired(vec![("web", asking(32000, 1)), ("other", asking(32001, 1))]);
        ports.follow(&Scope::Everything, &desired);
        ports.turn(true, Instant::now());
        let name = topology.client.name().to_owned();
        let connect = move || {
            enter(&name);
            let connect = |_| TcpStream::connect(SocketAddr::new(address("192.0.2.1"), 32000)).unwrap();
            (0..300).map(connect).collect::<Vec<_>>()
        };
        let mut idle = thread::spawn(connect).join().unwrap();
        for _ in 0..3 {
            check(&ask(&topology.node, "192.0.2.1", 32001).unwrap(), "200", "}", "1");
        }
        let open = idle.split_off(idle.len() - OPEN_MAX);
        for mut stream in idle {
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let ended = stream.read(&mut [0; 1]);
            let is_open = ended.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_open, "the oldest are closed");
        }
        drop(open);
    });
}

#[test]
fn the_port_answers_only_where_node_ports_do() {
    let topology = Topology::new("healthat");
    topology.node.run(|| {
        let mut ports = HealthPorts::default();
        let mut desired = desired(vec![("web", asking(32000, 1))]);
        desired.networks.node_ports =
            ["192.0.2.0/24", "2001:db8::/64"].iter().map(|net| net.parse().unwrap()).collect();
        ports.follow(&Scope::Everything, &desired);
        ports.turn(true, Instant::now());
        assert!(ask(&topology.client, "192.0.2.1", 32000).is_ok());
        assert!(ask(&topology.client, "2001:db8::1", 32000).is_ok());
        assert!(ask(&topology.client, "10.1.1.1", 32000).is_err());
        // A later address is detected.
        topology.node.ip(&["addr", "add", "192.0.2.77/24", "dev", "to-client"]);
        let next = ports.next_turn().unwrap();
        ports.turn(true, next);
        assert!(ask(&topology.client, "192.0.2.77", 32000).is_ok());
    });
}

/// A Service fails if its health check node port is used by another program or an earlier Service. Other
/// Services are not affected, and the agent retries to open the port until it is free.
#[test]
fn a_port_that_is_taken_fails_that_service_alone_and_is_tried_again() {
    let topology = Topology::new("healthtaken");
    topology.node.run(|| {
        let daemon = TcpListener::bind("0.0.0.0:32000").unwrap();
        let mut ports = HealthPorts::default();
        let desired = desired(vec![
            ("first", asking(32001, 1)),
            ("second", asking(32001, 1)),
            ("web", asking(32000, 1)),
        ]);
        ports.follow(&Scope::Everything, &desired);
        assert!(ports.turn(true, Instant::now()), "failures are news");
        let failures = ports.failures().clone();
        assert_eq!(
            failures.keys().map(ToString::to_string).collect::<Vec<_>>(),
            ["default/second", "default/web"]
        );
        assert!(failures[&key("second")].contains("already that of Service default/first"), "{failures:?}");
        assert!(failures[&key("web")].contains("32000") && failures[&key("web")].contains("in use"));
        assert!(ask(&topology.client, "192.0.2.1", 32001).unwrap().contains("first"));
        drop(daemon);
        let next = ports.next_turn().unwrap();
        assert!(ports.turn(true, next));
        assert!(!ports.failures().contains_key(&key("web")));
        assert!(ask(&topology.client, "192.0.2.1", 32000).is_ok());
    });
}

/// Clients that send nothing do not prevent responses to other clients.
#[test]
fn silent_clients_do_not_stop_the_answers() {
    let topology = Topology::new("healthsilent");
    topology.node.run(|| {
        let mut ports = HealthPorts::default();
        ports.follow(&Scope::Everything, &desired(vec![("web", asking(32000, 1))]));
        ports.turn(true, Instant::now());
        let silent: Vec<_> = (0..200).map(|_| TcpStream::connect("127.0.0.1:32000").unwrap()).collect();
        assert!(ask(&topology.client, "192.0.2.1", 32000).unwrap().starts_with("http/1.1 200"));
        drop(silent);
    });
}
