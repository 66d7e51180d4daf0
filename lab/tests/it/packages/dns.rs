//! The unit of the DNS server: port 53 without root, a restart after it was killed, and answers without control server.

use lab::host::wait;

use super::stage::Stage;

/// Service without endpoints, and the start of the server with a token.
const START: &str = r#"
export HOME=/root
printf '%s\n' 'apiVersion: tidegate/v1' 'kind: Service' 'metadata: {name: named}' \
  'spec: {ports: [{port: 80}], clusterIP: None}' '---' 'apiVersion: tidegate/v1' 'kind: EndpointSet' 'metadata: {name: named}' \
  'spec: {service: named, endpoints: [{address: 192.0.2.11}]}' | tidegate apply -f -
cp /etc/tidegate/dns.toml /tmp/dns.toml
printf 'listen = ["127.0.0.1:53"]\napi = ["http://127.0.0.1:7440"]\n' >>/etc/tidegate/dns.toml
mkdir -p /run/systemd/system/tidegate-dns.service.d
token=$(tidegate token create names --role dns-server)
printf '[Service]\nEnvironment=TIDEGATE_TOKEN=%s\n' "$token" >/run/systemd/system/tidegate-dns.service.d/token.conf
systemctl daemon-reload
systemctl start tidegate-dns"#;

/// Removal of all that the check has made.
const END: &str = r"
export HOME=/root
systemctl stop tidegate-dns
tidegate delete service named
tidegate delete endpointset named
tidegate token revoke names
rm -r /run/systemd/system/tidegate-dns.service.d
mv /tmp/dns.toml /etc/tidegate/dns.toml
systemctl daemon-reload
systemctl reset-failed";

/// Checks the DNS server on a machine with a control server.
pub(crate) fn check(stage: &Stage) {
    let run = |script: &str| stage.machine.run(script).unwrap();
    run(START);
    let log = || run("journalctl --no-pager -n 40 -u tidegate-dns");
    let answers = || {
        let asked = || run("dig @127.0.0.1 +short +time=1 +tries=1 named.default.svc.cluster.local || true");
        let answered = wait::until_true("an answer", || asked().trim() == "192.0.2.11");
        answered.unwrap_or_else(|error| panic!("{error:#}\n{}", log()));
    };
    answers();
    let old = stage.running("tidegate-dns");
    let status = run(&format!("cat /proc/{old}/status"));
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
    };
    // Bit 10: NET_BIND_SERVICE.
    assert_eq!([value("CapBnd"), value("CapEff")], ["0000000000000400"; 2]);
    assert_ne!(value("Uid"), "0");
    assert_eq!([value("NoNewPrivs"), value("Seccomp")], ["1", "2"]);

    run(&format!("kill -KILL {old}"));
    wait::until_true("another process", || {
        !["0", &old].contains(&stage.unit("tidegate-dns", "MainPID").as_str())
    })
    .unwrap();
    answers();
    assert_eq!(stage.unit("tidegate-dns", "StartLimitIntervalUSec"), "0", "systemd starts it again forever");
    run("systemctl stop tidegate-api; systemctl restart tidegate-dns");
    answers();
    run("systemctl start tidegate-api");
    stage.running("tidegate-api");
    run(END);
}
