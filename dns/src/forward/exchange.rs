//! Exchange of one question with one server over UDP and, if that is not enough, over TCP.
//!
//! Each question over UDP uses a socket of its own, whose port the kernel chooses at random, a random id (RFC 5452), and a
//! random spelling of the name in upper and lower case (0x20). A response counts only if it comes from the server and
//! repeats id and question with this spelling. Servers that change the spelling, and those for which too many other
//! datagrams arrive, are asked over TCP: a forger who cannot see the question cannot answer there. A server that changes the spelling
//! and has no TCP is asked in the original spelling, with another port and id.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::{Instant, timeout_at},
};

use super::upstream::RESPONSE_TIME_MAX;

/// Times after which an unanswered datagram is sent again: it or its response may have been lost.
const REPEATS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(1200)];
/// Size of the buffer for a response over UDP in bytes. A longer response is requested again over TCP.
const UDP_BYTES_MAX: usize = 4097;
/// Size of the header of a message in bytes.
const HEADER_BYTES: usize = 12;
/// Size of type and class of a question in bytes.
const TYPE_AND_CLASS_BYTES: usize = 4;
/// Number of datagrams that are no response to the question after which it is asked over TCP. More of them would be
/// attempts to guess the id.
const MISMATCHES_MAX: u32 = 16;

/// Spelling of the name in questions over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Letters in upper and lower case at random; the response must have the same.
    Random,
    /// Letters in lower case; the response may have any.
    Original,
}

/// Response of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerResponse {
    /// Message with the name of the question in lower case.
    pub(super) response: Vec<u8>,
    /// Spelling that the server needs.
    pub(super) spelling: Spelling,
}

/// Outcome of a question over UDP.
#[derive(Debug)]
enum UdpOutcome {
    Response(Vec<u8>),
    /// The response has another spelling.
    Respelled,
    /// The response is too long, or may be one of many forged ones.
    Unusable,
}

/// Meaning of a datagram for a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatagramKind {
    /// Response to the question.
    Response,
    /// Response to the question in another spelling.
    Respelled,
    /// Datagram that does not belong to the question.
    Mismatch,
}

/// Sends the question `packet`, whose name is in lower case, with the spelling that the server needs as far as that is known, and
/// returns the response. `random` returns random bits.
///
/// # Errors
/// Returns an error without a response of the server in time, which ends at `deadline` at the latest.
pub(super) async fn exchange(
    server: SocketAddr,
    (packet, spelling): (&[u8], Spelling),
    deadline: Instant,
    mut random: impl FnMut() -> u64,
) -> io::Result<ServerResponse> {
    let end = || deadline.min(Instant::now() + RESPONSE_TIME_MAX);
    let outcome = timeout_at(end(), over_udp(server, (packet, spelling), &mut random)).await??;
    if let UdpOutcome::Response(response) = outcome {
        return Ok(ServerResponse { response, spelling });
    }
    let over_tcp = timeout_at(end(), over_tcp(server, packet)).await.map_err(io::Error::from).flatten();
    let error = match over_tcp {
        Ok(response) => return Ok(ServerResponse { response, spelling }),
        Err(error) if matches!(outcome, UdpOutcome::Unusable) => return Err(error),
        Err(error) => error,
    };
    let [high, low, ..] = random().to_ne_bytes();
    let packet = [&[high, low], packet.get(2..).unwrap_or_default()].concat();
    let spelling = Spelling::Original;
    match timeout_at(end(), over_udp(server, (&packet, spelling), random)).await?? {
        UdpOutcome::Response(response) => Ok(ServerResponse { response, spelling }),
        UdpOutcome::Respelled | UdpOutcome::Unusable => Err(error),
    }
}

/// Asks a question over UDP.
async fn over_udp(
    server: SocketAddr,
    (packet, spelling): (&[u8], Spelling),
    random: impl FnMut() -> u64,
) -> io::Result<UdpOutcome> {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    // The kernel then drops datagrams from other addresses.
    socket.connect(server).await?;
    let spelled = match spelling {
        Spelling::Random => with_random_spelling(packet, random),
        Spelling::Original => packet.to_vec(),
    };
    let with_question = |outcome| match outcome {
        UdpOutcome::Response(response) => UdpOutcome::Response(with_question(response, packet)),
        UdpOutcome::Respelled | UdpOutcome::Unusable => outcome,
    };
    socket.send(&spelled).await?;
    let start = Instant::now();
    let mut mismatches = 0;
    for repeat in REPEATS {
        let question = (&spelled[..], spelling);
        match timeout_at(start + repeat, receive(&socket, question, &mut mismatches)).await {
            Ok(outcome) => return outcome.map(with_question),
            Err(_) => drop(socket.send(&spelled).await?),
        }
    }
    receive(&socket, (&spelled, spelling), &mut mismatches).await.map(with_question)
}

/// Waits for the response to a question. `mismatches` counts other datagrams.
async fn receive(
    socket: &UdpSocket,
    (packet, spelling): (&[u8], Spelling),
    mismatches: &mut u32,
) -> io::Result<UdpOutcome> {
    let mut buffer = vec![0; UDP_BYTES_MAX];
    while *mismatches < MISMATCHES_MAX {
        let size = socket.recv(&mut buffer).await?;
        let response = buffer.get(..size).unwrap_or_default();
        match (kind_of(packet, response), spelling) {
            (DatagramKind::Respelled, Spelling::Random) => return Ok(UdpOutcome::Respelled),
            (DatagramKind::Response, _) | (DatagramKind::Respelled, Spelling::Original) => {
                let is_truncated = response.get(2).is_some_and(|flags| flags & 0x02 != 0);
                // A datagram that fills the buffer was cut.
                let is_usable = !is_truncated && size < buffer.len();
                return Ok(if is_usable {
                    UdpOutcome::Response(response.to_vec())
                } else {
                    UdpOutcome::Unusable
                });
            }
            (DatagramKind::Mismatch, _) => *mismatches += 1,
        }
    }
    Ok(UdpOutcome::Unusable)
}

async fn over_tcp(server: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let size = u16::try_from(packet.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.write_all(&[&size.to_be_bytes(), packet].concat()).await?;
    let mut response = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut response).await?;
    let error = || io::Error::new(io::ErrorKind::InvalidData, "the response does not belong to the question");
    if is_response_to(packet, &response) { Ok(response) } else { Err(error()) }
}

/// Returns true if `response` is a response, has the id of the question `packet`, and repeats its question in any
/// spelling.
pub(super) fn is_response_to(packet: &[u8], response: &[u8]) -> bool {
    kind_of(packet, response) != DatagramKind::Mismatch
}

fn kind_of(packet: &[u8], response: &[u8]) -> DatagramKind {
    let Some((header, rest)) = response.split_at_checked(HEADER_BYTES) else { return DatagramKind::Mismatch };
    let Some(question) = question(packet) else { return DatagramKind::Mismatch };
    let is_response = header[2] & 0x80 != 0;
    let has_id = header.first_chunk::<2>() == packet.first_chunk::<2>();
    match rest.get(..question.len()).filter(|_| is_response && has_id) {
        Some(echoed) if echoed == question => DatagramKind::Response,
        Some(echoed) if echoed.eq_ignore_ascii_case(question) => DatagramKind::Respelled,
        Some(_) | None => DatagramKind::Mismatch,
    }
}

/// Returns a question with the letters of its name in upper or lower case at random.
fn with_random_spelling(packet: &[u8], mut random: impl FnMut() -> u64) -> Vec<u8> {
    let mut spelled = packet.to_vec();
    let name = question(packet).map_or(0, |question| question.len() - TYPE_AND_CLASS_BYTES);
    let (mut bits, mut left) = (0, 0);
    // The length of a label is at most 63, so it is no letter.
    for byte in spelled.iter_mut().skip(HEADER_BYTES).take(name).filter(|byte| byte.is_ascii_alphabetic()) {
        if left == 0 {
            (bits, left) = (random(), u64::BITS);
        }
        if bits & 1 == 1 {
            *byte ^= b' ';
        }
        (bits, left) = (bits >> 1, left - 1);
    }
    spelled
}

/// Returns a response with the question in the spelling of `packet`, to which compressed names refer.
fn with_question(mut response: Vec<u8>, packet: &[u8]) -> Vec<u8> {
    if let Some(question) = question(packet)
        && let Some(echoed) = response.get_mut(HEADER_BYTES..HEADER_BYTES + question.len())
    {
        echoed.copy_from_slice(question);
    }
    response
}

/// Returns the bytes of the only question of a packet: name, type and class. `None` if the name is malformed.
fn question(packet: &[u8]) -> Option<&[u8]> {
    let rest = packet.get(HEADER_BYTES..)?;
    let mut at = 0;
    loop {
        let length = usize::from(*rest.get(at)?);
        // A question is the first name of a message, so it cannot contain a pointer to another one.
        match length {
            0 => return rest.get(..=at + TYPE_AND_CLASS_BYTES),
            1..=63 => at += 1 + length,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::UdpSocket as BlockingSocket, thread};

    use tokio::{net::TcpListener, runtime::Builder};

    use super::*;

    const QUESTION: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x03org\x00\x00\x01\x00\x01";

    #[test]
    fn a_response_must_repeat_id_and_question() {
        let kind = |edit: fn(&mut Vec<u8>)| {
            let mut response = QUESTION.to_vec();
            response[2] |= 0x80;
            edit(&mut response);
            kind_of(QUESTION, &response)
        };
        assert_eq!(kind(|_| {}), DatagramKind::Response);
        assert_eq!(kind(|bytes| bytes.extend([0xc0, 0x0c])), DatagramKind::Response);
        assert_eq!(kind(|bytes| bytes[13] = b'W'), DatagramKind::Respelled);
        let edits: [fn(&mut Vec<u8>); 5] = [
            |bytes| bytes[0] = 0,
            |bytes| bytes[2] = 0x01,
            |bytes| bytes[13] = b'x',
            |bytes| bytes.truncate(HEADER_BYTES + 3),
            |bytes| bytes.truncate(5),
        ];
        assert!(edits.into_iter().all(|edit| kind(edit) == DatagramKind::Mismatch));
    }

    /// A question without end, with a pointer or with a label that is too long is no question.
    #[test]
    fn malformed_questions_are_recognized() {
        assert_eq!(question(QUESTION), QUESTION.get(HEADER_BYTES..));
        for end in 0..QUESTION.len() {
            assert_eq!(question(&QUESTION[..end]), None, "{end}");
        }
        let mut pointer = QUESTION.to_vec();
        pointer[12] = 0xc0;
        assert_eq!(question(&pointer), None);
        assert_eq!(with_random_spelling(&pointer, || u64::MAX), pointer);
    }

    #[test]
    fn only_the_letters_of_the_name_are_spelled_at_random() {
        let upper = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03WWW\x03ORG\x00\x00\x01\x00\x01";
        assert_eq!(with_random_spelling(QUESTION, || u64::MAX), upper);
        assert_eq!(with_random_spelling(QUESTION, || 0), QUESTION);
        let some = with_random_spelling(QUESTION, || 0b00_0101);
        assert_eq!(&some[12..20], b"\x03WwW\x03org");
        let mut calls = 0;
        let long = [
            QUESTION.get(..12).unwrap(),
            &[b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(2),
            b"\x00\x00\x01\x00\x01",
        ]
        .concat();
        with_random_spelling(&long, || {
            calls += 1;
            0
        });
        assert_eq!(calls, 2, "126 letters need two words of bits");
    }

    /// Server for one question, which sends the datagrams that `answers` returns. Returns the response of the exchange, and
    /// the datagram and source port that the server received.
    fn asked(
        answers: impl FnOnce(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
    ) -> (io::Result<Vec<u8>>, Vec<u8>, u16) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = tcp.local_addr().unwrap();
            let udp = BlockingSocket::bind(address).unwrap();
            let server = thread::spawn(move || {
                let mut buffer = [0; 512];
                let (size, client) = udp.recv_from(&mut buffer).unwrap();
                for datagram in answers(&buffer[..size]) {
                    udp.send_to(&datagram, client).unwrap();
                }
                (buffer[..size].to_vec(), client.port())
            });
            let over_tcp = async {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut question).await.unwrap();
                assert_eq!(question, QUESTION, "not spelled at random over TCP");
                let response = response(&question, b"tcp");
                stream.write_u16(u16::try_from(response.len()).unwrap()).await.unwrap();
                stream.write_all(&response).await.unwrap();
                std::future::pending::<()>().await;
            };
            let deadline = Instant::now() + 2 * RESPONSE_TIME_MAX;
            let random = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
            let outcome = tokio::select! {
                outcome = exchange(address, (QUESTION, Spelling::Random), deadline, random) => outcome,
                () = over_tcp => unreachable!("the server never ends"),
            };
            let (packet, port) = server.join().unwrap();
            let response = outcome.map(|exchanged| {
                assert_eq!(exchanged.spelling, Spelling::Random);
                exchanged.response
            });
            (response, packet, port)
        })
    }

    fn response(packet: &[u8], end: &[u8]) -> Vec<u8> {
        let mut response = [packet, end].concat();
        response[2] |= 0x80;
        response
    }

    /// Datagrams with another id or question do not count; the response does, with the question as it was asked.
    #[test]
    fn forged_responses_are_ignored() {
        let (outcome, ..) = asked(|packet| {
            let mut other_id = response(packet, b"forged");
            other_id[0] ^= 1;
            let mut other_question = response(packet, b"forged");
            other_question[13] = b'x';
            vec![other_id, other_question, packet.to_vec(), b"short".to_vec(), response(packet, b"udp")]
        });
        assert_eq!(outcome.unwrap(), response(QUESTION, b"udp"));
    }

    /// A response in another spelling, of a forger or of a server that does not keep it, is replaced by that over TCP; so
    /// are many datagrams that do not belong to the question.
    #[test]
    fn doubtful_responses_are_asked_again_over_tcp() {
        let (outcome, ..) = asked(|packet| {
            let mut other_spelling = response(packet, b"forged");
            other_spelling[13] ^= b' ';
            vec![other_spelling, response(packet, b"udp")]
        });
        assert_eq!(outcome.unwrap(), response(QUESTION, b"tcp"));
        let (outcome, ..) = asked(|packet| {
            let guess = |id: u16| {
                let mut guess = response(packet, b"forged");
                guess[0] ^= 0xff;
                guess[1] = id as u8;
                guess
            };
            (0..20).map(guess).chain([response(packet, b"udp")]).collect()
        });
        assert_eq!(outcome.unwrap(), response(QUESTION, b"tcp"));
    }

    /// A server that changes the spelling and has no TCP is asked in the original spelling, from another port and with another id.
    #[tokio::test]
    async fn a_server_without_tcp_that_changes_the_spelling_is_asked_in_the_original_one() {
        let server = BlockingSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let server = thread::spawn(move || {
            [(); 3].map(|()| {
                let mut buffer = [0; 512];
                let (size, client) = server.recv_from(&mut buffer).unwrap();
                let question = buffer[..size].to_vec();
                let mut respelled = response(&question, b"udp");
                respelled[13..16].make_ascii_uppercase();
                server.send_to(&respelled, client).unwrap();
                (question, client.port())
            })
        });
        let deadline = Instant::now() + 2 * RESPONSE_TIME_MAX;
        // The first letter is in upper case, and the others in lower case.
        let ask = |spelling| exchange(address, (QUESTION, spelling), deadline, || 0xab01);
        let original = |outcome: io::Result<ServerResponse>| {
            let ServerResponse { response: received, spelling } = outcome.unwrap();
            assert_eq!((&received[2..], spelling), (&response(QUESTION, b"udp")[2..], Spelling::Original));
        };
        original(ask(Spelling::Random).await);
        original(ask(Spelling::Original).await);
        let [(random, first_port), (original, second_port), (later, _)] = server.join().unwrap();
        assert_eq!(&random[12..21], b"\x03Www\x03org\x00");
        assert_ne!((random[..2].to_vec(), first_port), (original[..2].to_vec(), second_port));
        assert_eq!((&original[2..], &later[..]), (&QUESTION[2..], QUESTION));
    }

    /// Every question has another port, and almost every one another spelling.
    #[test]
    fn questions_differ_in_port_and_spelling() {
        let questions: Vec<_> = (0..8).map(|_| asked(|packet| vec![response(packet, b"udp")])).collect();
        let spellings: BTreeSet<_> = questions.iter().map(|(_, packet, _)| packet.clone()).collect();
        let ports: BTreeSet<_> = questions.iter().map(|(.., port)| *port).collect();
        // 64 spellings and 28,232 ports: fewer are less likely than one in 10^9.
        assert!(spellings.len() >= 3 && ports.len() >= 5, "{spellings:?} {ports:?}");
    }
}
