//! Tests of the notifications that the real server process sends to a service manager, over a real socket.

use std::{
    io::{BufRead, BufReader},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Server process that is killed at the end of the test, even on failure.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that notifies the socket at `address` as soon as it listens.
fn start(address: &str) -> Server {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-api"))
        .env_clear()
        .env("NOTIFY_SOCKET", address)
        .env("WATCHDOG_USEC", "3000000")
        .args(["--listen", "127.0.0.1:0", "--store", "memory:"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    Server(child)
}

fn hear(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let count = socket.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

fn is_told_everything(socket: &UnixDatagram, address: &str) {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let server = start(address);
    let ready = hear(socket);
    assert!(ready.starts_with("READY=1\nSTATUS=serving at 127.0.0.1:"), "{ready}");
    for _ in 0..3 {
        assert_eq!(hear(socket), "WATCHDOG=1");
    }
    assert!(Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap().success());
    let last = std::iter::repeat_with(|| hear(socket)).find(|said| said != "WATCHDOG=1").unwrap();
    assert_eq!(last, "STOPPING=1");
}

#[test]
fn a_service_manager_hears_that_it_is_ready_that_it_works_and_that_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    is_told_everything(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
}

#[test]
fn the_socket_of_a_service_manager_may_have_an_abstract_name() {
    let name = format!("tg-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    is_told_everything(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

#[test]
fn a_service_manager_that_is_not_there_stops_nothing() {
    for address in ["/does/not/exist", "@tg-nobody", "vsock:1:2", "nonsense"] {
        drop(start(address));
    }
}
