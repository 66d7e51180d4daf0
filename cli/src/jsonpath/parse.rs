//! Parser of JSONPath templates and paths. Total: every text is a template or an error.

use std::str::FromStr;

use serde_json::Value;

/// Maximum length of a template in bytes.
const TEMPLATE_BYTES_MAX: usize = 4096;
/// Maximum number of nested `{range}` blocks.
const RANGES_MAX: usize = 4;

/// Template of `-o jsonpath=`: text with paths in braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub(crate) parts: Vec<Part>,
}

/// Part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text that is printed unchanged.
    Text(String),
    /// Path whose values are printed with a blank between them.
    Values(Path),
    /// Parts that are printed for each value of a path.
    Range(Path, Vec<Part>),
}

/// Path to values of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub(crate) steps: Vec<Step>,
}

/// Step of a path, which replaces each value by others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Whole document (`$`).
    Root,
    /// Field of an object.
    Field(String),
    /// Entries of an array or values of an object (`*`).
    All,
    /// Entry of an array; negative numbers count from the end.
    Index(i64),
    /// Entries of an array from the first bound up to before the second one.
    Slice(Option<i64>, Option<i64>),
    /// Results of several steps, one after the other.
    Union(Vec<Self>),
    /// Value itself and everything in it (`..`).
    Descendants,
    /// Entries that meet a condition.
    Matching(Filter),
}

/// Condition of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The path has a value.
    Exists(Path),
    /// The comparison of two operands is true.
    Compares(Operand, Comparison, Operand),
}

/// Operand of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    /// First value of a path.
    First(Path),
    /// Constant.
    Literal(Value),
}

/// Comparison operator of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `>`
    Above,
}

/// Operators in the order in which they are searched; longer ones come first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

impl FromStr for Template {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        check_length(text)?;
        if !text.contains('{') {
            return Ok(Self { parts: vec![Part::Values(text.parse()?)] });
        }
        let mut open: Vec<(Path, Vec<Part>)> = Vec::new();
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(start) = rest.find('{') {
            let (before, after) = (&rest[..start], &rest[start + 1..]);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = find_outside_quotes(after, |c| c == '}').ok_or("`{` without `}`")?;
            let inner = after[..end].trim();
            rest = &after[end + 1..];
            if let Some(quoted) = quoted(inner) {
                parts.push(Part::Text(unescaped(quoted)));
            } else if inner == "end" {
                let (path, outer) = open.pop().ok_or("`{end}` without `{range}`")?;
                let body = std::mem::replace(&mut parts, outer);
                parts.push(Part::Range(path, body));
            } else if let Some(path) = inner.strip_prefix("range ") {
                if open.len() == RANGES_MAX {
                    return Err(format!("more than {RANGES_MAX} nested `{{range}}`"));
                }
                open.push((path.parse()?, std::mem::take(&mut parts)));
            } else {
                parts.push(Part::Values(inner.parse()?));
            }
        }
        if !open.is_empty() {
            return Err("`{range}` without `{end}`".to_owned());
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }
}

impl FromStr for Path {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        check_length(text)?;
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text).trim();
        if text.is_empty() {
            return Err("the path is empty; write a path such as .metadata.name".to_owned());
        }
        let mut steps = Vec::new();
        let mut rest = match (text.strip_prefix('$'), text.strip_prefix('@')) {
            (Some(rest), _) => {
                steps.push(Step::Root);
                rest
            }
            (None, Some(rest)) => rest,
            (None, None) if text.starts_with(['.', '[']) => text,
            (None, None) => field(&mut steps, text)?,
        };
        while !rest.is_empty() {
            rest = if let Some(after) = rest.strip_prefix("..") {
                steps.push(Step::Descendants);
                if after.starts_with('[') { after } else { field(&mut steps, after)? }
            } else if rest == "." {
                ""
            } else if let Some(after) = rest.strip_prefix('.') {
                if after.starts_with('[') { after } else { field(&mut steps, after)? }
            } else if let Some(after) = rest.strip_prefix('[') {
                let end = find_closing(after).ok_or("`[` without `]`")?;
                steps.push(bracket(after[..end].trim())?);
                &after[end + 1..]
            } else {
                return Err(format!("unexpected `{rest}`; separate fields by a dot"));
            };
        }
        Ok(Self { steps })
    }
}

fn check_length(text: &str) -> Result<(), String> {
    if text.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("must be at most {TEMPLATE_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Parses the field at the beginning of `text`, adds its step, and returns the rest. A backslash precedes a dot that is
/// part of the name.
fn field<'a>(steps: &mut Vec<Step>, text: &'a str) -> Result<&'a str, String> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => {
                end = at;
                break;
            }
            ']' | '{' | '}' | '(' | ')' | '|' | '"' | '\'' => {
                return Err(format!("unexpected `{character}` in `{text}`"));
            }
            other => name.push(other),
        }
    }
    let name = name.trim();
    match name {
        "" => return Err("a field name is missing after the dot".to_owned()),
        "*" => steps.push(Step::All),
        name => steps.push(Step::Field(name.to_owned())),
    }
    Ok(&text[end..])
}

fn bracket(inner: &str) -> Result<Step, String> {
    if let Some(filter) = inner.strip_prefix('?') {
        return Ok(Step::Matching(filter_of(filter.trim())?));
    }
    let mut choices =
        split_outside_quotes(inner, ',').into_iter().map(choice).collect::<Result<Vec<_>, _>>()?;
    match (choices.pop(), choices.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => {
            choices.extend(last);
            Ok(Step::Union(choices))
        }
    }
}

fn choice(text: &str) -> Result<Step, String> {
    let text = text.trim();
    if let Some(name) = quoted(text) {
        return Ok(Step::Field(unescaped(name)));
    }
    if text == "*" {
        return Ok(Step::All);
    }
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("`[{text}]` is no index"));
    match text.split_once(':') {
        None => number(text).map(Step::Index),
        Some((from, to)) => {
            let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
            Ok(Step::Slice(bound(from)?, bound(to)?))
        }
    }
}

fn filter_of(text: &str) -> Result<Filter, String> {
    let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text).trim();
    for (word, comparison) in COMPARISONS {
        if let Some(at) = find_word_outside_quotes(text, word) {
            let (left, right) = (&text[..at], &text[at + word.len()..]);
            return Ok(Filter::Compares(operand(left)?, comparison, operand(right)?));
        }
    }
    Ok(Filter::Exists(text.parse()?))
}

fn operand(text: &str) -> Result<Operand, String> {
    let text = text.trim();
    if text.starts_with(['@', '$']) {
        return text.parse().map(Operand::First);
    }
    if let Some(text) = quoted(text) {
        return Ok(Operand::Literal(Value::String(unescaped(text))));
    }
    let literal = serde_json::from_str(text).map(Operand::Literal);
    literal.map_err(|_| format!("`{text}` is neither a path such as @.type nor a constant such as \"Ready\""))
}

/// Returns the text between quotes; `None` if `text` is not a single quoted text.
fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Replaces the escapes `\n`, `\t` and `\r`; other characters after a backslash stand for themselves.
fn unescaped(text: &str) -> String {
    let (mut result, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => result.extend(characters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            })),
            (other, false) => result.push(other),
        }
    }
    result
}

/// Returns the positions of all characters outside of quotes, with the characters.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut is_escaped) = (None, false);
    text.char_indices().filter(move |(_, character)| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match (quote, *character) {
            (_, '\\') => is_escaped = true,
            (None, '"' | '\'') => quote = Some(*character),
            (Some(open), close) if open == close => quote = None,
            (None, _) => return true,
            (Some(_), _) => {}
        }
        false
    })
}

fn find_outside_quotes(text: &str, is_wanted: impl Fn(char) -> bool) -> Option<usize> {
    outside_quotes(text).find(|(_, character)| is_wanted(*character)).map(|(at, _)| at)
}

fn find_word_outside_quotes(text: &str, word: &str) -> Option<usize> {
    outside_quotes(text).map(|(at, _)| at).find(|at| text[*at..].starts_with(word))
}

/// Returns the position of the bracket that closes the one before `text`.
fn find_closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, character) in outside_quotes(text) {
        match character {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Splits a text at a separator outside of quotes and brackets.
pub(crate) fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (at, character) in outside_quotes(text) {
        match character {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            character if character == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
