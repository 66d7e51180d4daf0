//! Colored output, enabled for each stream if it is a terminal that supports color.

/// Style of one output stream: with or without color.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// True to write ANSI escape sequences.
    pub color: bool,
}

/// Meaning of a piece of text, from which its color is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Text without emphasis.
    Plain,
    /// State that needs no attention.
    Good,
    /// State in progress, or unknown.
    Waiting,
    /// Error, or a state that needs attention.
    Bad,
    /// Title of a section or heading of a table.
    Title,
    /// Secondary text, such as units and hints.
    Faint,
}

impl Style {
    /// Text without any escape sequence.
    pub const PLAIN: Self = Self { color: false };

    /// Wraps `text` in the escape sequences of `tone` if color is enabled.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => None,
            Tone::Good => Some("32"),
            Tone::Waiting => Some("33"),
            Tone::Bad => Some("31"),
            Tone::Title => Some("1"),
            Tone::Faint => Some("2"),
        };
        match code.filter(|_| self.color) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }
}
