//! Tests with malicious HTTP/2 frames (RFC 9113), which no HTTP library would send.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::site::{PATIENCE, Site, refused};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// HTTP/2 error code for a client that causes excessive load (RFC 9113, 7).
const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// Encodes the headers of `GET /healthz` in HPACK.
fn request() -> Vec<u8> {
    get("/healthz")
}

/// Encodes the headers of a GET request in HPACK (RFC 7541): two entries of the static table, and path and
/// authority as literals.
pub(crate) fn get(path: &str) -> Vec<u8> {
    let literal =
        |name: u8, text: &str| [&[0x40 | name, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [&[0x82, 0x86][..], &literal(4, path), &literal(1, "localhost")].concat()
}

/// Reads HTTP/2 frames until the connection ends. Returns type, stream id and body of each.
async fn frames(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    let reading = async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
            let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut body = vec![0; length];
            if stream.read_exact(&mut body).await.is_err() {
                return;
            }
            frames.push((head[3], id, body));
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the server keeps a connection that it should end");
    frames
}

/// Returns the error codes of those frames that are GOAWAY.
fn farewells(frames: &[(u8, u32, Vec<u8>)]) -> Vec<u32> {
    let farewells = frames.iter().filter(|(kind, _, body)| *kind == GOAWAY && body.len() >= 8);
    farewells.map(|(_, _, body)| u32::from_be_bytes(body[4..8].try_into().unwrap())).collect()
}

async fn open(site: &Site) -> TcpStream {
    let mut stream = site.connect().await;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// A client that resets its requests immediately, over and over (CVE-2023-44487), is disconnected, and other
/// clients are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_end_the_connection_and_others_are_served() {
    // More bytes than the buffers of both sockets.
    const PAIRS: u32 = 1_000_000;
    let site = Site::start().await;
    let (mut reader, mut writer) = open(&site).await.into_split();
    let writing = tokio::spawn(async move {
        let mut sent = 0;
        for chunk in (0..PAIRS).collect::<Vec<_>>().chunks(500) {
            let pair = |at: &u32| {
                let id = 2 * at + 1;
                let asked = frame(HEADERS, END_STREAM | END_HEADERS, id, &request());
                [asked, frame(RST_STREAM, 0, id, &8_u32.to_be_bytes())].concat()
            };
            if writer.write_all(&chunk.iter().flat_map(pair).collect::<Vec<_>>()).await.is_err() {
                break;
            }
            sent += chunk.len();
        }
        sent
    });
    let seen = frames(&mut reader).await;
    drop(reader);
    let sent = writing.await.unwrap();
    let answered = seen.iter().filter(|(kind, _, _)| *kind == HEADERS).count();
    assert!(sent < PAIRS as usize, "all {sent} were taken");
    let farewells = farewells(&seen);
    assert!(farewells.is_empty() || farewells.contains(&ENHANCE_YOUR_CALM), "{farewells:?}");
    site.serves_others().await;
    println!("{sent} of {PAIRS} resets were taken before the end, {answered} answered");
    refused("connections of rapid resets", 1, 1);
}

/// Header lists that decode to megabytes, in one block or in endless CONTINUATION frames, are rejected and not
/// buffered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giant_lists_of_headers_are_refused() {
    let site = Site::start().await;
    let mut stream = open(&site).await;
    // HPACK bomb: one header of 4 KiB enters the table and is then referenced by one byte each.
    let mut block = request();
    block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    block.extend(vec![b'y'; 4000]);
    block.extend(vec![0xbe; 10_000]);
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)).await.unwrap();
    let mut head = [0; 9];
    let refusal = async {
        loop {
            stream.read_exact(&mut head).await?;
            let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            if ![SETTINGS, WINDOW_UPDATE].contains(&head[3]) {
                return Ok::<_, std::io::Error>((head[3], body));
            }
        }
    };
    let (kind, body) = match tokio::time::timeout(PATIENCE, refusal).await.unwrap() {
        Ok(frame) => frame,
        Err(_) => (GOAWAY, Vec::new()),
    };
    // Rejected by a status other than 200 (entry 8 of the static table), or by the end of stream or
    // connection.
    let is_served = kind == HEADERS && body.first() == Some(&0x88);
    assert!(!is_served && [HEADERS, RST_STREAM, GOAWAY].contains(&kind), "{kind}: {body:?}");
    site.serves_others().await;

    let (mut reader, mut writer) = open(&site).await.into_split();
    let writing = tokio::spawn(async move {
        let mut bytes = writer.write_all(&frame(HEADERS, END_STREAM, 1, &request())).await.map_or(0, |()| 1);
        let mut one = vec![0x40, 1, b'z', 0x7f, 0xa1, 0x1e];
        one.extend(vec![b'y'; 4000]);
        let piece = frame(CONTINUATION, 0, 1, &one);
        while bytes < 64 * 1024 * 1024 && writer.write_all(&piece).await.is_ok() {
            bytes += piece.len();
        }
        bytes
    });
    let seen = frames(&mut reader).await;
    drop(reader);
    let bytes = writing.await.unwrap();
    assert!(bytes < 64 * 1024 * 1024, "all was taken");
    site.serves_others().await;
    println!("continuations ended after {bytes} bytes by {:?}", farewells(&seen));
    refused("giant lists of headers", 2, 2);
}
