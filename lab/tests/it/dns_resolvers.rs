//! Resolvers of C libraries with the search path of a workload: glibc by `getent`, musl by a static program.

use std::{fs, process::Command};

use lab::cluster::deployment::{Cluster, Options};
use serde_json::json;

use crate::discovery::{Dns, start};

/// Address at which the resolvers ask; `resolv.conf` has no ports.
const RESOLVER: &str = "127.0.0.53";
/// Program that prints the addresses of a name, one a line, or exits with an error.
const LOOKUP: &str = r#"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int count, char **words) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(words[1], 0, &hints, &found);
    if (error) { fprintf(stderr, "%s\n", gai_strerror(error)); return 2; }
    for (; found; found = found->ai_next) {
        char text[64];
        getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
        puts(text);
    }
}
"#;

/// Runs a command with its own `resolv.conf` and returns the sorted addresses that it prints first in each line, without
/// duplicates. Empty if the command fails.
fn addresses(dns: &Dns, command: &str) -> Vec<String> {
    let file = dns.directory().join("resolv.conf");
    let script = format!("mount --bind {} /etc/resolv.conf && {{ {command} || true; }}", file.display());
    let output = dns.namespace.run("unshare", &["--mount", "sh", "-c", &script]).unwrap();
    let words = output.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    words.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// F164: both resolvers find Services through the search path: by short names, names with the namespace and complete names,
/// with one and two IP families, headless Services and aliases. musl asks for both families at once and takes a missing
/// name of one for both, so that an IPv4 Service needs an empty answer for IPv6.
#[test]
fn f164_glibc_and_musl_find_names_through_the_search_path() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let service = |name: &str, namespace: &str, spec: serde_json::Value| json!({ "kind": "Service", "metadata": { "name": name, "namespace": namespace }, "spec": spec });
    let ports = json!([{ "port": 80 }]);
    cluster
        .apply_objects(&[
            service("web", "shop", json!({ "clusterIP": "10.96.0.10", "ports": ports })),
            service(
                "dual",
                "shop",
                json!({ "clusterIPs": ["10.96.0.11", "fd00:96::11"], "ipFamilyPolicy": "RequireDualStack", "ports": ports }),
            ),
            service("db", "data", json!({ "clusterIP": "None", "ports": ports })),
            service("alias", "shop", json!({ "type": "ExternalName", "externalName": "db.data.svc.cluster.local" })),
            json!({ "kind": "EndpointSet", "metadata": { "name": "db", "namespace": "data" },
                    "spec": { "service": "db", "endpoints": [{ "address": "10.1.0.1" }, { "address": "10.1.0.2" }] } }),
        ])
        .unwrap();
    let mut dns = start(&cluster, &[&format!("--listen={RESOLVER}:53")]);
    dns.wait_ready();
    let search = "search shop.svc.cluster.local svc.cluster.local cluster.local";
    let file = dns.directory().join("resolv.conf");
    fs::write(file, format!("nameserver {RESOLVER}\n{search}\noptions ndots:5\n")).unwrap();
    let (source, program) = (dns.directory().join("lookup.c"), dns.directory().join("lookup"));
    fs::write(&source, LOOKUP).unwrap();
    let built = Command::new("musl-gcc").arg("-static").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    for (name, expected) in [
        ("web", &["10.96.0.10"][..]),
        ("dual", &["10.96.0.11", "fd00:96::11"]),
        ("db.data", &["10.1.0.1", "10.1.0.2"]),
        ("web.shop.svc.cluster.local", &["10.96.0.10"]),
        ("dual.shop.svc.cluster.local.", &["10.96.0.11", "fd00:96::11"]),
        ("alias", &["10.1.0.1", "10.1.0.2"]),
        ("db", &[]),
        ("missing.shop", &[]),
    ] {
        let musl = format!("{} {name} 2>/dev/null", program.display());
        for command in [format!("getent ahosts {name}"), musl] {
            assert_eq!(addresses(&dns, &command), expected, "{command}");
        }
    }
}
