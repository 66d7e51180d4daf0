//! Reload of the unit of the gateway: a new process takes over without a failed request.

use lab::host::wait;

use super::stage::Stage;

/// Gateway with a listener at a port that is free on the machine, and the start of its process.
const START: &str = r#"
export HOME=/root
printf '%s\n' 'apiVersion: tidegate/v1' 'kind: Gateway' 'metadata: {name: edge}' \
  'spec: {listeners: [{name: http, port: 8081, protocol: HTTP}]}' | tidegate apply -f -
mkdir -p /run/systemd/system/tidegate-gateway.service.d
token=$(tidegate token create edge --role gateway)
printf '[Service]\nEnvironment=TIDEGATE_TOKEN=%s\n' "$token" \
  >/run/systemd/system/tidegate-gateway.service.d/token.conf
systemctl daemon-reload
systemctl start tidegate-gateway"#;

/// Removal of all that the check has made.
const END: &str = r"
export HOME=/root
systemctl stop tidegate-gateway
tidegate delete gateway edge
tidegate token revoke edge
rm -r /run/systemd/system/tidegate-gateway.service.d /tmp/codes /tmp/ended /tmp/enough
systemctl daemon-reload";

/// Client that notes the status code of each of its requests, or 000 if one fails, until it is told to end.
const CLIENT: &str = r#"
(while [ ! -e /tmp/enough ]; do curl --silent --output /dev/null --write-out '%{http_code}\n' http://127.0.0.1:8081/; done \
  >/tmp/codes 2>&1; touch /tmp/ended) </dev/null >/dev/null 2>&1 &"#;

/// Checks the gateway on a machine with a control server.
pub(crate) fn check(stage: &Stage) {
    let run = |script: &str| stage.machine.run(script).unwrap();
    run(START);
    let old = stage.running("tidegate-gateway");
    let answers = |count: usize| {
        let text = format!("{count} more requests");
        let seen = || run("cat /tmp/codes 2>/dev/null || true").lines().count();
        let before = seen();
        wait::until_true(&text, || seen() >= before + count).unwrap();
    };
    let log = || run("journalctl --no-pager -n 40 -u tidegate-gateway");
    let listener = wait::until("the listener", || stage.machine.run("curl --silent http://127.0.0.1:8081/"));
    listener.unwrap_or_else(|error| panic!("{error:#}\n{}", log()));
    run(CLIENT);
    answers(10);
    run("systemctl reload tidegate-gateway");
    wait::until_true("the new process and the end of the old one", || {
        let pid = stage.unit("tidegate-gateway", "MainPID");
        pid != old && stage.machine.run(&format!("[ ! -e /proc/{old} ]")).is_ok()
    })
    .unwrap();
    answers(10);
    run("touch /tmp/enough; while [ ! -e /tmp/ended ]; do sleep 0.1; done");
    // No rule matches, so that the gateway itself answers.
    let failed: Vec<_> =
        run("cat /tmp/codes").lines().filter(|code| *code != "404").map(str::to_owned).collect();
    assert!(failed.is_empty(), "{failed:?}\n{}", log());
    assert_eq!(stage.unit("tidegate-gateway", "NRestarts"), "0");
    run(END);
}
