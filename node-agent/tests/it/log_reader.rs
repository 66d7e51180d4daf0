//! Test of an agent whose log pipe is no longer read, as during a restart of a log collector.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

/// SIGTERM ends an agent whose log is not read. The agent has no state and no control server, so that it
/// writes nothing to the kernel.
#[test]
fn an_agent_whose_log_nobody_reads_ends_in_order() {
    let dir = std::env::temp_dir().join(format!("tidegate-log-reader-{}", std::process::id()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-agent"))
        .args([
            "--api",
            "http://127.0.0.1:1",
            "--node",
            "log-reader",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
        ])
        .arg(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let is_ready = line.ends_with("ready\n");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let ended = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap()
    });
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(kill.success() && is_ready, "{line}");
    assert!(ended.expect("must end within ten seconds").success());
}
