//! Text from other parties that is printed on a terminal or recorded in a log.

/// Returns true if a character controls the display instead of being shown: control characters (Unicode category
/// Cc, including U+009B, the 8-bit form of the terminal escape `ESC [`), and embeddings, overrides and isolates of
/// the text direction (Unicode Standard Annex 9), which can show text in a misleading order.
#[must_use]
pub fn is_display_control(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` on one line and without characters that control the display, which could manipulate a terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    let spaced = text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c });
    spaced.filter(|c| !is_display_control(*c)).collect()
}

/// Replaces each character of a JSON text that controls the display, except those below U+0020, by its `\u`
/// escape. JSON serializers escape the latter and have all others in strings only, so the meaning of the text
/// is the same.
#[must_use]
pub fn escape_json(json: &str) -> String {
    if !json.chars().any(is_escaped) {
        return json.to_owned();
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_escaped(character: char) -> bool {
    character > '\u{1f}' && is_display_control(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\u{1b}[31m\u{9b}31m\u{202e}b\u{2067}\tc\nä\u{7f}";

    #[test]
    fn display_controls_are_removed_and_the_rest_is_kept() {
        assert_eq!(one_line(TEXT), "a[31m31mb c ä");
        assert_eq!(one_line("שלום \u{200f}عالم"), "שלום \u{200f}عالم");
    }

    #[test]
    fn escaped_json_has_the_same_meaning() {
        let json = serde_json::to_string(TEXT).unwrap();
        let escaped = escape_json(&json);
        assert!(escaped.contains("\\u009b31m\\u202eb\\u2067"), "{escaped}");
        assert!(!escaped.chars().any(is_escaped));
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), TEXT);
        assert_eq!(escape_json("{\"ä\": 1}\n"), "{\"ä\": 1}\n");
    }
}
