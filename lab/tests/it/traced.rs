//! Tests of a write from the command to the kernels: its trace in a collector (OTLP), and `apply --wait`. The collector
//! also gets the metrics of both servers.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, ensure};
use axum::{Router, body::Bytes, extract::State, routing::post};
use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, wait},
    network::topology,
    processes::binaries,
};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::any_value::Value,
    metrics::v1::{AggregationTemporality, Metric, metric::Data, number_data_point::Value::AsDouble},
    resource::v1::Resource,
    trace::v1::{Span, status::StatusCode},
};
use prost::Message as _;

/// Port of the collector in the namespace of the control server.
const PORT: u16 = 4318;
/// Manifest of the change whose trace is examined. The port is replaced.
const WEB: &str = "
apiVersion: tidegate/v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}
---
apiVersion: tidegate/v1
kind: EndpointSet
metadata: {name: web}
spec: {service: web, endpoints: [{address: 10.1.1.11}]}
";

/// Received spans with the names of the programs that sent them.
type Received = Arc<Mutex<Vec<(String, Span)>>>;
/// Last received metrics by the names of program and metric.
type Measured = Arc<Mutex<BTreeMap<(String, String), Metric>>>;

/// Starts a collector that decodes the spans and metrics it receives, in a namespace.
fn collector(place: &Namespace) -> (Received, Measured) {
    let listener = place.inside(|| TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let (received, measured) = (Received::default(), Measured::default());
    let router = Router::new()
        .route("/v1/traces", post(receive).with_state(Arc::clone(&received)))
        .route("/v1/metrics", post(measure).with_state(Arc::clone(&measured)));
    // The thread ends with the process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (received, measured)
}

/// Returns the name of the program that sent a request.
fn program(resource: Option<Resource>) -> String {
    let attributes = resource.unwrap().attributes;
    let name = attributes.into_iter().find(|attribute| attribute.key == "service.name").unwrap();
    let Some(Value::StringValue(program)) = name.value.unwrap().value else { panic!("no name") };
    program
}

async fn receive(State(received): State<Received>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for resource in request.resource_spans {
        let program = program(resource.resource);
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        received.lock().unwrap().extend(spans.map(|span| (program.clone(), span)));
    }
}

async fn measure(State(measured): State<Measured>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    for resource in request.resource_metrics {
        let program = program(resource.resource);
        let metrics = resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
        measured
            .lock()
            .unwrap()
            .extend(metrics.map(|metric| ((program.clone(), metric.name.clone()), metric)));
    }
}

/// Waits until a counter of a program has a positive value in the collector.
fn wait_counted(measured: &Measured, program: &str, name: &str) {
    wait::until(&format!("{name} of {program}"), || {
        let all = measured.lock().unwrap();
        let metric = all.get(&(program.to_owned(), name.to_owned())).context("no metric of this name")?;
        let Some(Data::Sum(sum)) = &metric.data else { panic!("no counter: {metric:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
        let is_positive = |value: &Option<_>| matches!(value, Some(AsDouble(value)) if *value > 0.0);
        ensure!(sum.data_points.iter().any(|point| is_positive(&point.value)), "{metric:?}");
        Ok(())
    })
    .unwrap();
}

/// Runs the CLI in the namespace of the control server, with the variables of the collector. Returns its exit status
/// and output.
fn tidegate(cluster: &Cluster, environment: &[(String, String)], arguments: &[&str]) -> (i32, String) {
    let place = cluster.place("control").unwrap();
    let program = binaries::find("tidegate").unwrap();
    let output = Command::new("ip")
        .args(["netns", "exec", place.name(), program.to_str().unwrap(), "--api", cluster.api.url()])
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), printed)
}

/// Returns the spans of the trace of the command `apply` by program and name, after all programs have sent theirs.
fn trace_of_apply(received: &Received) -> BTreeMap<(String, String), Span> {
    wait::until("the spans of the agent", || {
        let all = received.lock().unwrap();
        let root = all.iter().find(|(_, span)| span.name == "command").context("no command")?;
        let same = all.iter().filter(|(_, span)| span.trace_id == root.1.trace_id);
        let trace: BTreeMap<_, _> =
            same.map(|(program, span)| ((program.clone(), span.name.clone()), span.clone())).collect();
        // Each program sends its spans when it likes.
        let names = ["command", "request", "commit", "apply", "kernel"];
        let is_complete = names.iter().all(|name| trace.keys().any(|(_, found)| found == name));
        ensure!(is_complete, "only {:?}", trace.keys());
        let commit = trace.iter().find(|((_, name), _)| name == "commit").context("no commit")?.1;
        let is_parent = |span: &Span| span.name == "request" && span.span_id == commit.parent_span_id;
        ensure!(all.iter().any(|(_, span)| is_parent(span)), "no request of the commit yet: {commit:?}");
        Ok(trace)
    })
    .unwrap()
}

/// One trace leads from the command through the request and the commit to the kernel of the node. `apply --wait`
/// returns after the node has the change, and fails with the reason if the node does not get it in time.
#[test]
fn a_write_has_one_trace_down_to_the_kernel_and_a_wait_follows_it_there() {
    let address = topology::CONTROL.ip();
    let environment = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{address}:{PORT}")),
        ("OTEL_METRIC_EXPORT_INTERVAL".to_owned(), "500".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "100".to_owned()),
    ];
    let options = Options { nodes: 1, environment: environment.clone(), ..Options::default() };
    let mut cluster = Cluster::start_control(&options).unwrap();
    let (received, measured) = collector(cluster.place("control").unwrap());
    cluster.start_agent("node1").unwrap();
    cluster.wait_agent_ready("node1").unwrap();
    cluster.wait_converged().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let before = write("before.yaml", WEB.to_owned());
    let (code, printed) = tidegate(&cluster, &environment, &["apply", "--wait", "-f", &before]);
    assert_eq!(code, 0, "{printed}");
    let rules = cluster.place("node1").unwrap().run("nft", &["list", "table", "inet", "tidegate"]).unwrap();
    assert!(rules.contains("10.96.0.7"), "the kernel has the Service when the command returns: {rules}");

    wait_counted(&measured, "tidegate-api", "tidegate_http_requests");
    wait_counted(&measured, "tidegate-agent", "tidegate_agent_kernel_writes");
    let trace = trace_of_apply(&received);
    let span = |program: &str, name: &str| &trace[&(program.to_owned(), name.to_owned())];
    let (command, request) = (span("tidegate", "command"), span("tidegate-api", "request"));
    let (commit, apply) = (span("tidegate-api", "commit"), span("tidegate-agent", "apply"));
    let kernel = span("tidegate-agent", "kernel");
    assert!(command.parent_span_id.is_empty());
    assert_eq!(request.parent_span_id, command.span_id);
    assert_eq!(apply.parent_span_id, commit.span_id);
    assert_eq!(kernel.parent_span_id, apply.span_id);
    assert!(command.start_time_unix_nano <= commit.start_time_unix_nano);
    assert!(kernel.end_time_unix_nano <= command.end_time_unix_nano, "the command waited for the kernel");

    // The node cannot program the next change.
    cluster.agents["node1"].pause().unwrap();
    let after = write("after.yaml", WEB.replace("port: 80", "port: 81"));
    let (code, printed) =
        tidegate(&cluster, &environment, &["apply", "--wait", "--at-most", "1s", "-f", &after]);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("updated") && printed.contains("node1"), "the write and the reason: {printed}");
    cluster.agents["node1"].go_on().unwrap();
    let (code, printed) = tidegate(&cluster, &environment, &["wait", "--at-most", "30s"]);
    assert_eq!(code, 0, "{printed}");
    wait::until("the span of the failed command", || {
        let all = received.lock().unwrap();
        let is_failed =
            |span: &Span| span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
        ensure!(all.iter().any(|(program, span)| program == "tidegate" && is_failed(span)));
        Ok(())
    })
    .unwrap();
}
