//! Tests of the source `dns` with a real name server (dnsmasq) and a real control server.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    fs::{self, File},
    net::UdpSocket,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Api, Sync, eventually};

/// Name server (dnsmasq) with the records of a file; it ends with the test.
struct NameServer {
    child: Child,
    directory: tempfile::TempDir,
    port: u16,
}

impl NameServer {
    fn start(records: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Self::spawn(&directory, port, records);
        Self { child, directory, port }
    }

    fn spawn(directory: &tempfile::TempDir, port: u16, records: &str) -> Child {
        let file: PathBuf = directory.path().join("conf");
        let base =
            "no-resolv\nno-hosts\nlocal=/test/\nbind-interfaces\nlisten-address=127.0.0.1\nlocal-ttl=1\n";
        fs::write(&file, format!("{base}port={port}\n{records}")).unwrap();
        Command::new("dnsmasq")
            .args(["--keep-in-foreground", "--log-facility=-", "--user=root", "--pid-file="])
            .arg(format!("--conf-file={}", file.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("log")).unwrap())
            .spawn()
            .expect("dnsmasq (Debian package dnsmasq-base)")
    }

    /// Restarts the name server with other records.
    fn say(&mut self, records: &str) {
        self.stop();
        self.child = Self::spawn(&self.directory, self.port, records);
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn follow(api: &Api, server: &NameServer, names: &[&str]) -> Sync {
    let place = server.address();
    let arguments = ["dns", "--ttl-min", "1", "--ttl-max", "2", "--resolver", &place];
    Sync::start(&api.url, &[&arguments, names].concat())
}

/// Returns each EndpointSet as Service, port, and sorted texts `address*weight` of its endpoints.
fn sets(api: &Api) -> Vec<(Value, Value, Vec<String>)> {
    let list = api.get("/v1/endpointsets");
    let read = |set: &Value| {
        let spec = &set["spec"];
        let endpoints = spec["endpoints"].as_array().unwrap().iter();
        let mut endpoints: Vec<_> = endpoints
            .map(|endpoint| format!("{}*{}", endpoint["address"].as_str().unwrap(), endpoint["weight"]))
            .collect();
        endpoints.sort();
        (spec["service"].clone(), spec["ports"][0]["port"].clone(), endpoints)
    };
    let mut sets: Vec<_> = list["items"].as_array().into_iter().flatten().map(read).collect();
    sets.sort_by_key(|set| format!("{set:?}"));
    sets
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Endpoints follow the addresses of a DNS name. If the name is removed or the name server stops, the last
/// endpoints stay and the problem is reported, also after a restart of `tidegate-sync`.
#[test]
fn endpoints_follow_a_name_and_stay_when_it_is_gone_or_nobody_answers() {
    let api = Api::memory();
    let mut server = NameServer::start("host-record=web.test,192.0.2.1,2001:db8::1\n");
    let sync = follow(&api, &server, &["web=web.test:8080"]);
    let endpoints = || sets(&api).first().map(|set| set.2.clone()).unwrap_or_default();
    eventually("both are there", endpoints, |found| *found == strings(&["192.0.2.1*1", "2001:db8::1*1"]));
    assert_eq!((&sets(&api)[0].0, &sets(&api)[0].1), (&json!("web"), &json!(8080)));
    sync.wait_until_equal();

    server.say("host-record=web.test,192.0.2.2\nhost-record=web.test,192.0.2.3\n");
    eventually("they follow", endpoints, |found| *found == strings(&["192.0.2.2*1", "192.0.2.3*1"]));
    server.say("host-record=other.test,192.0.2.9\n");
    eventually(
        "it is told",
        || sync.trouble(),
        |text| text.contains("web=web.test: the name web.test does not exist; keeping the last answer"),
    );
    server.stop();
    eventually(
        "it is told",
        || sync.trouble(),
        |text| text.contains("web=web.test: cannot resolve web.test"),
    );
    assert_eq!(endpoints(), strings(&["192.0.2.2*1", "192.0.2.3*1"]));
    sync.kill();

    let sync = follow(&api, &server, &["web=web.test:8080"]);
    eventually("nothing is removed", || sync.trouble(), |text| text.contains("not been read completely"));
    assert_eq!(endpoints(), strings(&["192.0.2.2*1", "192.0.2.3*1"]));
    server.say("host-record=web.test,192.0.2.4\n");
    eventually("it follows again", endpoints, |found| *found == strings(&["192.0.2.4*1"]));
    sync.wait_until_equal();
}

/// Only the hosts of the first SRV priority become endpoints, in one EndpointSet per port, with their
/// weights.
#[test]
fn srv_records_say_ports_and_weights_and_the_first_priority_counts() {
    let api = Api::memory();
    let hosts = "host-record=a.test,192.0.2.1\nhost-record=b.test,192.0.2.2\nhost-record=c.test,192.0.2.3\n";
    let services = "srv-host=_db._tcp.test,a.test,5432,10,7\nsrv-host=_db._tcp.test,b.test,5433,10,0\nsrv-host=_db._tcp.test,c.test,5432,20,1\n";
    let server = NameServer::start(&format!("{hosts}{services}"));
    let sync = follow(&api, &server, &["db=_db._tcp.test"]);
    let expected = [
        (json!("db"), json!(5432), strings(&["192.0.2.1*7"])),
        (json!("db"), json!(5433), strings(&["192.0.2.2*1"])),
    ];
    eventually("they are there", || sets(&api), |found| *found == expected);
    sync.wait_until_equal();
}

/// Loopback and link-local addresses of a name are rejected. An ordinary address is used, and stays when the
/// name has only rejected addresses.
#[test]
fn names_that_lead_to_the_machine_or_the_link_are_refused() {
    let api = Api::memory();
    let mut server = NameServer::start(
        "host-record=web.test,192.0.2.1\nhost-record=web.test,127.0.0.1\nhost-record=web.test,169.254.169.254\n",
    );
    let sync = follow(&api, &server, &["web=web.test"]);
    let endpoints = || sets(&api).first().map(|set| set.2.clone()).unwrap_or_default();
    eventually("one is there", endpoints, |found| *found == strings(&["192.0.2.1*1"]));
    let is_told = |text: &String| {
        text.contains("127.0.0.1 is rejected: the address is loopback")
            && text.contains("169.254.169.254 is rejected: the address is link-local")
    };
    eventually("the others are told", || sync.trouble(), is_told);
    server.say("host-record=web.test,127.0.0.1\n");
    eventually(
        "it is told",
        || sync.trouble(),
        |text| text.contains("no valid endpoint address; keeping the last answer"),
    );
    assert_eq!(endpoints(), strings(&["192.0.2.1*1"]));
}
