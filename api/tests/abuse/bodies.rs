//! Tests with endless request bodies, and with small bodies that expand when they are parsed.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::site::{PATIENCE, Site, refused, rest, status};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// A body with a `Content-Length` of one gibibyte, and an endless chunked body, are rejected as soon as they
/// exceed the limit, and are not buffered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_bodies_are_refused_at_the_limit() {
    const TRIED: usize = 1024 * 1024 * 1024;
    let site = Site::start().await;
    let head = "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let block = [b"10000\r\n", &[b' '; 0x10000][..], b"\r\n"].concat();
    let mut taken = Vec::new();
    for (framing, piece) in [
        (format!("Content-Length: {TRIED}"), vec![b' '; 0x10000]),
        ("Transfer-Encoding: chunked".to_owned(), block),
    ] {
        let (mut reader, mut writer) = site.connect().await.into_split();
        writer.write_all(format!("{head}{framing}\r\n\r\n").as_bytes()).await.unwrap();
        let writing = tokio::spawn(async move {
            let mut bytes = 0;
            while bytes < TRIED && writer.write_all(&piece).await.is_ok() {
                bytes += piece.len();
            }
            bytes
        });
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, reader.read_to_end(&mut answer)).await;
        let _cut = read.expect("the server neither answers nor closes");
        drop(reader);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let bytes = writing.await.unwrap();
        // If the connection is reset with bytes in flight, the response may be lost.
        assert!([413, 0].contains(&status(&answer)), "{answer}");
        assert!(bytes < 128 * 1024 * 1024, "{framing}: {bytes} bytes were taken");
        taken.push(bytes);
        site.serves_others().await;
    }
    // Just beyond the limit the response cannot be lost.
    let answer = site.send("POST", "/v1/apply", JSON, &vec![b' '; 8 * 1024 * 1024 + 1]).await;
    assert_eq!(status(&answer), 413, "{answer}");
    println!("of 1 GiB were taken {taken:?} bytes");
    refused("endless bodies", taken.len() + 1, 3);
}

/// JSON and YAML bodies that expand when they are parsed are rejected with status 400 or 422, and use no more
/// memory than their size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_in_bodies_are_refused() {
    let site = Site::start().await;
    let deep = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for at in 1..30 {
        let previous = vec![format!("*a{}", at - 1); 10].join(",");
        laughs += &format!("a{at}: &a{at} [{previous}]\n");
    }
    let many = |count: usize, one: &str| vec![one; count].join(",");
    let node = |spec: &str| format!("{{\"metadata\":{{\"name\":\"n\"}},\"spec\":{spec}}}");
    let bodies = [
        (JSON, deep("[", "]")),
        (JSON, deep("{\"a\":", "}")),
        (JSON, "[".repeat(900_000)),
        (JSON, node("{\"a\":1e999999}")),
        (JSON, node(&format!("{{\"a\":{}}}", "9".repeat(500_000)))),
        (JSON, node(&format!("{{\"a\":0.{}}}", "0".repeat(500_000)))),
        (JSON, "{\"metadata\":{\"name\":\"n\"},\"metadata\":{\"name\":\"m\"},\"spec\":{}}".to_owned()),
        (JSON, format!("{{\"metadata\":{{\"name\":\"{}\"}},\"spec\":{{}}}}", "n".repeat(900_000))),
        (JSON, format!("[{}]", many(100_000, "{}"))),
        (JSON, "\u{feff}{}".to_owned()),
        (JSON, "{\"a\":\"\\ud800\"}".to_owned()),
        (JSON, "nul".to_owned()),
        (YAML, laughs),
        (YAML, deep("[", "]")),
        (YAML, (0..5000).map(|at| " ".repeat(at % 200) + "- \n").collect()),
        (YAML, "a: &a [*a]\n".to_owned()),
        (YAML, "a: 1\na: 2\n".to_owned()),
        (YAML, "? [a, b]\n: c\n".to_owned()),
        (YAML, "--- \n".repeat(100_000) + "x: !!binary zz"),
        (YAML, format!("x: {}", "&a ".repeat(50_000))),
        (YAML, "!!python/object/apply:os.system [id]".to_owned()),
        (YAML, "x: .inf\n".to_owned()),
    ];
    let mut by_status = std::collections::BTreeMap::<u16, usize>::new();
    let paths = [("/v1/nodes", "POST"), ("/v1/nodes/n", "PUT"), ("/v1/apply", "POST")];
    for (path, method) in paths {
        for (content_type, body) in &bodies {
            let answer = site.send(method, path, content_type, body.as_bytes()).await;
            let shown: String = body.chars().take(60).collect();
            let status = status(&answer);
            assert!([400, 413, 422].contains(&status), "{method} {path} {shown:?}: {answer}");
            assert!(answer.contains("application/problem+json"), "{shown:?}: {answer}");
            *by_status.entry(status).or_default() += 1;
        }
        site.serves_others().await;
    }
    println!("bombs by status: {by_status:?}");
    refused("bombs and deep nesting in JSON and YAML", by_status.values().sum(), bodies.len() * paths.len());
}

/// Requests whose length is ambiguous are rejected, so that a proxy in front of the server cannot be used for
/// request smuggling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_whose_length_is_ambiguous_are_refused() {
    let site = Site::start().await;
    let head = "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let smuggled = "GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let framings = [
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]",
        "Content-Length: 2, 3\r\n\r\n[]",
        "Content-Length: +2\r\n\r\n[]",
        "Content-Length: 0x2\r\n\r\n[]",
        "Content-Length: -1\r\n\r\n[]",
        "Content-Length: 18446744073709551616\r\n\r\n[]",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "Content-Length : 2\r\n\r\n[]",
        "X-A: b\r\n c: d\r\nContent-Length: 2\r\n\r\n[]",
        "X-\0: b\r\nContent-Length: 2\r\n\r\n[]",
    ];
    let mut count = 0;
    for framing in framings {
        let mut stream = site.connect().await;
        stream.write_all(format!("{head}{framing}{smuggled}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = rest(&mut stream).await;
        assert!([0, 400, 501].contains(&status(&answer)), "{framing:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 0, "{framing:?}: {answer}");
        count += 1;
    }
    site.serves_others().await;
    refused("requests of ambiguous length", count, framings.len());
}
