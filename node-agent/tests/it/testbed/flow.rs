//! Long-lived connections on the test bed: a continuous TCP transfer, and a UDP client with a fixed source
//! port.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Hosts, Spot, ask::PATIENCE};

/// Minimum number of bytes in a transfer.
pub const TRANSFER_BYTES: usize = 24 * 1024 * 1024;
const CHUNK: usize = 64 * 1024;
/// Pause between chunks after the minimum. Each chunk takes milliseconds in a guest VM.
const PAUSE: Duration = Duration::from_millis(20);
/// Length of the byte pattern in bytes. It is coprime to the chunk size, so that a lost or duplicated chunk
/// is detected.
const PATTERN: usize = 251 * 257;

/// TCP transfer to an echo server that continues until [`Self::finish`].
pub struct Transfer {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<std::io::Result<usize>>,
    reader: JoinHandle<Result<usize, String>>,
    /// Name of the server at the other end of the connection.
    pub server: String,
}

impl Transfer {
    pub fn start(hosts: &Hosts, from: Spot, to: IpAddr, port: u16) -> Self {
        let stream = hosts.at(from).run(|| {
            TcpStream::connect_timeout(&SocketAddr::new(to, port), PATIENCE).expect("a transfer connects")
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::with_capacity(CHUNK, stream.try_clone().unwrap());
        let mut banner = String::new();
        reader.read_line(&mut banner).expect("a server says who it is");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self {
            stop,
            server: banner.split(' ').next().unwrap().to_owned(),
            writer: thread::spawn(move || write(stream, &stopped)),
            reader: thread::spawn(move || verify(reader)),
        }
    }

    /// Ends the transfer after at least [`TRANSFER_BYTES`] bytes, and asserts that every byte came back in
    /// the right order.
    pub fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let written = self.writer.join().unwrap().expect("the transfer goes on");
        let read = self.reader.join().unwrap().unwrap_or_else(|fault| panic!("the transfer broke: {fault}"));
        assert_eq!(written, read, "every byte comes back");
        read
    }
}

fn pattern() -> Vec<u8> {
    // Twice the pattern, so that a chunk can start anywhere in the first.
    (0..2 * PATTERN).map(|position| ((position % PATTERN) * 7 % 253) as u8).collect()
}

fn write(mut stream: TcpStream, stop: &AtomicBool) -> std::io::Result<usize> {
    let pattern = pattern();
    let mut written = 0;
    while written < TRANSFER_BYTES || !stop.load(Ordering::Relaxed) {
        let at = written % PATTERN;
        let length = CHUNK.min(PATTERN);
        stream.write_all(&pattern[at..at + length])?;
        written += length;
        if written >= TRANSFER_BYTES {
            // The minimum is reached; from here on the flow only has to stay alive.
            thread::sleep(PAUSE);
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(written)
}

fn verify(mut reader: impl Read) -> Result<usize, String> {
    let pattern = pattern();
    let mut buffer = vec![0; CHUNK.min(PATTERN)];
    let mut total = 0;
    loop {
        let length = reader.read(&mut buffer).map_err(|error| format!("after {total} bytes: {error}"))?;
        if length == 0 {
            return Ok(total);
        }
        let at = total % PATTERN;
        if buffer[..length] != pattern[at..at + length] {
            return Err(format!("another byte than was sent, after {total}"));
        }
        total += length;
    }
}

/// UDP client with a fixed source port.
pub struct Datagrams(UdpSocket);

impl Datagrams {
    pub fn new(hosts: &Hosts, from: Spot, to: IpAddr, port: u16) -> Self {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        hosts.at(from).run(|| {
            let socket = UdpSocket::bind(SocketAddr::new(any, 0)).unwrap();
            socket.connect(SocketAddr::new(to, port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            Self(socket)
        })
    }

    /// Sends datagrams until a reply to one of them arrives, for at most the time `patience`. Returns the name and the
    /// port of the server that replied, or `None` without a reply. Replies to earlier requests, which another server
    /// may have sent, are discarded.
    pub fn ask(&self, patience: Duration) -> Option<(String, u16)> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let request = format!("request-{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let end = Instant::now() + patience;
        let mut buffer = [0; 128];
        while Instant::now() < end {
            let _ = self.0.send(request.as_bytes());
            while let Ok(length) = self.0.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let Some((banner, echoed)) = text.split_once('\n') else { continue };
                let mut words = banner.split(' ');
                if let (true, Some(name), Some(port)) = (echoed == request, words.next(), words.next_back()) {
                    return Some((name.to_owned(), port.parse().unwrap()));
                }
            }
        }
        None
    }

    /// Sends a datagram of `bytes` bytes up to ten times, and returns true if one comes back complete.
    pub fn echo(&self, bytes: usize) -> bool {
        let body = &pattern()[..bytes];
        let mut buffer = vec![0; bytes + 256];
        (0..10).any(|_| {
            let _ = self.0.send(body);
            self.0.recv(&mut buffer).is_ok_and(|length| buffer[..length].ends_with(body))
        })
    }
}
