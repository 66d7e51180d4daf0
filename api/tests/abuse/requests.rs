//! Tests with oversized request heads, deceptive paths, and foreign host names.

use crate::site::{Site, refused, status};

/// Requests with many headers, a large header, or a long path are rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_headers_are_refused() {
    let site = Site::start().await;
    let many: String = (0..5000).map(|at| format!("X-{at}: y\r\n")).collect();
    let cases = [
        (format!("GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431),
        (format!("GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(1 << 20)), 431),
        (format!("GET /v1/nodes?x={} HTTP/1.1\r\nHost: localhost\r\n\r\n", "y".repeat(65_535)), 414),
    ];
    let mut count = 0;
    for (request, expected) in &cases {
        let answer = site.say(request.as_bytes()).await;
        let shown: String = request.chars().take(60).collect();
        // If the connection is reset with bytes in flight, the response may be lost.
        assert!([*expected, 431, 0].contains(&status(&answer)), "{shown}: {answer}");
        site.serves_others().await;
        count += 1;
    }
    refused("floods of headers", count, cases.len());
}

/// Paths are matched byte for byte: the server resolves no `..`, decodes no escapes, and shortens no path into
/// another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_mean_something_else_lead_nowhere() {
    let site = Site::start().await;
    let paths = [
        "/v1/../v1/nodes",
        "/v1/%2e%2e/v1/nodes",
        "/v1/./nodes",
        "//v1/nodes",
        "/v1//nodes",
        "/v1/nodes/",
        "/v1/nodes%00",
        "/v1/nodes%2f",
        "/v1%2fnodes",
        "/%76%31/%6eodes/",
        "/V1/nodes",
        "/v1/Nodes",
        "/v1/nodes;a=b",
        "/v1/nodes%3fx",
        "/v1\\nodes",
        "/v1/nodes/%2e%2e",
        "/v1/nodes/..%2f..%2fsecrets",
        "/v1/nodes/%00",
        "/v1/nodes/%ff%fe",
        "/v1/nodes/%zz",
        "/v1/nodes/a%2fb",
        "/v1/nodes/%2541",
        "/v1/namespaces/%2e%2e/services",
        "/v1/namespaces/default/services/%2e%2e%2f%2e%2e%2f%2e%2e%2fnodes",
        "/v1/namespaces/default%2fservices/x/services",
        "/docs/../v1/nodes",
        "/docs/%2e%2e/%2e%2e/etc/passwd",
        "/docs/..%2f..%2f..%2fetc%2fpasswd",
        "/metrics/../v1/nodes",
        "/v1/nodes?limit=1&limit=2",
        "/v1/nodes?limit=%00",
    ];
    let mut by_status = std::collections::BTreeMap::<u16, usize>::new();
    for path in paths {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = site.say(request.as_bytes()).await;
        let status = status(&answer);
        assert!([400, 404, 422].contains(&status), "{path}: {answer}");
        *by_status.entry(status).or_default() += 1;
    }
    site.serves_others().await;
    println!("paths by status: {by_status:?}");
    refused("paths that mean something else", by_status.values().sum(), paths.len());
}

/// Requests with a foreign host name are rejected. A web page can make a browser call this server under the page's
/// name (DNS rebinding), but not under the server's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_ours_are_refused_wherever_they_stand() {
    let site = Site::start().await;
    let heads = [
        "GET /v1/nodes HTTP/1.1\r\nHost: evil.example\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: evil.example:7440\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: localhost.evil.example\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: localhost, evil.example\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: evil.example@localhost\r\n",
        "GET /v1/nodes HTTP/1.1\r\nHost: \r\n",
        "GET /v1/nodes HTTP/1.1\r\n",
        "GET http://evil.example/v1/nodes HTTP/1.1\r\nHost: localhost\r\n",
        "GET http://localhost/v1/nodes HTTP/1.1\r\nHost: evil.example\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n",
        "TRACE /v1/nodes HTTP/1.1\r\nHost: evil.example\r\n",
    ];
    let mut count = 0;
    for head in heads {
        let answer = site.say(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
        assert!((400..=405).contains(&status(&answer)), "{head:?}: {answer}");
        count += 1;
    }
    for head in [
        "GET /v1/nodes HTTP/1.1\r\nHost: LOCALHOST:1\r\n",
        "GET http://127.0.0.1/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "GET /v1/nodes HTTP/1.0\r\n",
    ] {
        let answer = site.say(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(status(&answer), 200, "{head:?}: {answer}");
    }
    refused("foreign names (DNS rebinding)", count, heads.len());
}
