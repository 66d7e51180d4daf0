//! Tests that forbidden addresses (node-local, link-local, cloud metadata) are rejected in every field for
//! addresses. A Service with such an address would let its clients, or the health checks of agents, reach
//! protected targets (CVE-2020-8558, CVE-2021-25737).

use api::base::config::Settings;
use model::cluster::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{
    site::{Site, refused, status},
    support,
};

/// Loopback, link-local (with the metadata service), multicast, unspecified and reserved addresses, in all
/// notations that some address parser accepts.
const PLAIN: [&str; 20] = [
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "169.254.0.1",
    "169.254.170.2",
    "100.100.100.200",
    "0.0.0.0",
    "0.0.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "0:0:0:0:0:0:0:1",
    "fe80::1",
    "febf::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
];
const EMBEDDED: [&str; 12] = [
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::FFFF:169.254.169.254",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "::a9fe:a9fe",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
];
const NO_ADDRESSES: [&str; 24] = [
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "127.0.0.01",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "fe80::1%eth0",
    "fe80::1%25eth0",
    "[::1]",
    "127.0.0.1:80",
    " 127.0.0.1",
    "127.0.0.1\n",
    "127.0.0.1.",
    "１２７.0.0.1",
    "127。0。0。1",
    "localhost",
    "localtest.example",
    "metadata.google.internal",
    "http://169.254.169.254/",
];

/// Object field that contains an address, with the request path and a function that creates an object with a given
/// address in this field.
struct Place {
    field: &'static str,
    path: &'static str,
    object: fn(&str) -> Value,
}

const PLACES: [Place; 8] = [
    Place {
        field: "EndpointSet endpoints",
        path: "/v1/namespaces/default/endpointsets",
        object: |address| json!({ "service": "web", "endpoints": [{ "address": address }] }),
    },
    Place {
        field: "Workload addresses",
        path: "/v1/namespaces/default/workloads",
        object: |address| json!({ "addresses": [address] }),
    },
    Place {
        field: "Service externalIPs",
        path: "/v1/namespaces/default/services",
        object: |address| json!({ "ports": [{ "port": 80 }], "externalIPs": [address] }),
    },
    Place {
        field: "Service clusterIP",
        path: "/v1/namespaces/default/services",
        object: |address| json!({ "ports": [{ "port": 80 }], "clusterIP": address }),
    },
    Place {
        field: "Service loadBalancer",
        path: "/v1/namespaces/default/services",
        object: |address| json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }], "loadBalancer": { "addresses": [address] } }),
    },
    Place {
        field: "AddressPool addresses",
        path: "/v1/addresspools",
        object: |address| json!({ "addresses": [format!("{address}-{address}")] }),
    },
    Place { field: "Node addresses", path: "/v1/nodes", object: |address| json!({ "addresses": [address] }) },
    Place {
        field: "Node workloadCIDRs",
        path: "/v1/nodes",
        object: |address| {
            let length = if address.contains(':') { 128 } else { 32 };
            json!({ "workloadCIDRs": [format!("{address}/{length}")] })
        },
    },
];

/// Starts a server that allows all external and load balancer addresses, so that only the forbidden ranges cause
/// rejections.
async fn start() -> Site {
    let ranges = vec!["10.96.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()];
    let external = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    let cluster = ClusterConfig::new(ranges, 30000..=32767, external).unwrap();
    Site::start_with(Settings { cluster, ..support::settings(30000..=32767) }).await
}

async fn write(site: &Site, place: &Place, address: &str) -> (u16, String) {
    let object = json!({ "metadata": { "name": "x" }, "spec": (place.object)(address) }).to_string();
    let path = format!("{}?dryRun=true", place.path);
    let answer = site.send("POST", &path, "application/json", object.as_bytes()).await;
    (status(&answer), answer)
}

/// Every notation of a forbidden address is rejected in every field, and the error points to the field. An
/// ordinary address is accepted in every field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_lead_elsewhere_are_refused_wherever_they_are_written() {
    let site = start().await;
    let forms: Vec<_> = PLAIN.into_iter().chain(EMBEDDED).chain(NO_ADDRESSES).collect();
    let mut count = 0;
    for place in &PLACES {
        let of_service = place.field == "Service clusterIP";
        for ordinary in if of_service { ["10.96.0.9", "fd00:96::9"] } else { ["192.0.2.9", "2001:db8::9"] } {
            let (status, answer) = write(&site, place, ordinary).await;
            assert!([200, 201].contains(&status), "{}: {ordinary}: {answer}", place.field);
        }
        for form in &forms {
            let (status, answer) = write(&site, place, form).await;
            assert!([400, 422].contains(&status), "{}: {form:?}: {answer}", place.field);
            assert!(answer.contains("\"pointer\":\"/spec/"), "{}: {form:?}: {answer}", place.field);
            count += 1;
        }
    }
    refused("forbidden addresses", count, forms.len() * PLACES.len());
}

/// Address pools whose first and last addresses are permitted, but which contain forbidden addresses, are
/// rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_around_forbidden_addresses_are_refused() {
    let site = start().await;
    let ranges = [
        "126.0.0.0-128.0.0.255",
        "169.0.0.0/8",
        "169.253.255.255-169.255.0.0",
        "100.64.0.0/10",
        "fd00:ec2::/112",
        "64:ff9b::/96",
        "2002::/16",
        "fe00::/8",
    ];
    let mut count = 0;
    for range in ranges {
        let pool = json!({ "metadata": { "name": "p" }, "spec": { "addresses": [range] } }).to_string();
        let answer = site.send("POST", "/v1/addresspools", "application/json", pool.as_bytes()).await;
        assert_eq!(status(&answer), 422, "{range}: {answer}");
        assert!(answer.contains("AddressNotAllowed"), "{range}: {answer}");
        count += 1;
    }
    refused("pools around forbidden addresses", count, ranges.len());
}
