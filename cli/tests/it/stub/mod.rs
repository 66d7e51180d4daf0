//! Stub server with a given response, and functions that run the command against it.

#![allow(dead_code, reason = "no test program uses all of it")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROBLEM: &str = "application/problem+json";

/// Stub HTTP server. A closure reads the request of each connection and writes the response.
pub(crate) struct Stub {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    pub(crate) fn new(mut answer: impl FnMut(usize, &str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let request = read_request(&mut stream);
                seen.lock().unwrap().push(request.clone());
                answer(number, &request, &mut stream);
            }
        });
        Self { url, requests }
    }

    pub(crate) fn fixed(status: &'static str, content_type: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::new(move |_, _, stream| write_answer(stream, status, content_type, &body))
    }

    /// Returns the received requests, each with its head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn first_lines(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|text| text.lines().next().unwrap_or_default().to_owned())
            .collect()
    }
}

pub(crate) fn read_request(stream: &mut TcpStream) -> String {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

pub(crate) fn write_answer(stream: &mut TcpStream, status: &str, content_type: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _client_may_be_gone =
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

/// Writes the head of a streamed response and the given lines. Only closing the connection ends the response.
pub(crate) fn begin_stream(stream: &mut TcpStream, lines: &str) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    let _client_may_be_gone = stream.write_all(format!("{head}{lines}").as_bytes());
}

pub(crate) fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_clear().env("TIDEGATE_API", url).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(url: &str, arguments: &[&str]) -> (i32, String, String) {
    ended(command(url, arguments).output().unwrap())
}

pub(crate) fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
