//! Compares the time to program many IPVS virtual servers through the ipvs backend with that of `ipvsadm
//! --restore` for the same servers, in alternating runs.
//!
//! Usage: `lab/guest.sh target/debug/examples/ipvs_restore [services] [runs]`. Changes the IPVS table of the
//! caller's network namespace.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement fails by panicking and prints its figures"
)]

use std::{
    collections::BTreeMap,
    env, fs,
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::quantity::{Port, Revision, Weight},
    program::{Destination, Frontend, Masquerade, Program, Role, Route, Target, Verdict},
};
use node_agent::dataplane::{
    BackendOptions, Dataplane, DesiredProgram, DesiredState, Scope, ipvs::IpvsBackend,
};

fn program(index: u16, endpoints: u8) -> Program {
    let [high, low] = index.to_be_bytes();
    let address = IpAddr::V4(Ipv4Addr::new(10, 96, high, low));
    let target = |number| Target {
        address: IpAddr::V4(Ipv4Addr::new(10, 128 + number, high, low)),
        port: Port::new(8080),
    };
    let targets: BTreeMap<_, _> = (0..endpoints).map(|number| (target(number), Weight(1))).collect();
    let verdict = Verdict::Forward { masquerade: Masquerade::OffCluster, targets: Arc::new(targets) };
    let ports = Port::new(80).unwrap().into();
    let frontend = Frontend { destination: Destination::Address(address), protocol: Protocol::Tcp, ports };
    Program {
        frontends: [(frontend, Route::new(Role::ClusterIp, verdict))].into_iter().collect(),
        virtual_addresses: [address].into(),
        ..Program::default()
    }
}

fn set(desired: &mut DesiredState, index: u16, endpoints: u8) -> ServiceKey {
    let key = ServiceKey::try_from(format!("default/s{index:05}")).unwrap();
    let program = DesiredProgram { revision: Revision(1), program: Arc::new(program(index, endpoints)) };
    desired.programs.insert(key.clone(), program);
    key
}

fn ipvsadm(arguments: &[&str], input: Option<&str>) {
    let input = input.map_or_else(Stdio::null, |path| fs::File::open(path).unwrap().into());
    assert!(Command::new("ipvsadm").args(arguments).stdin(input).status().unwrap().success());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let mut arguments = env::args().skip(1).map(|word| word.parse::<u16>().unwrap());
    let (services, rounds) = (arguments.next().unwrap_or(5000), arguments.next().unwrap_or(3));
    let mut desired = DesiredState::default();
    for index in 0..services {
        set(&mut desired, index, 10);
    }
    let path = env::temp_dir().join(format!("tidegate-ipvs-{}", std::process::id()));
    let path = path.to_str().unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut backend = IpvsBackend::open(&BackendOptions::default()).unwrap();
        // The fixed part, the sets and the addresses are there: only virtual servers are compared, and `restore` does no more.
        let pass = backend.apply(&desired, &Scope::Everything);
        assert!(pass.failed.is_none(), "{:?}", pass.failed);
        if round == 0 {
            println!("all of it, once: {} writes, {:?}", pass.writes, backend.counters());
            let saved = Command::new("ipvsadm").args(["--save", "-n"]).output().unwrap();
            fs::write(path, saved.stdout).unwrap();
        }
        ipvsadm(&["-C"], None);
        backend.observe().unwrap();
        let start = Instant::now();
        let pass = backend.apply(&desired, &Scope::Everything);
        ours.push(start.elapsed());
        assert!(pass.failed.is_none() && pass.writes == u64::from(services) * 11, "{pass:?}");
        let before = backend.counters().messages;
        let key = set(&mut desired, 1, 9);
        backend.apply(&desired, &Scope::Services([key].into()));
        println!(
            "one endpoint change among {services} Services: {} messages",
            backend.counters().messages - before
        );
        set(&mut desired, 1, 10);
        ipvsadm(&["-C"], None);
        let start = Instant::now();
        ipvsadm(&["--restore"], Some(path));
        theirs.push(start.elapsed());
    }
    println!(
        "{services} Services x 10, median of {rounds}: ours {:?}, ipvsadm --restore {:?}",
        median(ours),
        median(theirs)
    );
    fs::remove_file(path).unwrap();
    IpvsBackend::open(&BackendOptions::default()).unwrap().cleanup().unwrap();
}
