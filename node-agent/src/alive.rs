//! Health query for container engines: sends `GET /healthz` to the agent on this machine, so that the
//! container image needs neither a shell nor `curl`.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// Timeout for connecting and for each read and write. Container engines apply their own limit to the whole
/// command.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of response bytes that are read. A health response that lists all problems fits.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Sends `GET /healthz` to the agent that listens on `listen` and returns the response body.
///
/// # Errors
/// Returns an error if the agent does not respond, or if it reports itself unhealthy; the error then contains
/// the response body.
pub fn ask(listen: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&reached_at(listen), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    judge(&String::from_utf8_lossy(&answer))
}

/// Returns the address to connect to: loopback if the agent listens on the unspecified address.
const fn reached_at(listen: SocketAddr) -> SocketAddr {
    let address = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) | IpAddr::V6(_) => listen.ip(),
    };
    SocketAddr::new(address, listen.port())
}

fn judge(answer: &str) -> io::Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if status.starts_with("HTTP/1.") && status.split(' ').nth(1) == Some("200") {
        return Ok(body.to_owned());
    }
    Err(io::Error::other(format!("{status} {body}").trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_200_is_well_and_others_keep_their_words() {
        assert_eq!(judge("HTTP/1.0 200 OK\r\na: b\r\n\r\n{}").unwrap(), "{}");
        let ill = judge("HTTP/1.0 503 Service Unavailable\r\n\r\nno rules").unwrap_err();
        assert_eq!(ill.to_string(), "HTTP/1.0 503 Service Unavailable no rules");
        for strange in ["", "\r\n\r\n", "200", "SSH-2.0 200", "HTTP/1.1", "HTTP/1.1 2000 x\r\n\r\n"] {
            assert!(judge(strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn whoever_listens_everywhere_is_asked_on_loopback() {
        for (listen, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("192.0.2.1:3", "192.0.2.1:3")]
        {
            assert_eq!(reached_at(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
