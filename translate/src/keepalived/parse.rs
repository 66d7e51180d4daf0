//! Reads the grammar of `keepalived.conf`: lines of words, some with a block of lines in braces.

/// Lines that are looked at; what is longer was not written by hand, nor by a tool for one machine.
pub(crate) const LINES_MAX: usize = 200_000;
/// Blocks in blocks; the deepest that means something is a URL in a check in a real server in a virtual server.
const DEPTH_MAX: usize = 16;
/// Words of a line.
const WORDS_MAX: usize = 1024;

/// A line with what is in its braces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// Never empty.
    pub(crate) words: Vec<String>,
    /// Its number, from 1.
    pub(crate) line: usize,
    pub(crate) children: Vec<Item>,
    pub(crate) is_block: bool,
}

impl Item {
    /// The first word.
    pub(crate) fn keyword(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }

    /// The words behind the first.
    pub(crate) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// The first word behind the keyword, or nothing.
    pub(crate) fn argument(&self) -> &str {
        self.arguments().first().map(String::as_str).unwrap_or_default()
    }

    /// All its words.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// A text taken apart, and the lines that were left out.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) items: Vec<Item>,
    /// Lines that count on some machines only: number and text.
    pub(crate) conditional: Vec<(usize, String)>,
}

/// A piece of a line.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Word(String),
    Open,
    Close,
}

/// Takes a text apart.
///
/// # Errors
/// Braces or quotes do not match, a limit is passed, or the rest of the configuration is somewhere else.
pub(crate) fn parse(text: &str) -> Result<Parsed, String> {
    if text.lines().count() > LINES_MAX {
        return Err(format!("more than {LINES_MAX} lines; split it"));
    }
    let mut parsed = Parsed::default();
    // The blocks that are open, from the outside in; the first is the file.
    let mut open: Vec<Item> = vec![Item { is_block: true, ..Item::default() }];
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let trimmed = line.trim();
        if trimmed.starts_with('@') {
            parsed.conditional.push((number, trimmed.to_owned()));
            continue;
        }
        let pieces = pieces(trimmed).map_err(|error| format!("line {number}: {error}"))?;
        refuse_elsewhere(number, &pieces)?;
        take(number, pieces, &mut open).map_err(|error| format!("line {number}: {error}"))?;
    }
    match (open.pop(), open.is_empty()) {
        (Some(file), true) => {
            parsed.items = file.children;
            Ok(parsed)
        }
        (Some(item), false) => {
            Err(format!("line {}: the brace of `{}` is never closed", item.line, item.keyword()))
        }
        (None, _) => Err("the braces do not match".to_owned()),
    }
}

/// Puts the pieces of a line where they belong.
fn take(number: usize, pieces: Vec<Piece>, open: &mut Vec<Item>) -> Result<(), String> {
    let mut words = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Word(word) if words.len() < WORDS_MAX => words.push(word),
            Piece::Word(_) => return Err(format!("more than {WORDS_MAX} words")),
            Piece::Open => {
                let item = if words.is_empty() { before_brace(open)? } else { item(&mut words, number) };
                if open.len() > DEPTH_MAX {
                    return Err(format!("more than {DEPTH_MAX} blocks in each other"));
                }
                open.push(Item { is_block: true, ..item });
            }
            Piece::Close => {
                finish(&mut words, number, open);
                match (open.pop(), open.last_mut()) {
                    (Some(block), Some(parent)) => parent.children.push(block),
                    (_, None) | (None, _) => return Err("a brace is closed that was not opened".to_owned()),
                }
            }
        }
    }
    finish(&mut words, number, open);
    Ok(())
}

/// A brace on a line of its own belongs to the line before.
fn before_brace(open: &mut [Item]) -> Result<Item, String> {
    let last = open.last_mut().and_then(|block| block.children.pop());
    last.filter(|item| !item.is_block).ok_or_else(|| "a brace is opened without a word before it".to_owned())
}

fn finish(words: &mut Vec<String>, number: usize, open: &mut [Item]) {
    if let Some(block) = open.last_mut().filter(|_| !words.is_empty()) {
        block.children.push(item(words, number));
    }
}

fn item(words: &mut Vec<String>, line: usize) -> Item {
    Item { words: std::mem::take(words), line, children: Vec::new(), is_block: false }
}

/// What stands elsewhere would be missing, and what it means would be another thing without it.
fn refuse_elsewhere(number: usize, pieces: &[Piece]) -> Result<(), String> {
    let Some(Piece::Word(first)) = pieces.first() else { return Ok(()) };
    if matches!(first.as_str(), "include" | "includea" | "includer" | "includem" | "includew" | "includeb") {
        return Err(format!(
            "line {number}: `{first}` is not followed: put the text of the other files in its place, as in \
             `cat /etc/keepalived/*.conf`"
        ));
    }
    if first.starts_with('$') && first.contains('=') || first.starts_with("~SEQ") {
        return Err(format!(
            "line {number}: `{first}`: definitions are not replaced here: write their values where they are used"
        ));
    }
    Ok(())
}

/// Words, with those in quotes as they are, and braces. A comment ends the line.
fn pieces(line: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#' | '!') if word.is_none() => break,
            (None, '{' | '}') if !is_parameter(word.as_deref(), character) => {
                pieces.extend(word.take().map(Piece::Word));
                pieces.push(if character == '{' { Piece::Open } else { Piece::Close });
            }
            (None, _) if character.is_whitespace() => pieces.extend(word.take().map(Piece::Word)),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err("a quote is never closed".to_owned());
    }
    pieces.extend(word.map(Piece::Word));
    Ok(pieces)
}

/// Whether a brace belongs to a `${PARAMETER}` in the word.
fn is_parameter(word: Option<&str>, brace: char) -> bool {
    let Some(word) = word else { return false };
    match brace {
        '{' => word.ends_with('$'),
        _ => word.rfind("${").is_some_and(|at| !word[at..].contains('}')),
    }
}
