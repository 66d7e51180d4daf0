//! Test of the notifications that an agent sends to its service manager (`sd_notify`).

use std::{os::unix::net::UnixDatagram, time::Duration};

use lab::{
    cluster::deployment::{Cluster, Options},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

/// Timeout for an expected message on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Duration without a message after which the test assumes that none follows.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns the next notification on the socket that is not a watchdog keepalive.
fn hear(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    std::iter::repeat_with(|| next(socket).expect("the agent says nothing"))
        .find(|said| said != "WATCHDOG=1")
        .unwrap()
}

fn next(socket: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 4096];
    let count = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// An agent without any state does not report itself as ready. After it has received a state from the control
/// server, it reports itself as ready and sends watchdog keepalives. After a restart without a control
/// server, it reports itself as ready with the state in its journal.
#[test]
fn an_agent_is_ready_when_a_state_is_in_force_and_its_loop_feeds_the_watchdog() {
    let mut cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.server.kill();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let arguments = [
        format!("--api={}", cluster.api.url()),
        "--node=node1".to_owned(),
        "--mode=nftables".to_owned(),
        format!("--state-dir={}", directory.path().join("state").display()),
        "--listen=127.0.0.1:7441".to_owned(),
    ];
    let environment =
        [("NOTIFY_SOCKET", path.display().to_string()), ("WATCHDOG_USEC", "9000000".to_owned())];
    let mut agent = Process::start(Plan {
        label: "the agent".to_owned(),
        namespace: cluster.place("node1").unwrap().clone(),
        program: binaries::find("tidegate-agent").unwrap(),
        arguments: arguments.to_vec(),
        environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        log: directory.path().join("log"),
    })
    .unwrap();
    assert_eq!(hear(&socket), "STATUS=waiting for the first state");
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    while let Some(said) = next(&socket) {
        assert_eq!(said, "WATCHDOG=1", "it is ready without a state");
    }
    cluster.start_control_again().unwrap();
    let ready = hear(&socket);
    assert!(ready.starts_with("READY=1\nSTATUS=in force"), "{ready}");
    for _ in 0..2 {
        assert_eq!(next(&socket).as_deref(), Some("WATCHDOG=1"));
    }
    agent.terminate().unwrap();
    let stopping = hear(&socket);
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");

    cluster.server.kill();
    agent.start_again().unwrap();
    assert!(hear(&socket).starts_with("STATUS=waiting"));
    let ready = hear(&socket);
    assert!(ready.starts_with("READY=1\n"), "the journal is enough: {ready}");
    agent.terminate().unwrap();
    assert!(hear(&socket).starts_with("STOPPING=1\n"));
}
