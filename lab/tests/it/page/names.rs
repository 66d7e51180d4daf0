//! Test of the view of the DNS servers, with the reports of two servers.

use anyhow::{Result, ensure};
use lab::processes::browser::Look;
use serde_json::json;

use super::{
    fields,
    stage::{Stage, View, expect_no_sideways_scroll},
};

/// Reports of the servers `node1`, which works, and `node2`, whose upstream server does not respond.
fn report(stage: &Stage) {
    let names = |failed: u64| {
        json!({ "seconds": 60, "total": { "questions": 120, "missing": 6, "failed": failed }, "names": [
        { "name": "web.shop.svc.cluster.local", "questions": 90 },
        { "name": "www.example.com", "questions": 30, "missing": 6, "failed": failed },
    ] })
    };
    for (name, state, failed) in [("node1", "ok", 0), ("node2", "failing", 3)] {
        let report = json!({
            "version": "0.2.0", "instance": name, "connected": true, "revision": 1, "zones": ["cluster.local", "example.org"],
            "upstreams": [{ "server": "192.0.2.1:53", "state": state }], "cache": { "positive": 7, "negative": 1, "evicted": 0 },
            "names": names(failed),
        });
        let path = format!("/v1/dns/servers/{name}/report");
        stage.cluster.api.send_json("PUT", &path, &report).unwrap().success().unwrap();
    }
}

/// The view lists the servers with their problems, the busiest names of all servers, those that fail, and the zones. The overview has
/// the problem of the server, with a link to it. Adds a message to `wrong` for each fault.
pub(crate) fn check(stage: &mut Stage, wrong: &mut Vec<String>) {
    let zone = json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": {
        "zone": "example.org", "records": [{ "name": "www.example.org", "type": "A", "values": ["192.0.2.1"] }],
    } });
    stage.cluster.apply_objects(&[zone]).unwrap();
    let views = [
        ("dns", "[data-key='node2']", "upstream server 192.0.2.1:53 does not respond"),
        ("dns?server=node2", "[data-field='/v1/dns/servers#/servers/1/report/version']", "node2"),
        ("dns?tab=names", "[data-key='web.shop.svc.cluster.local']", "180"),
        ("dns?tab=failures", "[data-key='www.example.com']", "60"),
        ("dns?tab=zones", "[data-key='example']", "example.org"),
    ];
    for (look, name) in [(Look::DESK, "day"), (Look::PHONE, "phone")] {
        stage.browser.look(look).unwrap();
        for (link, shows, text) in views {
            report(stage);
            stage.load(View { name: "dns", link, shows });
            let outcome = expect(stage, shows, text);
            wrong.extend(outcome.err().map(|error| format!("{link} by {name}: {error:#}")));
        }
    }
    stage.browser.look(Look::DESK).unwrap();
    report(stage);
    let problem = "[data-problem='DnsServer/node2/Answers'] a[href='#/dns?server=node2']";
    stage.load(View { name: "overview", link: "", shows: problem });
}

fn expect(stage: &mut Stage, shows: &str, text: &str) -> Result<()> {
    // Rows of the table of names contain other values than their key.
    let found = stage.browser.text("[data-view='dns']")?;
    ensure!(found.contains(text), "`{text}` is missing at {shows}: {found}");
    fields::expect_true(&mut stage.browser, &stage.cluster.api, "dns")?;
    stage.browser.expect_accessible()?;
    expect_no_sideways_scroll(&mut stage.browser)?;
    stage.browser.expect_quiet_console()
}
