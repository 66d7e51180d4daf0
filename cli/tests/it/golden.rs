//! Golden files of all user-visible text: every table, every description, every `--help`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cli` rewrites them; reviewers read the difference.

use std::{fs, path::PathBuf};

use cli::{
    Resource,
    terminal::style::Style,
    views::{
        columns::{self, Columns},
        describe::{DescribeSubject, describe},
        render,
    },
};
use model::{
    bgp::listing::{BgpEvent, BgpRouteItem, BgpSessionItem},
    cluster::compiled::CompiledService,
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, advertisement::AdvertisementSpec,
        attachment::AttachmentSpec, bfd_profile::BfdProfileSpec, bgp_peer::BgpPeerSpec, block::BlockSpec,
        certificate::CertificateSpec, dns_zone::DnsZoneSpec, endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec, gateway::GatewaySpec, http_route::HttpRouteSpec, metadata::Metadata,
        network_policy::NetworkPolicySpec, node::NodeSpec, resource::Kind, service::ServiceSpec,
        tls_route::TlsRouteSpec, workload::WorkloadSpec, workload_network::WorkloadNetworkSpec,
    },
    observed::{
        lag::LagOverview,
        network_status::{AttachmentStatus, BlockStatus, WorkloadNetworkStatus},
        policy_status::NetworkPolicyStatus,
        service_health::ServiceHealth,
        status::{
            AddressPoolStatus, AddressStatus, AdvertisementStatus, BfdProfileStatus, BgpPeerStatus,
            CertificateStatus, DnsZoneStatus, EndpointSetStatus, GatewayStatus, HttpRouteStatus, NodeStatus,
            ServiceStatus, TlsRouteStatus, WorkloadStatus,
        },
        traffic::{Busiest, ServiceTraffic},
    },
    primitives::quantity::Timestamp,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const RESOURCES: [Resource; Kind::ALL.len() + 1] = [
    Resource::Object(Kind::Service),
    Resource::Object(Kind::EndpointSet),
    Resource::Object(Kind::Workload),
    Resource::Object(Kind::Node),
    Resource::Object(Kind::AddressPool),
    Resource::Object(Kind::Advertisement),
    Resource::Object(Kind::BgpPeer),
    Resource::Object(Kind::BfdProfile),
    Resource::Object(Kind::DnsZone),
    Resource::Object(Kind::Certificate),
    Resource::Object(Kind::Gateway),
    Resource::Object(Kind::HttpRoute),
    Resource::Object(Kind::TlsRoute),
    Resource::Object(Kind::WorkloadNetwork),
    Resource::Object(Kind::NetworkPolicy),
    Resource::Object(Kind::Address),
    Resource::Object(Kind::EndpointHealth),
    Resource::Object(Kind::Block),
    Resource::Object(Kind::Attachment),
    Resource::Endpoints,
];

fn now() -> Timestamp {
    Timestamp::try_from("2026-11-21T09:00:00Z".to_owned()).unwrap()
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn fixtures() -> Value {
    serde_json::from_slice(&fs::read(directory().join("fixtures/objects.json")).unwrap()).unwrap()
}

fn bgp() -> Value {
    serde_json::from_slice(&fs::read(directory().join("fixtures/bgp.json")).unwrap()).unwrap()
}

fn check(name: &str, actual: &str) {
    let path = directory().join("golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name}.txt differs; it would be:\n{actual}\nUPDATE_GOLDEN=1 rewrites it");
}

fn table(resource: Resource, columns: Columns, style: Style) -> String {
    let mut table = columns::empty(resource, columns);
    for object in columns::in_order(resource, fixtures()[resource.plural()].as_array().unwrap()) {
        columns::push(&mut table, resource, columns, object, now(), "MODIFIED");
    }
    table.render(style)
}

/// F005, F022: the table of every kind matches its golden file. Endpoints have the form `ip:port,…`, and the
/// wide table includes ready, serving and terminating.
#[test]
fn every_table_reads_as_recorded() {
    for resource in RESOURCES {
        let plural = resource.plural();
        check(&format!("get_{plural}"), &table(resource, Columns::default(), Style::PLAIN));
        let wide = Columns { wide: true, namespace: true, ..Columns::default() };
        check(&format!("get_{plural}_wide_all_namespaces"), &table(resource, wide, Style::PLAIN));
    }
    let watched = Columns { qualified: true, event: true, ..Columns::default() };
    check("get_services_watch", &table(Resource::Object(Kind::Service), watched, Style::PLAIN));
    let color = table(Resource::Object(Kind::Node), Columns::default(), Style { color: true });
    check("get_nodes_color", &color.replace('\u{1b}', "ESC"));
}

#[test]
fn every_description_reads_as_recorded() {
    let fixtures = fixtures();
    for resource in RESOURCES {
        for object in fixtures[resource.plural()].as_array().unwrap() {
            let (_, name) = columns::identity(resource, object);
            let key = Value::String(format!("default/{name}"));
            let compiled =
                fixtures["endpoints"].as_array().unwrap().iter().find(|compiled| compiled["service"] == key);
            let is_service = resource == Resource::Object(Kind::Service);
            let traffic =
                fixtures["traffic"].as_array().unwrap().iter().find(|traffic| traffic["service"] == key);
            let health =
                fixtures["health"].as_array().unwrap().iter().find(|health| health["service"] == key);
            let addresses = holds(&fixtures, resource, object);
            let is_network = resource == Resource::Object(Kind::WorkloadNetwork);
            let of_network = |block: &&Value| block["spec"]["network"] == name.as_str();
            let blocks = fixtures["blocks"].as_array().unwrap().iter().filter(of_network).cloned();
            let blocks = is_network.then(|| blocks.collect::<Vec<_>>());
            let of_node = |item: &&Value| item["node"] == name.as_str();
            let all = bgp()["sessions"]["items"].as_array().unwrap().clone();
            let sessions: Vec<&Value> = all.iter().filter(of_node).collect();
            let sessions = (resource == Resource::Object(Kind::Node)).then(|| json!({ "items": sessions }));
            let subject = DescribeSubject {
                resource,
                object,
                endpoints: compiled.filter(|_| is_service),
                traffic: traffic.filter(|_| is_service),
                health: health.filter(|_| is_service),
                addresses: addresses.as_deref(),
                blocks: blocks.as_deref(),
                sessions: sessions.as_ref(),
                backends: &[],
            };
            let text = describe(&subject, now(), Style::PLAIN);
            check(&format!("describe_{}_{}", resource.singular(), name.replace(':', "-")), &text);
        }
    }
}

/// Returns the Address objects in the fixtures that belong to a pool or to a LoadBalancer Service; `None` for
/// other objects.
fn holds(fixtures: &Value, resource: Resource, object: &Value) -> Option<Vec<Value>> {
    let (namespace, name) = columns::identity(resource, object);
    let key = Value::String(format!("{namespace}/{name}"));
    let balances = object["spec"]["type"] == "LoadBalancer";
    let wanted = |address: &&Value| match resource {
        Resource::Object(Kind::AddressPool) => address["spec"]["pool"] == name.as_str(),
        Resource::Object(_) | Resource::Endpoints => {
            address["spec"]["services"].as_array().is_some_and(|services| services.contains(&key))
        }
    };
    let is_asked = balances || resource == Resource::Object(Kind::AddressPool);
    is_asked.then(|| fixtures["addresses"].as_array().unwrap().iter().filter(wanted).cloned().collect())
}

/// F086, F087: values that the node's proxy mode does not count are printed as a dash, never as zero.
#[test]
fn f086_traffic_reads_as_recorded() {
    let fixtures = fixtures();
    let traffic = &fixtures["traffic"][0];
    let by_endpoint = cli::views::traffic::by_endpoint(traffic, Style::PLAIN).unwrap();
    check("traffic", &format!("{}\n{by_endpoint}", cli::views::traffic::by_node(traffic, Style::PLAIN)));
}

/// F086: the tables of the busiest Services and the slowest nodes match the golden files; without data, no
/// table is printed.
#[test]
fn f086_top_reads_as_recorded() {
    let fixtures = fixtures();
    let services = cli::views::traffic::busiest(&fixtures["busiest"], Style::PLAIN).unwrap();
    let nodes = cli::views::lag::by_node(&fixtures["lag"], Style::PLAIN).unwrap();
    check("top", &format!("{services}\n{nodes}"));
    let nothing = json!({ "services": [], "nodes": [] });
    assert_eq!(cli::views::traffic::busiest(&nothing, Style::PLAIN), None);
    assert_eq!(
        (cli::views::lag::by_node(&nothing, Style::PLAIN), cli::views::lag::summary(&nothing)),
        (None, None)
    );
}

/// F148: `health` prints the result of each checking node per endpoint, and the resulting state.
#[test]
fn f148_health_reads_as_recorded() {
    let fixtures = fixtures();
    let health = &fixtures["health"][0];
    let narrow = cli::views::health::endpoints(health, now(), Style::PLAIN).unwrap();
    let wide = cli::views::health::endpoints_wide(health, now(), Style::PLAIN).unwrap();
    let panic = cli::views::health::panic(health).unwrap();
    let held = cli::views::health::held(&fixtures["guard"], now(), Style::PLAIN).unwrap();
    check("health", &format!("{panic}\n{narrow}\n{wide}\n{held}"));
    let nothing = json!({ "endpoints": [], "held": [] });
    assert_eq!(cli::views::health::endpoints(&nothing, now(), Style::PLAIN), None);
    assert_eq!(cli::views::health::held(&nothing, now(), Style::PLAIN), None);
    assert_eq!(cli::views::health::panic(&nothing), None);
}

/// Problems are printed with their remedy. Sessions of agents without recent reports are not shown as established.
#[test]
fn f126_sessions_routes_and_events_read_as_recorded() {
    let bgp = bgp();
    for (name, wide) in [("bgp_peers", false), ("bgp_peers_wide", true)] {
        let table = cli::views::bgp::peers(&bgp["sessions"], wide, now(), Style::PLAIN).unwrap();
        let hints =
            if wide { String::new() } else { cli::views::bgp::hints(&bgp["sessions"]).join("\n") + "\n" };
        check(name, &(table + &hints));
    }
    for (name, wide) in [("bgp_routes", false), ("bgp_routes_wide", true)] {
        check(name, &cli::views::bgp::routes(&bgp["routes"], wide, now(), Style::PLAIN).unwrap());
    }
    check("bgp_events", &cli::views::bgp::events(&bgp["events"], Style::PLAIN).unwrap());
    let color = cli::views::bgp::peers(&bgp["sessions"], false, now(), Style { color: true }).unwrap();
    check("bgp_peers_color", &color.replace('\u{1b}', "ESC"));
    let nothing = json!({ "items": [] });
    assert_eq!(cli::views::bgp::peers(&nothing, true, now(), Style::PLAIN), None);
    assert_eq!(cli::views::bgp::routes(&nothing, true, now(), Style::PLAIN), None);
    assert_eq!(cli::views::bgp::events(&nothing, Style::PLAIN), None);
}

#[test]
fn the_one_look_status_reads_as_recorded() {
    let fixtures = fixtures();
    check(
        "status_problems",
        &render::status(&fixtures["status"], Some(&fixtures["lag"]), now(), Style::PLAIN),
    );
    check("status_healthy", &render::status(&fixtures["healthy"], None, now(), Style::PLAIN));
    assert!(!render::is_healthy(&fixtures["status"]));
    assert!(render::is_healthy(&fixtures["healthy"]));
    assert!(render::is_healthy(&json!({})), "an empty cluster is healthy");
}

#[test]
fn events_and_outcomes_read_as_recorded() {
    let fixtures = fixtures();
    let mut text = String::new();
    for resource in RESOURCES.into_iter().filter(|resource| *resource != Resource::Endpoints) {
        for (object, word) in
            fixtures[resource.plural()].as_array().unwrap().iter().zip(["ADDED", "MODIFIED", "DELETED"])
        {
            let event = json!({ "type": word, "revision": 42, "position": "1-42", "object": object });
            text.push_str(&(render::event(&event, Style::PLAIN).unwrap() + "\n"));
        }
    }
    let heartbeat = json!({ "type": "HEARTBEAT", "revision": 42, "position": "1-42" });
    assert_eq!(render::event(&heartbeat, Style::PLAIN), None);
    for (object, action) in
        fixtures["services"].as_array().unwrap().iter().zip(["created", "updated", "pruned", "unchanged"])
    {
        text.push_str(&render::outcome(object, action, action == "updated", Style::PLAIN));
    }
    check("events_and_outcomes", &text);
}

#[test]
fn plans_read_as_recorded() {
    let change =
        |change: &str, place: &str, line: &str| json!({ "change": change, "place": place, "line": line });
    let plan = json!({
        "id": "00d1f7c0a4be25c9", "position": "1-7", "expires": "2026-11-21T10:00:00Z",
        "objects": [
            { "object": "Service default/web", "action": "updated", "omitted": 0, "fields": [
                { "pointer": "/spec/ports/0/port", "before": 80, "after": 81 },
                { "pointer": "/spec/sessionAffinity", "after": "ClientIP" },
            ] },
            { "object": "EndpointSet default/web", "action": "created", "omitted": 3, "fields": [
                { "pointer": "", "after": { "metadata": { "name": "web" }, "spec": { "service": "web" } } },
            ] },
            { "object": "BgpPeer tor", "action": "updated", "fields": [], "omitted": 0 },
            { "object": "Service default/old\u{1b}[31m", "action": "pruned", "omitted": 0, "fields": [
                { "pointer": "", "before": { "spec": { "type": "ClusterIP" } } },
            ] },
        ],
        "addresses": [{
            "address": "192.0.2.10",
            "before": { "services": ["default/web"], "nodes": ["a", "b"], "advertisements": [] },
            "after": { "services": ["default/web"], "nodes": ["b"], "advertisements": ["tor"] },
        }],
        "guards": ["it would remove 60 of 60 endpoint addresses at once"],
        "nodes": {
            "a": { "preview": {
                "announcements": [change("removed", "link eth0", "192.0.2.10 owner")],
                "kernel": [
                    change("added", "map inet tidegate services4", "10.96.0.1 . 6 . 81 : 0x00000002"),
                    change("added", "chain inet tidegate cluster-2", "drop"),
                    change("removed", "map inet tidegate services4", "10.96.0.1 . 6 . 80 : 0x00000001"),
                ],
                "omitted": 5, "sessionResets": ["tor: the hold time would be another"],
                "connectionsAtRisk": 12, "failures": ["Service default/x: scheduler rr is not known"],
            } },
            "b": { "preview": { "kernel": [], "announcements": [], "omitted": 0 } },
            "c": { "error": "the agent is not connected" },
        },
    });
    check("plan", &cli::views::plan::whole(&plan, Style::PLAIN));
    check("plan_color", &cli::views::plan::whole(&plan, Style { color: true }));
    check("diff", &cli::views::plan::objects(&plan, Style::PLAIN));
    let nothing = json!({ "objects": [], "nodes": { "a": { "preview": {} } } });
    assert_eq!(cli::views::plan::whole(&nothing, Style::PLAIN), "Nothing would change.\n");
    for odd in [json!(null), json!({ "objects": [1, {}], "addresses": "x", "nodes": { "a": 1 } })] {
        let _shown = cli::views::plan::whole(&odd, Style::PLAIN);
    }
}

#[test]
fn every_help_teaches_as_recorded() {
    let mut command = cli::args::groups::for_help().term_width(110);
    check("help", &command.render_long_help().to_string());
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let mut subcommand = subcommand.clone().term_width(110);
        check(&format!("help_{}", subcommand.get_name()), &subcommand.render_long_help().to_string());
        for inner in subcommand.get_subcommands() {
            let mut inner = inner.clone().term_width(110);
            let name = format!("help_{}_{}", subcommand.get_name(), inner.get_name());
            check(&name, &inner.render_long_help().to_string());
        }
    }
}

#[test]
fn field_paths_are_written_as_people_write_fields() {
    for (pointer, path) in [
        ("/spec/ports/0/port", "spec.ports[0].port"),
        ("/metadata/labels/example.org~1a~0b", "metadata.labels[\"example.org/a~b\"]"),
        ("", "the whole input"),
        ("/", "[\"\"]"),
        ("/items/1", "items[1]"),
    ] {
        assert_eq!(render::field_path(pointer), path, "{pointer}");
    }
}

/// The fixtures match the published model, so that a renamed field fails here first.
#[test]
fn fixtures_have_the_shape_that_the_model_publishes() {
    fn all<Spec: DeserializeOwned, Status: DeserializeOwned>(objects: &Value) {
        for object in objects.as_array().unwrap() {
            let name = &object["metadata"]["name"];
            let _metadata: Metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
            let _spec: Spec =
                serde_json::from_value(object["spec"].clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
            if let Some(status) = object.get("status") {
                let _status: Status =
                    serde_json::from_value(status.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
    }
    let mut fixtures = fixtures();
    all::<ServiceSpec, ServiceStatus>(&fixtures["services"]);
    all::<EndpointSetSpec, EndpointSetStatus>(&fixtures["endpointsets"]);
    all::<WorkloadSpec, WorkloadStatus>(&fixtures["workloads"]);
    all::<AddressPoolSpec, AddressPoolStatus>(&fixtures["addresspools"]);
    all::<AdvertisementSpec, AdvertisementStatus>(&fixtures["advertisements"]);
    all::<BgpPeerSpec, BgpPeerStatus>(&fixtures["bgppeers"]);
    all::<BfdProfileSpec, BfdProfileStatus>(&fixtures["bfdprofiles"]);
    all::<DnsZoneSpec, DnsZoneStatus>(&fixtures["dnszones"]);
    all::<CertificateSpec, CertificateStatus>(&fixtures["certificates"]);
    all::<GatewaySpec, GatewayStatus>(&fixtures["gateways"]);
    all::<HttpRouteSpec, HttpRouteStatus>(&fixtures["httproutes"]);
    all::<TlsRouteSpec, TlsRouteStatus>(&fixtures["tlsroutes"]);
    all::<WorkloadNetworkSpec, WorkloadNetworkStatus>(&fixtures["workloadnetworks"]);
    all::<NetworkPolicySpec, NetworkPolicyStatus>(&fixtures["networkpolicies"]);
    all::<BlockSpec, BlockStatus>(&fixtures["blocks"]);
    all::<AttachmentSpec, AttachmentStatus>(&fixtures["attachments"]);
    all::<AddressSpec, AddressStatus>(&fixtures["addresses"]);
    all::<EndpointHealthSpec, ()>(&fixtures["endpointhealths"]);
    for compiled in fixtures["endpoints"].as_array().unwrap() {
        let _compiled: CompiledService = serde_json::from_value(compiled.clone()).unwrap();
    }
    fn listed<Item: DeserializeOwned>(listing: &Value) {
        for item in listing["items"].as_array().unwrap() {
            let _item: Item = serde_json::from_value(item.clone()).unwrap_or_else(|e| panic!("{item}: {e}"));
        }
    }
    listed::<BgpSessionItem>(&bgp()["sessions"]);
    listed::<BgpRouteItem>(&bgp()["routes"]);
    listed::<BgpEvent>(&bgp()["events"]);
    for health in fixtures["health"].as_array().unwrap() {
        let _health: ServiceHealth = serde_json::from_value(health.clone()).unwrap();
    }
    for traffic in fixtures["traffic"].as_array().unwrap() {
        let _traffic: ServiceTraffic = serde_json::from_value(traffic.clone()).unwrap();
    }
    let _busiest: Busiest = serde_json::from_value(fixtures["busiest"].clone()).unwrap();
    let _lag: LagOverview = serde_json::from_value(fixtures["lag"].clone()).unwrap();
    // The server fills in the status of a node that never reported.
    fixtures["nodes"].as_array_mut().unwrap().pop();
    all::<NodeSpec, NodeStatus>(&fixtures["nodes"]);
}

/// If a server of another version sends unknown fields or conditions, or an object that the command cannot
/// decode, the rest of the response is rendered.
#[test]
fn a_status_with_an_unknown_field_and_an_unknown_condition_is_rendered() {
    let resource = Resource::Object(Kind::Service);
    let mut service = fixtures()["services"][0].clone();
    service["status"]["shadows"] = json!({ "total": 7 });
    service["status"]["nodes"]["dreaming"] = json!(2);
    service["spec"]["ports"][0]["tint"] = json!("blue");
    let blessed =
        json!({ "type": "Blessed", "status": "False", "reason": "NoSaint", "message": "nobody came" });
    service["status"]["conditions"].as_array_mut().unwrap().push(blessed);
    let unreadable = json!({ "metadata": { "name": "odd", "namespace": "default" }, "spec": 7 });
    let columns = Columns { wide: true, ..Columns::default() };
    let mut table = columns::empty(resource, columns);
    for object in [&service, &unreadable] {
        columns::push(&mut table, resource, columns, object, now(), "");
    }
    let recorded = table_of(&fixtures()["services"][0], columns);
    let text = table.render(Style::PLAIN);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), recorded, "nothing is lost");
    assert!(lines[2].starts_with("odd") && lines[2].contains("<unreadable>"), "{text}");
    let describe = |object| {
        let subject = DescribeSubject {
            resource,
            object,
            endpoints: None,
            traffic: None,
            health: None,
            addresses: None,
            blocks: None,
            sessions: None,
            backends: &[],
        };
        describe(&subject, now(), Style::PLAIN)
    };
    let text = describe(&service);
    assert!(text.contains("Blessed             False   NoSaint\n    nobody came"), "{text}");
    assert!(text.contains("80:30080") || text.contains("8000/TCP to port 80"), "{text}");
    assert!(describe(&unreadable).contains("<unreadable>"));
}

/// Returns the cells of the table row of a Service.
fn table_of(object: &Value, columns: Columns) -> Vec<String> {
    let mut table = columns::empty(Resource::Object(Kind::Service), columns);
    columns::push(&mut table, Resource::Object(Kind::Service), columns, object, now(), "");
    let text = table.render(Style::PLAIN);
    text.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// The rendering functions do not panic on a response of any shape.
#[test]
fn no_shape_of_an_answer_stops_the_rendering() {
    let odd = [
        json!(null),
        json!([]),
        json!("x"),
        json!({"metadata": 1, "spec": [1], "status": {"conditions": {"a": 1}}}),
    ];
    let deep = json!({"spec": {"ports": [null, {"port": {}}], "endpoints": [3]}, "ports": [{"endpoints": [[]]}], "service": 7});
    for object in odd.iter().chain([&deep]) {
        for resource in RESOURCES {
            for wide in [false, true] {
                let columns = Columns { wide, namespace: true, qualified: true, event: true, labels: true };
                let mut table = columns::empty(resource, columns);
                columns::push(&mut table, resource, columns, object, now(), "");
                assert!(table.render(Style::PLAIN).lines().count() >= 2);
            }
            assert!(
                !describe(
                    &DescribeSubject {
                        resource,
                        object,
                        endpoints: Some(object),
                        traffic: Some(object),
                        health: Some(object),
                        addresses: Some(std::slice::from_ref(object)),
                        blocks: Some(std::slice::from_ref(object)),
                        sessions: Some(object),
                        backends: std::slice::from_ref(object),
                    },
                    now(),
                    Style::PLAIN
                )
                .is_empty()
            );
        }
        let _table = cli::views::traffic::by_node(object, Style::PLAIN);
        let rows = json!({ "services": [object], "nodes": [object], "slowest": object });
        let _table = (
            cli::views::traffic::busiest(&rows, Style::PLAIN),
            cli::views::lag::by_node(&rows, Style::PLAIN),
        );
        let odd_rows = json!({ "endpoints": [object], "held": [object] });
        let _table = cli::views::health::endpoints_wide(&odd_rows, now(), Style::PLAIN);
        let _table = cli::views::health::held(&odd_rows, now(), Style::PLAIN);
        let listing = json!({ "items": [object, { "session": object, "peers": object, "trouble": object }] });
        let _table = cli::views::bgp::peers(&listing, true, now(), Style::PLAIN);
        let _table = cli::views::bgp::routes(&listing, true, now(), Style::PLAIN);
        let _table = cli::views::bgp::events(&listing, Style::PLAIN);
        let _hints = cli::views::bgp::hints(&listing);
        let _text = render::status(object, Some(object), now(), Style::PLAIN);
        let _text = cli::views::explain::explanation(object, Style::PLAIN);
        let _line = render::event(&json!({ "type": 5, "object": object }), Style::PLAIN);
    }
}
