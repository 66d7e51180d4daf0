//! Tests with silent connections, slow connections, and more connections than the limit.

use std::time::Duration;

use api::{context::server_state::WATCHES_MAX, server::serve::CONNECTIONS_PER_ADDRESS_MAX};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::site::{PATIENCE, Site, refused, rest, status};

const HEAD: &str = "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// Many clients at once send no bytes, half an HTTP/2 preface, half a request head, half a body, or an endless
/// chunked body. All are disconnected or get a response, and other clients are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_cut_and_others_are_served() {
    const OF_EACH: usize = 20;
    let site = Site::start().await;
    let whole = format!("{HEAD}Content-Length: 1000\r\n\r\n[");
    let pieces = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n[null\r\n");
    // Sent bytes and accepted statuses: no response, or a timeout.
    let slow: [(&str, &[u16]); 6] = [
        ("", &[0]),
        ("PRI * HTTP/2.0\r\n\r\nSM", &[0]),
        ("GET / HTT", &[0, 408]),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow:", &[0, 408]),
        (&whole, &[400]),
        (&pieces, &[400]),
    ];
    let mut clients = Vec::new();
    for (said, expected) in slow {
        for _ in 0..OF_EACH {
            let mut stream = site.connect().await;
            stream.write_all(said.as_bytes()).await.unwrap();
            let (said, expected) = (said.to_owned(), expected.to_vec());
            clients.push(tokio::spawn(async move {
                let answer = rest(&mut stream).await;
                assert!(expected.contains(&status(&answer)), "{said:?}: {answer:?}");
            }));
        }
    }
    let mut served = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        site.serves_others().await;
        served += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut count = 0;
    for client in clients {
        client.await.unwrap();
        count += 1;
    }
    println!("{served} others were served meanwhile");
    refused("slow clients", count, OF_EACH * slow.len());
}

/// While one address has the maximum number of silent connections, its next connection is closed and another
/// address is served. After one of the connections is closed, the address can open a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_cannot_take_all_connections() {
    const MORE: usize = 50;
    let site = Site::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
        held.push(site.connect_from(2).await);
    }
    let mut closed = 0;
    // Connections are accepted in order, so these come after all held ones.
    for _ in 0..MORE {
        let mut one_more = site.connect_from(2).await;
        let read = tokio::time::timeout(PATIENCE, one_more.read(&mut [0])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        closed += 1;
        site.serves_others().await;
    }
    drop(held);
    loop {
        let mut stream = site.connect_from(2).await;
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _closed_already = stream.write_all(request).await;
        if status(&rest(&mut stream).await) == 200 {
            break;
        }
    }
    println!("{CONNECTIONS_PER_ADDRESS_MAX} connections were held");
    refused("connections beyond those of one address", closed, MORE);
}

/// Ten thousand watches, about ten times the limit, are requested. The watches beyond the limit are rejected with
/// `Retry-After`, memory stays limited, and ordinary requests are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_thousand_watches_those_beyond_the_limit_are_told_to_come_back() {
    const ASKED: usize = 10_000;
    const AT_ONCE: usize = 100;
    let site = Site::start().await;
    let (mut open, mut told) = (Vec::new(), 0);
    for round in 0..ASKED / AT_ONCE {
        let mut asked = tokio::task::JoinSet::new();
        for at in 0..AT_ONCE {
            let stream = site.connect_from(3 + u8::try_from(at % 4).unwrap()).await;
            asked.spawn(ask_to_watch(stream));
        }
        for answer in asked.join_all().await {
            match answer {
                Some(stream) => open.push(stream),
                None => told += 1,
            }
        }
        if round % 10 == 0 {
            site.serves_others().await;
        }
    }
    site.serves_others().await;
    println!("{} watches are open", open.len());
    assert_eq!(open.len(), WATCHES_MAX);
    refused("watches beyond those that there may be", told, ASKED - WATCHES_MAX);
    // A released watch can be replaced.
    drop(open.pop());
    while ask_to_watch(site.connect_from(3).await).await.is_none() {}
}

/// Requests a watch. Returns its stream if accepted, or `None` if it was rejected with `Retry-After`.
async fn ask_to_watch(mut stream: TcpStream) -> Option<TcpStream> {
    stream.write_all(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut head)).await.unwrap().unwrap();
        assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&head));
    }
    let head = String::from_utf8_lossy(&head);
    match status(&head) {
        200 => Some(stream),
        429 => {
            assert!(head.to_ascii_lowercase().contains("\r\nretry-after:"), "{head}");
            None
        }
        other => panic!("{other}: {head}"),
    }
}
