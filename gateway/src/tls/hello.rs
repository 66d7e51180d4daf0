//! Reader of the first message of a TLS connection (ClientHello), which contains the server name in plain text.
//!
//! The reader is total: each sequence of bytes is a message with or without a server name, the beginning of one, or no TLS. A
//! message may be spread over several records (RFC 8446 §5.1).

/// Maximum number of bytes in which the message must end. Messages with keys of post-quantum algorithms have about 2 KiB.
pub(crate) const HELLO_BYTES_MAX: usize = 16 * 1024;
/// Number of bytes of the header of a record.
const RECORD_HEADER: usize = 5;
/// Type of records with handshake messages.
const HANDSHAKE: u8 = 22;
/// Type of the message.
const CLIENT_HELLO: u8 = 1;
/// Type of the extension with the server name (RFC 6066 §3).
const SERVER_NAME: u16 = 0;
/// Type of a server name that is a DNS name.
const HOST_NAME: u8 = 0;

/// Result of reading the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HelloState {
    /// The message is longer than the bytes.
    Incomplete,
    /// The message has ended. The server name is `None` if the client sent none, or one that is no text.
    Complete(Option<String>),
    /// The bytes are no ClientHello.
    Invalid,
}

/// Reads the first bytes of a connection.
pub(crate) fn read(bytes: &[u8]) -> HelloState {
    match message(bytes) {
        Err(MessageGap::Bytes) if bytes.len() < HELLO_BYTES_MAX => HelloState::Incomplete,
        Err(MessageGap::Bytes | MessageGap::Sense) => HelloState::Invalid,
        Ok(message) => match server_name(&message) {
            Some(name) => HelloState::Complete(name),
            None => HelloState::Invalid,
        },
    }
}

/// Reason for which there is no message.
enum MessageGap {
    /// More bytes are needed.
    Bytes,
    /// The bytes are no ClientHello.
    Sense,
}

/// Returns the body of the message, without the headers of the records.
fn message(bytes: &[u8]) -> Result<Vec<u8>, MessageGap> {
    let mut found = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some([kind, a, b, c]) = found.first_chunk() {
            if *kind != CLIENT_HELLO {
                return Err(MessageGap::Sense);
            }
            let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or(usize::MAX);
            if length > HELLO_BYTES_MAX {
                return Err(MessageGap::Sense);
            }
            if let Some(body) = found.get(4..).and_then(|rest| rest.get(..length)) {
                return Ok(body.to_vec());
            }
        }
        if rest.first().is_some_and(|kind| *kind != HANDSHAKE) || rest.get(1).is_some_and(|major| *major != 3)
        {
            return Err(MessageGap::Sense);
        }
        let Some([_, _, _, high, low]) = rest.first_chunk::<RECORD_HEADER>() else {
            return Err(MessageGap::Bytes);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 {
            return Err(MessageGap::Sense);
        }
        let after = rest.get(RECORD_HEADER..).unwrap_or_default();
        found.extend_from_slice(after.get(..length).unwrap_or(after));
        rest = after.get(length..).unwrap_or_default();
    }
}

/// Returns the server name in the body of a ClientHello (RFC 8446 §4.1.2), or `None` if the body is malformed.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    let mut fields = Fields(body);
    // Version and random value.
    fields.take(2 + 32)?;
    let session = fields.byte()?;
    fields.take(session.into())?;
    let suites = fields.short()?;
    fields.take(suites.into())?;
    let compressions = fields.byte()?;
    fields.take(compressions.into())?;
    if fields.0.is_empty() {
        // A message of TLS 1.2 may have no extensions.
        return Some(None);
    }
    let length = fields.short()?;
    let mut extensions = Fields(fields.take(length.into())?);
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.short()?;
        let length = extensions.short()?;
        let content = extensions.take(length.into())?;
        if kind == SERVER_NAME && name.is_none() {
            name = Some(host_name(content)?);
        }
    }
    Some(name.flatten())
}

/// Returns the DNS name in the extension with the server name; `None` if the extension is malformed.
fn host_name(content: &[u8]) -> Option<Option<String>> {
    let mut fields = Fields(content);
    let length = fields.short()?;
    let mut list = Fields(fields.take(length.into())?);
    let kind = list.byte()?;
    let length = list.short()?;
    let name = list.take(length.into())?;
    let name = (kind == HOST_NAME).then(|| String::from_utf8(name.to_vec()).ok());
    Some(name.flatten())
}

/// Bytes of which fields are taken from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

    use super::*;

    /// Returns the first bytes of a client of rustls.
    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn split(bytes: &[u8], size: usize) -> Vec<u8> {
        let parts = bytes[RECORD_HEADER..].chunks(size);
        parts
            .flat_map(|part| [&[HANDSHAKE, 3, 1, 0, u8::try_from(part.len()).unwrap()][..], part].concat())
            .collect()
    }

    /// The name is found in one record and in many, and each prefix of the message is incomplete.
    #[test]
    fn server_names_are_found() {
        let expected = HelloState::Complete(Some("www.example.org".to_owned()));
        let bytes = hello("www.example.org");
        for bytes in [bytes.clone(), split(&bytes, 1), split(&bytes, 3), split(&bytes, 200)] {
            assert_eq!(read(&bytes), expected);
            assert_eq!(read(&[&bytes[..], b"more"].concat()), expected);
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), HelloState::Incomplete, "{end}");
            }
        }
        assert_eq!(read(&hello("192.0.2.1")), HelloState::Complete(None));
    }

    /// Each single change of a byte has a result, and so have other protocols.
    #[test]
    fn every_sequence_of_bytes_has_a_result() {
        let bytes = hello("www.example.org");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                read(&changed);
            }
        }
        for text in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0; 64], &[22, 3, 1, 0, 0], &[0x80, 0x2e, 1]]
        {
            assert_eq!(read(text), HelloState::Invalid, "{text:?}");
        }
        // A message that claims to be longer than any message.
        assert_eq!(read(&[22, 3, 1, 0, 4, 1, 1, 0, 0]), HelloState::Invalid);
        let endless =
            split(&[&[0; RECORD_HEADER][..], &[1, 0, 0x3f, 0xff], &[0; HELLO_BYTES_MAX]].concat(), 100);
        assert_eq!(read(&endless[..HELLO_BYTES_MAX]), HelloState::Invalid);
        assert_eq!(read(&endless[..HELLO_BYTES_MAX - 1]), HelloState::Incomplete);
    }
}
