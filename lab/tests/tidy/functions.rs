//! Lengths and nesting depths of functions.

/// Maximum number of lines of a function, from its signature to its closing brace.
pub(crate) const FUNCTION_LINES_MAX: usize = 100;

/// Returns the functions of a formatted source file: name, number of lines and deepest nesting of blocks.
pub(crate) fn lengths(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let own = indent(line);
        let closing = format!("{}}}", " ".repeat(own));
        let signature_end = format!("{})", " ".repeat(own));
        // A declaration in a trait has no body.
        let rest = lines.iter().skip(at + 1).take_while(|line| **line != closing);
        let mut ends = rest.filter(|line| line.starts_with(&signature_end));
        if ends.next().is_some_and(|line| line.ends_with(';')) {
            continue;
        }
        let length = lines.iter().skip(at).position(|line| **line == closing).map_or(0, |end| end + 1);
        let body = lines.iter().skip(at).take(length);
        let opening = body.filter(|line| line.ends_with('{'));
        let nesting = opening.map(|line| indent(line).saturating_sub(own) / 4).max().unwrap_or(0);
        found.push((name.to_owned(), length, nesting));
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    // A one-liner ends where it begins.
    let opens = line.ends_with('{') || line.ends_with('(') || line.ends_with('>');
    rest.strip_prefix("fn ").filter(|_| opens)?.split(['(', '<']).next()
}
