//! The text that goes with an administrative shutdown or reset (RFC 9003).

use super::{cease, code};

/// The longest text, in bytes (RFC 9003 §2).
const BYTES_MAX: u8 = u8::MAX;

/// Whether a text goes with this.
pub(super) const fn is_carried_by(code: u8, subcode: u8) -> bool {
    code == code::CEASE && matches!(subcode, cease::SHUTDOWN | cease::RESET)
}

/// The data field with a text; empty when the text is.
pub(super) fn write(text: &str) -> Vec<u8> {
    let kept = &text[..text.floor_char_boundary(BYTES_MAX.into())];
    if kept.is_empty() {
        return Vec::new();
    }
    let length = u8::try_from(kept.len()).expect("cut to at most 255 bytes");
    std::iter::once(length).chain(kept.bytes()).collect()
}

/// The text of a data field, as far as there is one. What is no UTF-8 is replaced, and so is what could steer a terminal
/// or turn the direction of writing.
pub(super) fn read(data: &[u8]) -> Option<String> {
    let (length, text) = data.split_first()?;
    let text = text.get(..usize::from(*length)).unwrap_or(text);
    let shown: String = String::from_utf8_lossy(text).chars().map(harmless).collect();
    (!shown.is_empty()).then_some(shown)
}

/// The character, or one that says that there was one.
pub(crate) fn harmless(character: char) -> char {
    match character {
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => {
            '\u{fffd}'
        }
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    }
}
