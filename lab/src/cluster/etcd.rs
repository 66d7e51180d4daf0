//! Starts etcd clusters for tests, either with each member in its own namespace, or with all members in one
//! namespace.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    cluster::{
        control::Http,
        machines::{Fabric, Program, ProgramMachine},
    },
    host::netns::Namespace,
    processes::process::{Plan, Process},
};

/// Port at which an etcd member serves clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port at which an etcd member serves other members.
const PEER_PORT: u16 = 2380;
/// Heartbeat interval and election timeout of etcd in milliseconds: half of the defaults, so that a lost
/// leader is replaced before a round of the consistency test ends, but long enough for a busy machine.
const TIMES_MS: (u32, u32) = (50, 500);
/// Last octet of the address of the first member.
const HOST: u8 = 30;

/// Starts etcd members, each in its own namespace on the fabric (network switch), without waiting until they
/// have formed a cluster.
///
/// # Errors
/// Returns an error if etcd is not installed or a namespace cannot be created.
pub fn start(fabric: &Fabric, members: u8, directory: &Path) -> Result<Vec<ProgramMachine>> {
    let addresses: Vec<_> = (1..=members).map(|index| Fabric::address(HOST + index)).collect();
    let start = |index: u8| {
        let at = usize::from(index - 1);
        let program = Program {
            label: name(at),
            path: "etcd".into(),
            arguments: arguments(at, &addresses, directory),
            address: SocketAddr::new(addresses[at], CLIENT_PORT),
            environment: Vec::new(),
        };
        fabric.start(HOST + index, program, directory)
    };
    (1..=members).map(start).collect()
}

/// Starts etcd members in one namespace, each at its own loopback address. Waits until each member has a
/// leader.
///
/// # Errors
/// Returns an error if etcd is not installed or does not start.
pub fn start_beside(namespace: &Namespace, members: u8, directory: &Path) -> Result<Vec<Process>> {
    let addresses = loopback_addresses(members);
    let start = |at: usize| {
        Process::start(Plan {
            label: name(at),
            namespace: namespace.clone(),
            program: "etcd".into(),
            arguments: arguments(at, &addresses, directory),
            environment: Vec::new(),
            log: directory.join(format!("{}.log", name(at))),
        })
    };
    let mut all = (0..addresses.len()).map(start).collect::<Result<Vec<_>>>()?;
    for (member, address) in all.iter_mut().zip(&addresses) {
        let http = Http::new(namespace, SocketAddr::new(*address, CLIENT_PORT));
        member.wait_ready(|| has_leader(&http))?;
    }
    Ok(all)
}

/// Returns the value of the server option `--store` for members started by [`start_beside`].
#[must_use]
pub fn url_beside(members: u8) -> String {
    let addresses = loopback_addresses(members);
    let urls: Vec<_> = addresses.iter().map(|address| format!("http://{address}:{CLIENT_PORT}")).collect();
    format!("etcd:{}", urls.join(","))
}

fn loopback_addresses(members: u8) -> Vec<IpAddr> {
    (0..members).map(|index| Ipv4Addr::new(127, 0, 0, HOST + index).into()).collect()
}

/// Returns the command-line arguments of the etcd member with this index in a cluster of members at
/// `addresses`. The data directory of the member is below `directory`.
#[must_use]
pub fn arguments(index: usize, addresses: &[IpAddr], directory: &Path) -> Vec<String> {
    let at = addresses[index];
    let cluster = addresses.iter().enumerate();
    let cluster: Vec<_> =
        cluster.map(|(index, address)| format!("{}=http://{address}:{PEER_PORT}", name(index))).collect();
    vec![
        format!("--name={}", name(index)),
        format!("--data-dir={}", directory.join(name(index)).display()),
        format!("--listen-peer-urls=http://{at}:{PEER_PORT}"),
        format!("--initial-advertise-peer-urls=http://{at}:{PEER_PORT}"),
        format!("--listen-client-urls=http://{at}:{CLIENT_PORT}"),
        format!("--advertise-client-urls=http://{at}:{CLIENT_PORT}"),
        format!("--initial-cluster={}", cluster.join(",")),
        "--initial-cluster-state=new".to_owned(),
        format!("--initial-cluster-token=tidegate-{}", std::process::id()),
        format!("--heartbeat-interval={}", TIMES_MS.0),
        format!("--election-timeout={}", TIMES_MS.1),
        "--logger=zap".to_owned(),
        "--log-level=error".to_owned(),
    ]
}

fn name(index: usize) -> String {
    format!("etcd{}", index + 1)
}

/// Returns the value of the server option `--store` for members started by [`start`].
#[must_use]
pub fn url(members: &[ProgramMachine]) -> String {
    let urls: Vec<_> = members.iter().map(|member| format!("http://{}", member.address)).collect();
    format!("etcd:{}", urls.join(","))
}

/// Waits until a member responds and has a leader.
///
/// # Errors
/// Returns an error if the member ended or has no leader in time.
pub fn wait_ready(member: &mut ProgramMachine) -> Result<()> {
    let http = Http::new(&member.namespace, member.address);
    Process::wait_ready(&mut member.process, || has_leader(&http))
}

/// Checks that a member responds and has a leader.
///
/// # Errors
/// Returns an error if it does not.
pub fn has_leader(member: &Http) -> Result<()> {
    let status = status(member)?;
    ensure!(is_set(&status["leader"]), "no leader is elected: {status}");
    Ok(())
}

/// Returns true if a member reports itself as leader. A suspended member delays the result until the request times
/// out.
#[must_use]
pub fn is_leader(member: &ProgramMachine) -> bool {
    let status = status(&Http::new(&member.namespace, member.address));
    status.is_ok_and(|status| is_set(&status["leader"]) && status["leader"] == status["header"]["member_id"])
}

fn status(http: &Http) -> Result<Value> {
    let answer = http.send_json("POST", "/v3/maintenance/status", &json!({}))?;
    answer.expect(200).context("the status of a member")
}

fn is_set(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id != "0")
}
