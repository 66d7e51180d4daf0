//! Test of namespaces that use all slots of health checks.

use node_agent::health::CHECKS_IN_FLIGHT_MAX;

use super::*;

/// Even if the endpoints of several namespaces hang and use all slots, the endpoints of another namespace are checked
/// at their interval, and their failures are noticed.
#[test]
fn namespaces_whose_endpoints_all_hang_do_not_delay_the_checks_of_another() {
    let node = Node::new("hc-greedy");
    let good = Answering::tcp(&node.namespace, "10.9.0.1:80", |_, stream| drop(stream));
    let hangs = json!({"type": "Tcp", "timeoutMs": 3_600_000});
    let greedy: Vec<_> = (0..4).map(|at| format!("greedy-{}/s{at}", at % 2)).collect();
    for (at, service) in greedy.iter().enumerate() {
        let endpoints: Vec<_> =
            (0..CHECKS_IN_FLIGHT_PER_SERVICE_MAX).map(|n| format!("10.8.{at}.{n}:80")).collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        node.set(service, Some(&hangs), &endpoints);
    }
    let in_all = greedy.len() * CHECKS_IN_FLIGHT_PER_SERVICE_MAX;
    let waiting = i64::try_from(in_all - CHECKS_IN_FLIGHT_MAX).unwrap();
    until("all slots are used", || node.tally.health.waiting.get() >= waiting);
    let check = json!({"type": "Tcp", "intervalMs": 500, "timeoutMs": 500});
    node.set("prod/shop", Some(&check), &["10.9.0.1:80", "10.9.0.1:81"]);
    node.until("prod/shop", |reports| {
        reports.iter().map(|report| report.state).collect::<Vec<_>>()
            == [CheckState::Healthy, CheckState::Unhealthy]
    });
    let hits = good.hits();
    until("further checks", || good.hits() >= hits + 3);
    // Checks that gave up their slots have no result.
    for service in &greedy {
        assert!(node.reports(service).iter().all(|report| report.state == CheckState::Pending));
    }
    assert!(node.results("not_asked") > 0);
}
