//! Lengths of functions.

/// Most lines of a function, from its signature to its closing brace.
pub(crate) const FUNCTION_LINES_MAX: usize = 100;

/// Returns the functions of a formatted source file that are too long, with their lines.
pub(crate) fn too_long(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let length = lines.iter().skip(at).position(|line| **line == closing).map_or(0, |end| end + 1);
        if length > FUNCTION_LINES_MAX {
            found.push((name.to_owned(), length));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    // A one-liner ends where it begins, and a declaration in a trait has no body.
    let opens = line.ends_with('{') || line.ends_with('(') || line.ends_with('>');
    rest.strip_prefix("fn ").filter(|_| opens)?.split(['(', '<']).next()
}
