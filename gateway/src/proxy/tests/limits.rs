//! Timeouts of rules, and copies for mirrors.

use super::*;

/// A response that has begun is cut at the end of the timeout of its rule, and a body that was read is copied to the mirror.
#[tokio::test]
async fn timeouts_cut_responses_and_mirrors_receive_bodies() {
    let (endpoint, mirror) = (TestEndpoint::start().await, TestEndpoint::start().await);
    let slow = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let slow_port = slow.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = slow.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
        // Parts arrive without a pause that the limit of the time without progress would notice.
        while stream.write_all(b"part").await.is_ok() {
            tokio::time::sleep(IDLE / 20).await;
        }
    });
    let backend = |name: &str| json!({"name": name, "port": 80});
    let copy =
        |name: &str| json!([{"type": "RequestMirror", "requestMirror": {"backendRef": backend(name)}}]);
    let path = |path: &str| json!([{"path": {"value": path}}]);
    let rules = json!([
        {"matches": path("/cut"), "backendRefs": [backend("slow")], "timeouts": {"request": "150ms"}},
        {"matches": path("/copied"), "backendRefs": [backend("web")], "filters": copy("mirror")},
        {"matches": path("/lost"), "backendRefs": [backend("web")], "filters": copy("gone")},
    ]);
    let services =
        [service("web", &[endpoint.port]), service("mirror", &[mirror.port]), service("slow", &[slow_port])];
    let gone = free_port().await;
    let objects = [services.concat(), service("gone", &[gone]), vec![routes(&rules)]].concat();
    let gateway = TestGateway::start(objects).await;

    let mut connection = gateway.connect().await;
    connection.get_mut().write_all(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut bytes)).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("part") && text.len() < 2000, "{text}");

    let post = |path: &str, size: usize| {
        let body = "x".repeat(size);
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{body}")
    };
    for (path, size) in [("/copied", 100_000), ("/copied", 0), ("/lost", 5)] {
        let (head, body) = gateway.send(&post(path, size)).await;
        assert!(head.starts_with("http/1.1 200 ") && body.len() > size, "{path}: {head}");
    }
    let metrics = &gateway.front.metrics;
    let counted = async {
        while metrics.mirrors.get() < 2 || metrics.mirrors_failed.get() < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
    assert_eq!(mirror.requests.load(Ordering::Relaxed), 2);
    // A body that is too large is forwarded, and not copied.
    let (head, _) = gateway.send(&post("/copied", 1_500_000)).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!((metrics.mirrors.get(), mirror.requests.load(Ordering::Relaxed)), (2, 2));
}

/// A gateway that another process replaces accepts no more connections, and ends an open one after the next response.
#[tokio::test]
async fn connections_end_after_a_response_when_another_process_takes_over() {
    let endpoint = TestEndpoint::start().await;
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let gateway = TestGateway::start([service("web", &[endpoint.port]), vec![routes(&rules)]].concat()).await;
    let mut connection = gateway.connect().await;
    for is_leaving in [false, true] {
        connection.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let (head, _) = response(&mut connection).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert_eq!(head.contains("connection: close\r\n"), is_leaving, "{head}");
        gateway.front.end.leaving.cancel();
    }
    assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
    while TcpStream::connect(gateway.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// An upload that makes progress takes as long as it takes. One that is malformed or that stops is the fault of the client.
#[tokio::test]
async fn an_upload_is_limited_by_its_progress() {
    let endpoint = TestEndpoint::start().await;
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let gateway = TestGateway::start([service("web", &[endpoint.port]), vec![routes(&rules)]].concat()).await;
    let mut connection = gateway.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n";
    connection.get_mut().write_all(head.as_bytes()).await.unwrap();
    // Longer than the limit for the head of a response, without a pause that is too long.
    for _ in 0..20 {
        tokio::time::sleep(RESPONSE_TIMEOUT / 10).await;
        connection.get_mut().write_all(b"x").await.unwrap();
    }
    let (head, body) = response(&mut connection).await;
    assert!(head.starts_with("http/1.1 200 ") && body.ends_with(&"x".repeat(20)), "{head}{body}");

    for (rest, status) in
        [("3;a\nb", 400), ("FFFFFFFFFFFFFFFF3\r\n", 400), ("1\r\nxyz\r\n", 400), ("1\r\nx\r\n", 408)]
    {
        let head = "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (head, body) = gateway.send(&format!("{head}{rest}")).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{rest:?}: {head}{body}");
    }
    assert_eq!(gateway.front.metrics.upstream_failures.get(), 0);
}

/// No request reaches an endpoint of a port whose application protocol includes TLS, in any spelling: it would be in plain text.
#[tokio::test]
async fn endpoints_with_tls_get_no_requests_in_plain_text() {
    let endpoint = TestEndpoint::start().await;
    let backends = ["https", "HTTPS", "Kubernetes.io/WSS", "http"];
    let mut objects = Vec::new();
    let mut rules = Vec::new();
    for (index, protocol) in backends.iter().enumerate() {
        let (name, path) = (format!("s{index}"), format!("/{index}"));
        let mut own = service(&name, &[endpoint.port]);
        let ports = json!([{"name": "web", "port": 80, "appProtocol": protocol}]);
        own[0] = object(
            "Service",
            &name,
            &json!({"clusterIP": format!("10.96.0.{}", 10 + index), "ports": ports}),
        );
        objects.extend(own);
        rules.push(
            json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": name, "port": 80}]}),
        );
    }
    objects.push(routes(&json!(rules)));
    let gateway = TestGateway::start(objects).await;
    for (index, expected) in ["500", "500", "500", "200"].into_iter().enumerate() {
        let (head, _) = gateway.get(&format!("/{index}")).await;
        assert!(head.starts_with(&format!("http/1.1 {expected} ")), "{}: {head}", backends[index]);
    }
    assert_eq!(endpoint.requests.load(Ordering::Relaxed), 1);
}
