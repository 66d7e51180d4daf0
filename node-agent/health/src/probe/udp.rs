//! UDP probe: sends a datagram and waits for a response.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use model::kinds::health_check::UdpCheck;
use tokio::net::UdpSocket;

use crate::verdict::{Outcome, Verdict};

/// Maximum size of a response in bytes, equal to the maximum size of a datagram.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends a datagram and waits for one response. The socket is connected, so that datagrams from other
/// addresses are ignored and ICMP errors are reported.
pub(super) async fn ask(address: SocketAddr, check: &UdpCheck) -> io::Result<Verdict> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    socket.send(check.send.as_bytes()).await?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let length = socket.recv(&mut answer).await?;
    let answer = answer.get(..length).unwrap_or_default();
    let is_expected =
        check.expect.as_ref().is_none_or(|expect| String::from_utf8_lossy(answer).contains(expect.as_str()));
    Ok(if is_expected {
        Verdict::new(Outcome::Good, format!("answered {length} bytes"))
    } else {
        Verdict::new(Outcome::WrongAnswer, format!("answered {length} bytes without the expected text"))
    })
}
