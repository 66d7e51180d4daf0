//! Codec of the Shutdown Communication, the text in an Administrative Shutdown or Administrative Reset (RFC
//! 9003).

use super::{cease, code};

/// Maximum length of the text in bytes (RFC 9003 §2).
const BYTES_MAX: u8 = u8::MAX;

/// Returns true if a notification with this code and subcode carries a Shutdown Communication.
pub(super) const fn is_carried_by(code: u8, subcode: u8) -> bool {
    code == code::CEASE && matches!(subcode, cease::SHUTDOWN | cease::RESET)
}

/// Encodes a text, truncated to the maximum length, as the data field of a notification. An empty text
/// results in an empty field.
pub(super) fn write(text: &str) -> Vec<u8> {
    let kept = &text[..text.floor_char_boundary(BYTES_MAX.into())];
    if kept.is_empty() {
        return Vec::new();
    }
    let length = u8::try_from(kept.len()).expect("cut to at most 255 bytes");
    std::iter::once(length).chain(kept.bytes()).collect()
}

/// Decodes the data field of a notification. The text may be truncated. Invalid UTF-8, control characters and
/// bidirectional controls are replaced.
pub(super) fn read(data: &[u8]) -> Option<String> {
    let (length, text) = data.split_first()?;
    let text = text.get(..usize::from(*length)).unwrap_or(text);
    let shown: String = String::from_utf8_lossy(text).chars().map(harmless).collect();
    (!shown.is_empty()).then_some(shown)
}

/// Returns the character, or U+FFFD if it is a control character or a bidirectional control, which could
/// affect a terminal.
pub(crate) fn harmless(character: char) -> char {
    match character {
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => {
            '\u{fffd}'
        }
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    }
}
