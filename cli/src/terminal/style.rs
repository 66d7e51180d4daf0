//! Colour, decided once: on a terminal that wants it, and nowhere else.

/// Whether and how text is coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Write escape sequences.
    pub color: bool,
}

/// What a piece of text says about its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    Plain,
    /// It is as it should be.
    Good,
    /// It is on its way, or nobody knows.
    Waiting,
    /// It is wrong.
    Bad,
    /// It is a title.
    Title,
    /// It is of lesser weight.
    Faint,
}

impl Style {
    /// Text without any escape sequence.
    pub const PLAIN: Self = Self { color: false };

    /// Wraps `text` in the escape sequences of `tone`, if there is colour.
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
