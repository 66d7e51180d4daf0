//! Connections that say nothing, too little, or are too many.

use std::time::Duration;

use api::serve::CONNECTIONS_PER_ADDRESS_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::site::{PATIENCE, Site, memory_kib, rest, status};

const HEAD: &str = "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// Silence, half of the preface of HTTP/2, half a head, half a body, and a body in pieces that never ends: all at the same
/// time, many of each. They are cut or told, and nobody waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_cut_and_others_are_served() {
    const OF_EACH: usize = 20;
    let site = Site::start().await;
    let whole = format!("{HEAD}Content-Length: 1000\r\n\r\n[");
    let pieces = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n[null\r\n");
    // What is said, and what is answered in the end: nothing, or that the request came too slowly.
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
    let count = clients.len();
    for client in clients {
        client.await.unwrap();
    }
    println!("{count} slow clients were cut; {served} others were served meanwhile; {} KiB", memory_kib());
}

/// As many connections of one address as it may have, none of which says anything. The next is closed, another address is
/// served, and a place that is given back can be had again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_cannot_take_all_connections() {
    let site = Site::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
        held.push(site.connect_from(2).await);
    }
    let mut closed = 0;
    // The server takes connections in their order, so these come after all those that are held.
    for _ in 0..50 {
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
    println!("{CONNECTIONS_PER_ADDRESS_MAX} connections held, {closed} more closed; {} KiB", memory_kib());
}

/// More watches than there may be: those beyond are told so and when to come back; ordinary requests go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_watches_than_there_may_be_are_told_to_come_back() {
    const ASKED: usize = 1100;
    let site = Site::start().await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for at in 0..ASKED {
        let mut stream = site.connect_from(if at % 2 == 0 { 3 } else { 4 }).await;
        stream.write_all(b"GET /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap();
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        match status(&head.replacen("http/1.1", "HTTP/1.1", 1)) {
            200 => open.push(stream),
            429 => {
                assert!(head.contains("retry-after:"), "{head}");
                refused += 1;
            }
            other => panic!("{other}: {head}"),
        }
    }
    assert_eq!((open.len(), refused), (1024, ASKED - 1024));
    site.serves_others().await;
    println!("{} watches open, {refused} told to come back; {} KiB", open.len(), memory_kib());
}
