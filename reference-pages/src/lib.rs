//! Generator of the pages in `docs/reference/`. Sources are the clap definitions (commands and settings), the
//! OpenAPI document (kinds of objects, operations), the metrics output of the programs, and enums in the
//! source code (reasons).
//!
//! Tests of the crates that define these sources run the generator and compare the result with the checked-in page
//! ([`golden`]), so that no page differs from the program.

pub mod command;
pub mod golden;
pub mod metrics;
pub mod openapi;
pub mod reasons;
pub mod variants;

/// Formats a text as a cell of a Markdown table: on one line, with `|` escaped everywhere, and `<` and `*`
/// escaped outside of code.
#[must_use]
pub fn cell(text: &str) -> String {
    let mut result = String::new();
    let mut is_code = false;
    for character in text.trim().chars() {
        match character {
            '`' => {
                is_code = !is_code;
                result.push('`');
            }
            '\n' => result.push(' '),
            // Tables are split before code is recognized.
            '|' => result.push_str("\\|"),
            '<' if !is_code => result.push_str("&lt;"),
            '*' if !is_code => result.push_str("\\*"),
            other => result.push(other),
        }
    }
    result
}

/// Formats rows as a Markdown table with the given headings.
#[must_use]
pub fn table<const COLUMNS: usize>(headings: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&headings) + &line(&["---"; COLUMNS]);
    for row in rows {
        text += &line(&row.each_ref().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_one_line_and_keep_code_as_it_is() {
        assert_eq!(cell("a <b>\n`<c>` | *"), "a &lt;b> `<c>` \\| \\*");
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let rows = [["1".to_owned(), "2".to_owned()]];
        assert_eq!(table(["a", "b"], &rows), "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }
}
