//! Truncation of failure messages to the size that the report of a node allows.

/// Maximum size of a failure message in the report of a node, in bytes (`model::wire::report::Failure`).
const MESSAGE_BYTES_MAX: usize = 1024;

/// Truncates a message at a character boundary to the maximum size of a failure message in the report of a node. A
/// truncated message ends with `…`.
#[must_use]
pub fn limit_message(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX - '…'.len_utf8())
            .rev()
            .find(|&at| message.is_char_boundary(at))
            .unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let cut = limit_message("ä".repeat(2000));
        assert!(cut.len() <= MESSAGE_BYTES_MAX && cut.ends_with("ä…"));
        assert_eq!(limit_message("short".to_owned()), "short");
    }
}
