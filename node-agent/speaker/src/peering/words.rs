//! Formats connection errors as texts for operators.

use std::io;

use nix::errno::Errno;

use super::socket::Way;

/// Describes a failed TCP connection attempt, with a hint if a different MD5 password may be the cause.
pub(super) fn not_connected(error: &io::Error, way: &Way) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw);
    // The kernel's list of errors is open-ended.
    #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
    let why = match errno {
        Some(Errno::ECONNREFUSED) => "connection refused".to_owned(),
        Some(Errno::ENETUNREACH) => "no route".to_owned(),
        Some(Errno::EHOSTUNREACH) => "no route: nobody has the address on its link".to_owned(),
        Some(Errno::ETIMEDOUT) => "no answer".to_owned(),
        Some(Errno::ECONNRESET) => "connection reset".to_owned(),
        Some(Errno::EADDRNOTAVAIL) => match way.source {
            Some(source) => format!("our address {source} is not on this node"),
            None => "there is no address to connect from".to_owned(),
        },
        Some(Errno::ENODEV) => match &way.device {
            Some(device) => format!("there is no interface {device}"),
            None => "no such interface".to_owned(),
        },
        Some(Errno::EPERM | Errno::EACCES) => {
            "not permitted by this node, perhaps by a packet filter".to_owned()
        }
        _ => error.to_string(),
    };
    if way.password.is_some() && errno == Some(Errno::ETIMEDOUT) {
        format!("{why}; peers with another password do not answer either")
    } else {
        why
    }
}

/// Describes the loss of an established TCP connection.
pub(super) fn lost(error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw);
    #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
    match errno {
        Some(Errno::ECONNRESET | Errno::EPIPE) => "the neighbour reset the connection".to_owned(),
        Some(Errno::ETIMEDOUT) => "the neighbour did not acknowledge what was sent".to_owned(),
        Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH) => "there is no route any longer".to_owned(),
        _ => format!("the connection failed: {error}"),
    }
}

/// Truncates a text at a character boundary to at most `bytes_max` bytes.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}
