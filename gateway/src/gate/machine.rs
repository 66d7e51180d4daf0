//! Framing of the requests of one connection (RFC 9112), stricter than the HTTP server behind it. A proxy in front of the
//! gateway or an endpoint behind it could read a request with two lengths differently, and take a part of it for
//! another request (RFC 9112 §11.2).
//!
//! ```text
//! Head ──Content-Length──▶ Body ──▶ Head
//!   ├──chunked──▶ Size ──▶ Data ──▶ DataEnd ──▶ Size … ──▶ Trailer ──▶ Head
//!   ├──preface of HTTP/2, other protocol──▶ Passing
//!   └──refused──▶ Refused
//! ```

/// Maximum length of the head of a request in bytes. More is handed over, and the server rejects it with 431.
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Maximum length of the line before a chunk, or of a trailer, in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum number of digits of a length. Longer numbers could overflow in another program.
const DIGITS_MAX: usize = 15;
/// First bytes of an HTTP/2 connection (RFC 9113 §3.4), up to the end of the part that looks like a head.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
/// Bytes in the place of a refused request. They are no request, so that the server answers with 400 and closes the
/// connection, after the responses to earlier requests.
const NO_REQUEST: &[u8] = b"\0\r\n\r\n";

/// Position in the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// In the head of a request, or before it.
    Head,
    /// In a body of known length, with the number of bytes that follow.
    Body(u64),
    /// In the line with the size of a chunk.
    Size,
    /// In a chunk, with the number of bytes that follow.
    Data(u64),
    /// At the end of line after a chunk.
    DataEnd,
    /// In a line after the last chunk.
    Trailer,
    /// In bytes that are not HTTP/1.1.
    Passing,
    /// After a refused request.
    Refused,
}

/// Part of a request that the client sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatePhase {
    /// No byte of a request has been received.
    Idle,
    /// A part of a head has been received.
    Head,
    /// The body, or bytes that are not HTTP/1.1.
    Body,
}

/// Gate of one connection.
#[derive(Debug)]
pub(crate) struct RequestGate {
    framing: Framing,
    /// Bytes of an incomplete head, which are held back, or of an incomplete line.
    line: Vec<u8>,
}

impl RequestGate {
    pub(crate) const fn new() -> Self {
        Self { framing: Framing::Head, line: Vec::new() }
    }

    /// Takes bytes of the client, and appends those that may be handed over to `out`.
    pub(crate) fn accept(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let used = match self.framing {
                Framing::Head => self.accept_head(bytes, out),
                Framing::Body(left) => {
                    let used = copy(bytes, left, out);
                    self.framing = after(left, used, Framing::Body, Framing::Head);
                    used
                }
                Framing::Data(left) => {
                    let used = copy(bytes, left, out);
                    self.framing = after(left, used, Framing::Data, Framing::DataEnd);
                    used
                }
                Framing::Size | Framing::DataEnd | Framing::Trailer => self.accept_line(bytes, out),
                Framing::Passing => copy(bytes, u64::MAX, out),
                Framing::Refused => return,
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Hands over all further bytes, because the connection was switched to another protocol.
    pub(crate) fn pass(&mut self, out: &mut Vec<u8>) {
        if self.framing == Framing::Head {
            out.append(&mut self.line);
        }
        self.framing = Framing::Passing;
    }

    /// Gives memory back beyond a capacity in bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.line.shrink_to(bytes);
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.framing == Framing::Passing
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.framing == Framing::Refused
    }

    pub(crate) fn phase(&self) -> GatePhase {
        match self.framing {
            Framing::Head if self.line.is_empty() => GatePhase::Idle,
            Framing::Head => GatePhase::Head,
            Framing::Body(_)
            | Framing::Size
            | Framing::Data(_)
            | Framing::DataEnd
            | Framing::Trailer
            | Framing::Passing
            | Framing::Refused => GatePhase::Body,
        }
    }

    fn refuse(&mut self, out: &mut Vec<u8>) {
        self.line.clear();
        self.framing = Framing::Refused;
        out.extend_from_slice(NO_REQUEST);
    }

    /// Takes bytes up to the end of a line of a head. Returns their number.
    fn accept_head(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let used = end.unwrap_or(bytes.len());
        self.line.extend_from_slice(bytes.get(..used).unwrap_or_default());
        if self.line == PREFACE {
            out.append(&mut self.line);
            self.framing = Framing::Passing;
        } else if end.is_some() && !self.line.ends_with(b"\r\n") {
            self.refuse(out);
        } else if self.line == b"\r\n" {
            // Empty lines before a request are ignored (RFC 9112 §2.2).
            self.line.clear();
        } else if self.line.ends_with(b"\r\n\r\n") {
            match body_of(&self.line) {
                Some(framing) => {
                    out.append(&mut self.line);
                    self.framing = framing;
                }
                None => self.refuse(out),
            }
        } else if self.line.len() > HEAD_BYTES_MAX {
            out.append(&mut self.line);
            self.framing = Framing::Refused;
        }
        used
    }

    /// Takes bytes up to the end of a line of a chunked body. Returns their number.
    fn accept_line(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        out.extend_from_slice(part);
        self.line.extend_from_slice(part);
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            match next_after(self.framing, &line) {
                Some(framing) => self.framing = framing,
                None => self.refuse(out),
            }
        } else if self.line.len() > LINE_BYTES_MAX {
            self.refuse(out);
        }
        part.len()
    }
}

/// Appends at most `left` bytes to `out`, and returns their number.
fn copy(bytes: &[u8], left: u64, out: &mut Vec<u8>) -> usize {
    let used = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    out.extend_from_slice(bytes.get(..used).unwrap_or_default());
    used
}

fn after(left: u64, used: usize, same: fn(u64) -> Framing, next: Framing) -> Framing {
    match left.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX)) {
        0 => next,
        left => same(left),
    }
}

/// Returns the position after a line of a chunked body (RFC 9112 §7.1), or `None` if the line is malformed.
fn next_after(framing: Framing, line: &[u8]) -> Option<Framing> {
    let line = line.strip_suffix(b"\r\n")?;
    if !line.iter().all(|byte| is_visible(*byte)) {
        return None;
    }
    if framing == Framing::DataEnd {
        return line.is_empty().then_some(Framing::Size);
    }
    if framing == Framing::Trailer {
        return Some(if line.is_empty() { Framing::Head } else { Framing::Trailer });
    }
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let is_size = (1..=DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(digits).ok().filter(|_| is_size);
    let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok())?;
    Some(if size == 0 { Framing::Trailer } else { Framing::Data(size) })
}

/// Returns the framing of the body after a complete head, or `None` if the head is malformed or has no unambiguous
/// length (RFC 9112 §6).
fn body_of(head: &[u8]) -> Option<Framing> {
    let head = head.strip_suffix(b"\r\n\r\n")?;
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_1_1 = is_request_line_of_1_1(lines.next()?)?;
    let (mut lengths, mut encodings, mut hosts) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?.trim_ascii());
        // A name with white space, or at the beginning of a line, is a name for some programs and none for others.
        if name.is_empty()
            || !name.iter().all(|byte| is_token(*byte))
            || !value.iter().all(|byte| is_visible(*byte))
        {
            return None;
        }
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => encodings.push(value),
            b"host" => hosts += 1,
            _ => {}
        }
    }
    if hosts > 1 || (is_1_1 && hosts == 0) {
        return None;
    }
    match (lengths.as_slice(), encodings.as_slice()) {
        ([], []) => Some(Framing::Head),
        ([], [encoding]) => (is_1_1 && encoding.eq_ignore_ascii_case(b"chunked")).then_some(Framing::Size),
        ([length], []) => {
            let is_number = (1..=DIGITS_MAX).contains(&length.len()) && length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().filter(|_| is_number)?;
            Some(after(length.parse().ok()?, 0, Framing::Body, Framing::Head))
        }
        ([] | [_, ..], [_, ..]) | ([_, _, ..], []) => None,
    }
}

/// Returns true for a request line of HTTP/1.1, false for one of HTTP/1.0, and `None` for all else. `CONNECT` has no
/// place at a gateway, because the bytes after it have no framing.
fn is_request_line_of_1_1(line: &[u8]) -> Option<bool> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_valid = words.next().is_none()
        && !method.is_empty()
        && method.iter().all(|byte| is_token(*byte))
        && !target.is_empty()
        && target.iter().all(u8::is_ascii_graphic)
        && method != b"CONNECT";
    match version {
        b"HTTP/1.1" if is_valid => Some(true),
        b"HTTP/1.0" if is_valid => Some(false),
        _ => None,
    }
}

/// Returns true for the characters of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns true for the characters of a header value (RFC 9110 §5.5).
fn is_visible(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in parts of a size, and returns the bytes that are handed over.
    fn fed(bytes: &[u8], part: usize) -> Vec<u8> {
        let (mut gate, mut out) = (RequestGate::new(), Vec::new());
        bytes.chunks(part).for_each(|part| gate.accept(part, &mut out));
        out
    }

    const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

    /// Requests pass unchanged, however they are divided into segments, also several on one connection.
    #[test]
    fn unambiguous_requests_pass_unchanged() {
        let requests = [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            format!("{POST}Content-Length: 5\r\n\r\nhello"),
            format!("{POST}Content-Length: 0\r\n\r\n"),
            format!("{POST}Transfer-Encoding: Chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n"),
        ];
        let all = requests.concat();
        for part in [1, 7, all.len()] {
            assert_eq!(fed(all.as_bytes(), part), all.as_bytes(), "{part}");
            assert_eq!(fed(format!("\r\n{all}").as_bytes(), part), all.as_bytes(), "{part}");
        }
        let http2 = [PREFACE, b"SM\r\n\r\n\0\0\0\x04\0\0\0\0\0"].concat();
        assert_eq!(fed(&http2, 3), http2);
    }

    /// A request that two programs could read differently is replaced by bytes that are no request, and the bytes after
    /// it are dropped.
    #[test]
    fn ambiguous_requests_are_refused() {
        let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        let refused = [
            format!("{POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
            format!("{POST}Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello"),
            format!("{POST}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
            format!("{POST}Content-Length: 5, 5\r\n\r\nhello"),
            format!("{POST}Content-Length: +5\r\n\r\nhello"),
            format!("{POST}Content-Length: 99999999999999999999\r\n\r\nhello"),
            format!("{POST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}X: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}X: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}X: 1\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("{POST}X: \0\r\n\r\n"),
            format!("{POST}Host: b\r\n\r\n"),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / x HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(),
        ];
        for request in refused {
            for part in [1, request.len() + next.len()] {
                assert_eq!(fed(format!("{request}{next}").as_bytes(), part), NO_REQUEST, "{request}");
            }
            let second = fed(format!("{next}{request}{next}").as_bytes(), 11);
            assert_eq!(second, [next.as_bytes(), NO_REQUEST].concat(), "{request}");
        }
    }

    /// A malformed chunk ends the connection after the bytes before it.
    #[test]
    fn malformed_chunks_are_refused() {
        let head = format!("{POST}Transfer-Encoding: chunked\r\n\r\n");
        for body in
            ["5\nhello", "x\r\n", "\r\n", "5 \r\nhello", "5\r\nhelloX\r\n", "1234567890123456\r\n", "0x5\r\n"]
        {
            let out = fed(format!("{head}{body}GET / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 1);
            assert!(out.ends_with(NO_REQUEST), "{body:?}: {out:?}");
        }
    }

    /// An endless head is not held back for ever.
    #[test]
    fn a_head_has_a_maximum_length() {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(2 * HEAD_BYTES_MAX));
        let out = fed(head.as_bytes(), 1000);
        assert!((HEAD_BYTES_MAX..HEAD_BYTES_MAX + 2000).contains(&out.len()), "{}", out.len());
    }
}
