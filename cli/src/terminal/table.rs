//! Text tables: left-aligned, three blanks between columns, no borders, so that both people and `awk` can
//! read them.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
    },
    views::typed::UNREADABLE,
};

/// Number of blanks between columns.
const GAP: usize = 3;

/// Text of one table field with its tone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a field with a tone. Control characters, which could manipulate a terminal, are removed; an
    /// empty text becomes `<none>`.
    pub fn toned(tone: Tone, text: impl AsRef<str>) -> Self {
        let text = clean(text.as_ref());
        Self { text: if text.is_empty() { "<none>".to_owned() } else { text }, tone }
    }

    /// Returns the text of the field without escape sequences.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

/// Text table: a heading and rows of cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    header: Vec<Cow<'static, str>>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
}

impl Table {
    /// Creates a table without rows from its column headings.
    #[must_use]
    pub fn new(header: Vec<&'static str>) -> Self {
        Self::of(header.into_iter().map(Cow::Borrowed).collect())
    }

    /// Creates a table without rows from column headings that the user chose.
    #[must_use]
    pub fn titled(header: Vec<String>) -> Self {
        Self::of(header.into_iter().map(Cow::Owned).collect())
    }

    fn of(header: Vec<Cow<'static, str>>) -> Self {
        let widths = header.iter().map(|title| title.width()).collect();
        Self { header, rows: Vec::new(), widths }
    }

    /// Adds a row. A column becomes as wide as its widest field and keeps that width, even after
    /// [`Self::take_rows`].
    pub fn push(&mut self, row: Vec<Cell>) {
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.text.width());
        }
        self.rows.push(row);
    }

    /// Adds a placeholder for a row that this version cannot decode.
    pub(crate) fn push_unreadable(&mut self) {
        let mut row = vec![Cell::toned(Tone::Waiting, UNREADABLE)];
        row.resize(self.header.len().max(1), Cell::from(""));
        self.push(row);
    }

    /// Returns true if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the heading and every row, one line each.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let header: Vec<Cell> = self.header.iter().map(|title| Cell::toned(Tone::Title, title)).collect();
        std::iter::once(&header).chain(&self.rows).map(|row| self.line(row, style)).collect()
    }

    /// Renders and removes the rows, without the heading; used by watches.
    pub fn take_rows(&mut self, style: Style) -> String {
        let rows = std::mem::take(&mut self.rows);
        rows.iter().map(|row| self.line(row, style)).collect()
    }

    fn line(&self, row: &[Cell], style: Style) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
            line.push_str(&style.paint(cell.tone, &cell.text));
            if at + 1 < row.len() {
                line.push_str(&" ".repeat(width.saturating_sub(cell.text.width()) + GAP));
            }
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_display_width_and_control_characters_are_gone() {
        let mut table = Table::new(vec!["NAME", "X"]);
        table.push(vec!["漢字-web".into(), "1".into()]);
        table.push(vec!["a\u{1b}[31m\nb".into(), "".into()]);
        assert_eq!(table.render(Style::PLAIN), "NAME       X\n漢字-web   1\na[31m b    <none>\n");
    }

    #[test]
    fn colour_changes_no_alignment() {
        let mut table = Table::new(vec!["A", "B"]);
        table.push(vec![Cell::toned(Tone::Good, "ok"), "x".into()]);
        assert!(table.render(Style { color: true }).contains("\u{1b}[32mok\u{1b}[0m   x\n"));
    }
}
