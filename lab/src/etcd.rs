//! Members of one etcd cluster, each in a namespace of its own on a fabric.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    control::Http,
    process::Process,
    storm::machines::{Fabric, Machine, Program},
};

/// Where clients reach a member.
pub const CLIENT_PORT: u16 = 2379;
/// Where other members reach a member.
const PEER_PORT: u16 = 2380;
/// Milliseconds between heartbeats of the leader, and without one before another is elected: half of etcd's defaults,
/// so that a leader that is gone is replaced within a round, and still long enough for a busy machine.
const TIMES_MS: (u32, u32) = (50, 500);
/// The last part of the address of the first member.
const HOST: u8 = 30;

/// Starts members in namespaces of their own; they have found each other when the first write is answered.
///
/// # Errors
/// etcd is not installed, or a namespace cannot be made.
pub fn start(fabric: &Fabric, members: u8, directory: &Path) -> Result<Vec<Machine>> {
    let name = |index: u8| format!("etcd{index}");
    let address = |index: u8| Fabric::address(HOST + index);
    let cluster: Vec<_> =
        (1..=members).map(|index| format!("{}=http://{}:{PEER_PORT}", name(index), address(index))).collect();
    let start = |index: u8| {
        let (own, at) = (name(index), address(index));
        let arguments = [
            format!("--name={own}"),
            format!("--data-dir={}", directory.join(&own).display()),
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
        ];
        let program = Program {
            label: own,
            path: "etcd".into(),
            arguments: arguments.into(),
            address: SocketAddr::new(at, CLIENT_PORT),
        };
        fabric.start(HOST + index, program, directory)
    };
    (1..=members).map(start).collect()
}

/// What `--store` has to be.
#[must_use]
pub fn url(members: &[Machine]) -> String {
    let urls: Vec<_> = members.iter().map(|member| format!("http://{}", member.address)).collect();
    format!("etcd:{}", urls.join(","))
}

/// Waits until a member answers and knows a leader.
///
/// # Errors
/// It ended, or never does.
pub fn wait_ready(member: &mut Machine) -> Result<()> {
    let http = Http::new(&member.namespace, member.address);
    let ready = || {
        let status = status(&http)?;
        ensure!(is_set(&status["leader"]), "there is no leader: {status}");
        Ok(())
    };
    Process::wait_ready(&mut member.process, ready)
}

/// The index of the member that leads, as far as one of them says so.
#[must_use]
pub fn leader(members: &[Machine]) -> Option<usize> {
    members.iter().position(|member| {
        let status = status(&Http::new(&member.namespace, member.address));
        status.is_ok_and(|status| {
            is_set(&status["leader"]) && status["leader"] == status["header"]["member_id"]
        })
    })
}

fn status(http: &Http) -> Result<Value> {
    let answer = http.send_json("POST", "/v3/maintenance/status", &json!({}))?;
    answer.expect(200).context("the status of a member")
}

fn is_set(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id != "0")
}
