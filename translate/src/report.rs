//! What became of every setting of an import.

use std::fmt::Write;

use crate::json::clean;

/// How well a setting was carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fidelity {
    /// It means here what it meant there.
    Mapped,
    /// It means something a little different; the note says what.
    Approximated,
    /// It is left out; the note says why.
    Ignored,
    /// Not a setting, but something to know.
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

/// Lines about settings, under the objects they were found in.
#[derive(Debug, Default)]
pub struct Report {
    sections: Vec<(String, Vec<(Fidelity, String)>)>,
}

impl Report {
    /// What follows is about this object.
    pub(crate) fn begin(&mut self, title: &str) {
        self.sections.push((title.to_owned(), Vec::new()));
    }

    /// A setting was carried over to `target`.
    pub(crate) fn mapped(&mut self, at: &str, target: &str) {
        self.add(Fidelity::Mapped, at, target);
    }

    /// A setting was carried over with a difference.
    pub(crate) fn approximated(&mut self, at: &str, difference: &str) {
        self.add(Fidelity::Approximated, at, difference);
    }

    /// A setting was left out.
    pub(crate) fn ignored(&mut self, at: &str, reason: &str) {
        self.add(Fidelity::Ignored, at, reason);
    }

    /// Something to know.
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

    /// How many settings ended so.
    #[must_use]
    pub fn count(&self, fidelity: Fidelity) -> usize {
        self.sections.iter().flat_map(|(_, lines)| lines).filter(|(of, _)| *of == fidelity).count()
    }

    /// Every line: the title of the object that it is about, what became of the setting, and the line itself.
    pub fn lines(&self) -> impl Iterator<Item = (&str, Fidelity, &str)> {
        let sections = self.sections.iter();
        sections
            .flat_map(|(title, lines)| lines.iter().map(|(of, line)| (title.as_str(), *of, line.as_str())))
    }

    /// The report as people read it.
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
