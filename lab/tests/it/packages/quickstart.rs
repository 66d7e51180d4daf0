//! Check of `tidegate quickstart` on a machine with installed packages: refusals before any change, setup, second run, traffic
//! of a client to the first Service, and undo.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr, TcpListener},
};

use lab::{
    host::wait,
    network::{client, echo::EchoServer},
};

use super::stage::{PORT, Stage};

/// Range that is proposed: 192.0.2.245-254 has the address of a device that is not yet in the neighbor table.
const PROPOSAL: &str = "192.0.2.240-192.0.2.249";
/// Last number of the address of this device.
const STRANGER: u8 = 250;

/// Returns the files, units, users and processes of Tidegate, and the files of root's configuration.
fn files(stage: &Stage) -> BTreeSet<String> {
    let mut lines = stage.traces();
    let own = stage.machine.run("find /root/.config /etc/sysctl.d 2>/dev/null || true").unwrap();
    lines.extend(own.lines().map(str::to_owned));
    // These change with every start of a unit, and with the moment at which a server ends.
    lines.retain(|line| !line.contains("systemd-private-") && !line.contains("tidegate.sqlite-"));
    lines
}

/// Returns the files and the state of the kernel.
fn state(stage: &Stage) -> BTreeSet<String> {
    let mut lines = files(stage);
    lines.extend(stage.kernel().lines().map(str::to_owned));
    lines
}

fn assert_same(after: &BTreeSet<String>, before: &BTreeSet<String>) {
    let changed: Vec<_> = after.symmetric_difference(before).collect();
    assert!(changed.is_empty(), "{changed:#?}");
}

fn run(stage: &Stage, words: &str) -> Result<String, String> {
    let line = format!(
        "export HOME=/root\n{words} >/tmp/said 2>&1 || {{ cat /tmp/said >&2; exit 1; }}\ncat /tmp/said"
    );
    stage.machine.run(&line).map_err(|error| format!("{error:#}"))
}

fn quickstart(stage: &Stage, options: &str) -> Result<String, String> {
    run(stage, &format!("tidegate quickstart {options}"))
}

fn assert_refused(stage: &Stage, options: &str, reason: &str) {
    let said = quickstart(stage, options).unwrap_err();
    assert!(said.contains(reason), "{options}: {said}");
}

/// Checks quickstart on a machine whose packages have started control server and agent.
pub(crate) fn check(stage: &Stage) {
    let _stranger = stage.place("stranger", STRANGER);
    let as_without_units = "systemctl disable --now tidegate-agent
        tidegate delete node $(hostname) --confirm
        tidegate-agent --state-dir /var/lib/tidegate-agent cleanup
        printf 'apiVersion: tidegate/v1\nkind: Node\nmetadata: {name: other}\nspec: {}\n' | tidegate apply -f -
        systemctl disable --now tidegate-api
        ip route add default via 192.0.2.12
        sysctl -qw net.ipv4.ip_forward=0
        touch /tmp/said";
    stage.machine.run(as_without_units).unwrap();
    let before = state(stage);
    refusals(stage);
    let said = quickstart(stage, "--dry-run").unwrap();
    assert!(said.contains(PROPOSAL) && said.contains("start and enable tidegate-api.service"), "{said}");
    assert_same(&state(stage), &before);

    // At a terminal, it asks first.
    let refused = run(stage, "printf 'n\n' | script -qefc 'tidegate quickstart' /dev/null").unwrap_err();
    assert!(refused.contains("Continue?"), "{refused}");
    assert_same(&state(stage), &before);

    let said = quickstart(stage, "--yes").unwrap();
    for unit in ["tidegate-api", "tidegate-agent"] {
        stage.running(unit);
        assert_eq!(stage.unit(unit, "UnitFileState"), "enabled", "{unit}");
    }
    first_service(stage, &said);
    second_run(stage);

    let said = quickstart(stage, "--undo </dev/null").unwrap_err();
    assert!(said.contains("lose their addresses: default/web"), "{said}");
    quickstart(stage, "--undo --yes").unwrap();
    assert_same(&state(stage), &before);
    assert!(quickstart(stage, "--undo --yes").unwrap().contains("nothing to undo"));
    undo_after_a_purge(stage);
    purge(stage);
}

/// Asserts that quickstart fails with the reason where it cannot set up the machine.
fn refusals(stage: &Stage) {
    assert_refused(stage, "</dev/null", "stdin is not a terminal");
    assert_refused(stage, "--yes --pool 198.51.100.0/28", "not within a network of this machine");
    let pool = format!("--yes --pool 192.0.2.{STRANGER}");
    assert_refused(stage, &pool, "in use by the device with the link-layer address");
    stage.machine.run("ip neighbor flush all").unwrap();
    let others = "cp /etc/tidegate/agent.toml /srv/agent.toml
        echo 'api = [\"https://10.0.0.1:7440\"]' >>/etc/tidegate/agent.toml";
    stage.machine.run(others).unwrap();
    assert_refused(stage, "--yes", "belongs to other control servers: https://10.0.0.1:7440");
    stage.machine.run("mv /srv/agent.toml /etc/tidegate/agent.toml").unwrap();
    stage.machine.run("systemctl mask tidegate-agent").unwrap();
    assert_refused(stage, "--yes", "`systemctl unmask tidegate-agent`");
    stage.machine.run("systemctl unmask tidegate-agent").unwrap();
    let listener = stage.machine.namespace().inside(|| TcpListener::bind("127.0.0.1:7440")).unwrap();
    assert_refused(stage, "--yes", "another program listens at 127.0.0.1:7440");
    drop(listener);
    // The server is started for this check and stopped again.
    assert_refused(stage, "--yes", "has other nodes: other");
    for (property, value) in [("ActiveState", "inactive"), ("UnitFileState", "disabled")] {
        assert_eq!(stage.unit("tidegate-api", property), value);
    }
    let delete = "systemctl start tidegate-api; tidegate delete node other; systemctl stop tidegate-api";
    stage.machine.run(delete).unwrap();
}

/// Runs the commands that quickstart prints, and connects from the client to the Service.
fn first_service(stage: &Stage, said: &str) {
    let _server = EchoServer::start(stage.machine.namespace(), "own", PORT).unwrap();
    let commands: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  tidegate ")).collect();
    let [create, wait, explain] = commands[..] else { panic!("{said}") };
    run(stage, &format!("tidegate {create}")).unwrap();
    let address = wait::until("an address of the Service", || {
        let path = "tidegate get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'";
        Ok(stage.machine.run(path)?.trim().parse::<IpAddr>()?)
    });
    let address = address.unwrap();
    assert!((240..=249).any(|last| address == IpAddr::from([192, 0, 2, last])), "{address}");
    let reply =
        wait::until("the Service to answer", || client::tcp(&stage.client, SocketAddr::new(address, 80)));
    assert_eq!(reply.unwrap().backend, "own");
    run(stage, &format!("tidegate {wait}")).unwrap();
    let said = run(stage, &format!("tidegate {explain}")).unwrap();
    assert!(said.contains(&address.to_string()) && !said.contains("BROKEN"), "{said}");
    let said = run(stage, "tidegate whoami").unwrap();
    assert!(said.contains("token quickstart"), "the context has the token: {said}");
}

/// Asserts that a second run changes neither the machine nor the objects.
fn second_run(stage: &Stage) {
    let objects = || {
        let versions = "tidegate get pools,advertisements,nodes -o jsonpath='{.items[*].metadata.generation}'
            tidegate token list | cut -c1-40";
        stage.machine.run(versions).unwrap()
    };
    let before = (files(stage), objects());
    let said = quickstart(stage, "").unwrap();
    assert!(said.contains("nothing is changed") && said.contains("tidegate create service web"), "{said}");
    assert_same(&files(stage), &before.0);
    assert_eq!(objects(), before.1);
}

/// Asserts that undo removes the rest after both daemons were purged.
fn undo_after_a_purge(stage: &Stage) {
    quickstart(stage, "--yes").unwrap();
    stage.machine.run("apt-get purge -y tidegate-agent tidegate-api").unwrap();
    let said = quickstart(stage, "--undo --yes").unwrap();
    assert!(said.contains("everything that quickstart created is removed"), "{said}");
    let left = stage
        .machine
        .run("find /root/.config /etc/sysctl.d -name '*tidegate*'; sysctl -n net.ipv4.ip_forward");
    assert_eq!(left.unwrap().trim(), "0");
    assert!(!stage.kernel().contains("tidegate"), "{}", stage.kernel());
}

/// Asserts that purging the package of the command removes files of quickstart.
fn purge(stage: &Stage) {
    let purge = "mkdir -p /var/lib/tidegate; touch /var/lib/tidegate/quickstart.json
        touch /etc/sysctl.d/90-tidegate-quickstart.conf
        dpkg --purge --force-depends tidegate
        ls -d /var/lib/tidegate /etc/sysctl.d/*tidegate* 2>/dev/null || true";
    let said = stage.machine.run(purge).unwrap();
    assert!(!said.contains("/var/lib/tidegate") && !said.contains("sysctl.d"), "{said}");
}
