//! Parser for the syntax of `keepalived.conf`: lines of words, some with a block of lines in braces.

/// Maximum number of lines of a keepalived configuration.
pub(crate) const LINES_MAX: usize = 200_000;
/// Maximum nesting of blocks; the deepest meaningful one is a URL in a check in a real server in a virtual
/// server.
const DEPTH_MAX: usize = 16;
/// Maximum number of words per line of a keepalived configuration.
const WORDS_MAX: usize = 1024;

/// Line of words, with the lines in the braces that follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// Words of the line; the first one is the keyword.
    pub(crate) words: Vec<String>,
    /// Line number, from 1.
    pub(crate) line: usize,
    pub(crate) children: Vec<Item>,
    pub(crate) is_block: bool,
}

impl Item {
    /// Returns the first word of the line, its keyword.
    pub(crate) fn keyword(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }

    /// Returns the words after the first.
    pub(crate) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Returns the first word after the keyword, or an empty string.
    pub(crate) fn argument(&self) -> &str {
        self.arguments().first().map(String::as_str).unwrap_or_default()
    }

    /// Returns all words of the line, separated by blanks.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// Parsed items of a file, with the lines that were skipped.
#[derive(Debug, Default)]
pub(crate) struct ParsedText {
    pub(crate) items: Vec<Item>,
    /// Skipped lines that apply only to specific machines (`@` prefix): line number and text.
    pub(crate) conditional: Vec<(usize, String)>,
}

/// Token of a line: a word or a brace.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Word(String),
    Open,
    Close,
}

/// Parses the text of a keepalived configuration file.
///
/// # Errors
/// Returns an error if braces or quotes do not match, a limit is exceeded, or other files are included.
pub(crate) fn parse(text: &str) -> Result<ParsedText, String> {
    if text.lines().count() > LINES_MAX {
        return Err(format!("more than {LINES_MAX} lines; split it"));
    }
    let mut parsed = ParsedText::default();
    // Open blocks, outermost first; the first one is the file.
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
            Err(format!("line {}: the brace of `{}` is not closed", item.line, item.keyword()))
        }
        (None, _) => Err("the braces do not match".to_owned()),
    }
}

/// Adds a line, split into words and braces, to the innermost open block. `open` contains the blocks whose
/// closing brace has not been read, outermost first.
fn take(number: usize, pieces: Vec<Piece>, open: &mut Vec<Item>) -> Result<(), String> {
    let mut words = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Word(word) if words.len() < WORDS_MAX => words.push(word),
            Piece::Word(_) => return Err(format!("more than {WORDS_MAX} words")),
            Piece::Open => {
                let item = if words.is_empty() { before_brace(open)? } else { item(&mut words, number) };
                if open.len() > DEPTH_MAX {
                    return Err(format!("more than {DEPTH_MAX} nested blocks"));
                }
                open.push(Item { is_block: true, ..item });
            }
            Piece::Close => {
                finish(&mut words, number, open);
                match (open.pop(), open.last_mut()) {
                    (Some(block), Some(parent)) => parent.children.push(block),
                    (_, None) | (None, _) => return Err("closing brace without an opening brace".to_owned()),
                }
            }
        }
    }
    finish(&mut words, number, open);
    Ok(())
}

/// Removes and returns the preceding line, to which an opening brace at the beginning of a line belongs.
fn before_brace(open: &mut [Item]) -> Result<Item, String> {
    let last = open.last_mut().and_then(|block| block.children.pop());
    last.filter(|item| !item.is_block).ok_or_else(|| "opening brace without a preceding keyword".to_owned())
}

fn finish(words: &mut Vec<String>, number: usize, open: &mut [Item]) {
    if let Some(block) = open.last_mut().filter(|_| !words.is_empty()) {
        block.children.push(item(words, number));
    }
}

fn item(words: &mut Vec<String>, line: usize) -> Item {
    Item { words: std::mem::take(words), line, children: Vec::new(), is_block: false }
}

/// Returns an error for lines with includes or definitions, because ignoring them would change the meaning of
/// the configuration.
fn refuse_elsewhere(number: usize, pieces: &[Piece]) -> Result<(), String> {
    let Some(Piece::Word(first)) = pieces.first() else { return Ok(()) };
    if matches!(first.as_str(), "include" | "includea" | "includer" | "includem" | "includew" | "includeb") {
        return Err(format!(
            "line {number}: `{first}` is not supported: insert the text of the other files, for example \
             with `cat /etc/keepalived/*.conf`"
        ));
    }
    if first.starts_with('$') && first.contains('=') || first.starts_with("~SEQ") {
        return Err(format!(
            "line {number}: `{first}`: definitions are not supported: write their values where they are \
             used"
        ));
    }
    Ok(())
}

/// Splits a line into words, quoted words and braces. A comment ends the line.
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
        return Err("a quote is not closed".to_owned());
    }
    pieces.extend(word.map(Piece::Word));
    Ok(pieces)
}

/// Returns true if a brace belongs to a `${PARAMETER}` in the word.
fn is_parameter(word: Option<&str>, brace: char) -> bool {
    let Some(word) = word else { return false };
    match brace {
        '{' => word.ends_with('$'),
        _ => word.rfind("${").is_some_and(|at| !word[at..].contains('}')),
    }
}
