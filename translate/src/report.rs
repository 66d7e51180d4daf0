//! Report on an import or export: the outcome of each setting.

use std::fmt::Write;

use crate::json::clean;

/// Fidelity with which a setting was translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// Translated with the same meaning as in the input.
    Mapped,
    /// Translated with a slightly different meaning; the note describes the difference.
    Approximated,
    /// Left out; the note gives the reason.
    Ignored,
    /// Additional information that is not about a setting.
    Note,
}

impl Fidelity {
    const fn word(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Approximated => "approximated",
            Self::Ignored => "ignored",
            Self::Note => "note",
        }
    }
}

/// Report on an import or export: one line for each setting, grouped by input object.
#[derive(Debug, Default)]
pub struct Report {
    sections: Vec<(String, Vec<(Fidelity, String)>)>,
}

impl Report {
    /// Starts the section of an input object in the report. `title` is the display name of the object.
    pub(crate) fn begin(&mut self, title: &str) {
        self.sections.push((title.to_owned(), Vec::new()));
    }

    /// Reports that the setting at path `at` was translated to `target`.
    pub(crate) fn mapped(&mut self, at: &str, target: &str) {
        self.add(Fidelity::Mapped, at, target);
    }

    /// Reports that the setting at path `at` was translated with a difference in meaning.
    pub(crate) fn approximated(&mut self, at: &str, difference: &str) {
        self.add(Fidelity::Approximated, at, difference);
    }

    /// Reports that the setting at path `at` was left out for the given reason.
    pub(crate) fn ignored(&mut self, at: &str, reason: &str) {
        self.add(Fidelity::Ignored, at, reason);
    }

    /// Adds information about the object or path `at` that is not the outcome of a setting.
    pub(crate) fn note(&mut self, at: &str, said: &str) {
        self.add(Fidelity::Note, at, said);
    }

    fn add(&mut self, fidelity: Fidelity, at: &str, said: &str) {
        let line = if at.is_empty() { said.to_owned() } else { format!("{at}: {said}") };
        match self.sections.last_mut() {
            Some((_, lines)) => lines.push((fidelity, line)),
            None => self.sections.push((String::new(), vec![(fidelity, line)])),
        }
    }

    /// Returns the number of settings that were translated with this fidelity.
    #[must_use]
    pub fn count(&self, fidelity: Fidelity) -> usize {
        self.sections.iter().flat_map(|(_, lines)| lines).filter(|(of, _)| *of == fidelity).count()
    }

    /// Returns every line of the report: title of the object, fidelity of the translation, and text.
    pub fn lines(&self) -> impl Iterator<Item = (&str, Fidelity, &str)> {
        let sections = self.sections.iter();
        sections
            .flat_map(|(title, lines)| lines.iter().map(|(of, line)| (title.as_str(), *of, line.as_str())))
    }

    /// Renders the report as text, one line per setting.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (title, lines) in self.sections.iter().filter(|(_, lines)| !lines.is_empty()) {
            let _infallible = writeln!(text, "{}", clean(title));
            for (fidelity, line) in lines {
                let _infallible = writeln!(text, "  {:<14}{}", fidelity.word(), clean(line));
            }
        }
        let [mapped, approximated, ignored] =
            [Fidelity::Mapped, Fidelity::Approximated, Fidelity::Ignored].map(|at| self.count(at));
        let _infallible = writeln!(text, "{mapped} mapped, {approximated} approximated, {ignored} ignored");
        text
    }
}
