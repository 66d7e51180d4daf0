//! Parser for lines written by `ipvsadm -S` and read by `ipvsadm -R`.

/// Maximum number of lines; more than the virtual and real servers of a kernel in practice.
pub(crate) const LINES_MAX: usize = 200_000;
/// Maximum number of words per line: every option of ipvsadm once, with its value.
const WORDS_MAX: usize = 64;

/// ipvsadm command at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    AddService,
    AddServer,
    /// Command that `ipvsadm -S` never writes; its line is rejected.
    Other,
}

/// ipvsadm option with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Short form of the option, or the long form if there is no short one.
    pub(crate) option: &'static str,
    /// Value of the option; empty if the option has none.
    pub(crate) value: String,
}

/// Line of ipvsadm input, split into command and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) verb: Verb,
    pub(crate) settings: Vec<Setting>,
}

/// Line of ipvsadm input as parsed, or its number with the error.
pub(crate) type LineResult = Result<ParsedLine, (usize, String)>;

/// Type of the value of an ipvsadm option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    No,
    Needed,
    /// Optional value: the next word is the value unless it begins with a dash.
    Possible,
}

/// Short and long forms of the options (ipvsadm 1.31); the short one is empty if there is none.
const OPTIONS: [(&str, &str, Value); 46] = [
    ("-A", "--add-service", Value::No),
    ("-E", "--edit-service", Value::No),
    ("-D", "--delete-service", Value::No),
    ("-C", "--clear", Value::No),
    ("-R", "--restore", Value::No),
    ("-S", "--save", Value::No),
    ("-a", "--add-server", Value::No),
    ("-e", "--edit-server", Value::No),
    ("-d", "--delete-server", Value::No),
    ("-L", "--list", Value::No),
    ("-l", "--list", Value::No),
    ("-Z", "--zero", Value::No),
    ("", "--set", Value::Needed),
    ("", "--start-daemon", Value::Needed),
    ("", "--stop-daemon", Value::Needed),
    ("-h", "--help", Value::No),
    ("-t", "--tcp-service", Value::Needed),
    ("-u", "--udp-service", Value::Needed),
    ("", "--sctp-service", Value::Needed),
    ("-f", "--fwmark-service", Value::Needed),
    ("-6", "--ipv6", Value::No),
    ("-s", "--scheduler", Value::Needed),
    ("-b", "--sched-flags", Value::Needed),
    ("-p", "--persistent", Value::Possible),
    ("-M", "--netmask", Value::Needed),
    ("", "--pe", Value::Needed),
    ("-o", "--ops", Value::No),
    ("-r", "--real-server", Value::Needed),
    ("-g", "--gatewaying", Value::No),
    ("-i", "--ipip", Value::No),
    ("-m", "--masquerading", Value::No),
    ("", "--tun-type", Value::Needed),
    ("", "--tun-port", Value::Needed),
    ("", "--tun-nocsum", Value::No),
    ("", "--tun-csum", Value::No),
    ("", "--tun-remcsum", Value::No),
    ("-w", "--weight", Value::Needed),
    ("-x", "--u-threshold", Value::Needed),
    ("-y", "--l-threshold", Value::Needed),
    ("", "--mcast-interface", Value::Needed),
    ("", "--syncid", Value::Needed),
    ("", "--sync-maxlen", Value::Needed),
    ("", "--mcast-group", Value::Needed),
    ("", "--mcast-port", Value::Needed),
    ("", "--mcast-ttl", Value::Needed),
    ("-n", "--numeric", Value::No),
];

/// Returns true if a word is an ipvsadm command, with which a line can begin.
pub(crate) fn is_command(word: &str) -> bool {
    if word.starts_with("--") {
        return long(word).is_some();
    }
    let cluster =
        word.strip_prefix('-').filter(|cluster| !cluster.is_empty() && cluster.len() <= OPTIONS.len());
    cluster.is_some_and(|cluster| {
        let first = cluster.chars().next().is_some_and(|first| "AEDCRSaedZ".contains(first));
        first && cluster.chars().all(|letter| short(letter).is_some())
    })
}

fn short(letter: char) -> Option<(&'static str, Value)> {
    let found = OPTIONS.iter().find(|(short, _, _)| short.chars().eq(['-', letter]));
    found.map(|(short, _, value)| (*short, *value))
}

fn long(word: &str) -> Option<(&'static str, Value)> {
    let found = OPTIONS.iter().find(|(_, long, _)| *long == word);
    found.map(|(short, long, value)| (if short.is_empty() { *long } else { *short }, *value))
}

/// Parses the lines of ipvsadm input. Empty lines and comments are skipped.
///
/// # Errors
/// Returns an error if there are more than [`LINES_MAX`] lines.
pub(crate) fn lines(text: &str) -> Result<Vec<LineResult>, String> {
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let used: Vec<_> = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
    if used.len() > LINES_MAX {
        return Err(format!("more than {LINES_MAX} lines; split it"));
    }
    Ok(used.into_iter().map(|(number, text)| line(number, text).map_err(|error| (number, error))).collect())
}

fn line(number: usize, text: &str) -> Result<ParsedLine, String> {
    let words: Vec<&str> = text.split_whitespace().take(WORDS_MAX + 1).collect();
    if words.len() > WORDS_MAX {
        return Err(format!("more than {WORDS_MAX} words"));
    }
    let mut words = words.into_iter().peekable();
    words.next_if(|word| *word == "ipvsadm" || word.ends_with("/ipvsadm"));
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            let (name, attached) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let (option, takes) =
                long(name).ok_or_else(|| format!("`{name}` is not an option of ipvsadm"))?;
            let value = match (takes, attached) {
                (Value::No, None) => String::new(),
                (Value::No, Some(_)) => return Err(format!("{name} takes no value")),
                (Value::Needed | Value::Possible, Some(value)) => value.to_owned(),
                (Value::Needed, None) => next(&mut words, name)?,
                (Value::Possible, None) => possible(&mut words),
            };
            settings.push(Setting { option, value });
        } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
            short_options(cluster, &mut words, &mut settings)?;
        } else {
            return Err(format!("`{word}` is not the value of an option"));
        }
    }
    let verb = match settings.first().map(|setting| setting.option) {
        Some("-A") => Verb::AddService,
        Some("-a") => Verb::AddServer,
        Some(_) | None => Verb::Other,
    };
    Ok(ParsedLine { number, text: text.to_owned(), verb, settings })
}

/// Parses options that share a dash, such as `-At 192.0.2.1:80`.
fn short_options<'a>(
    cluster: &str,
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    settings: &mut Vec<Setting>,
) -> Result<(), String> {
    for (at, letter) in cluster.char_indices() {
        let (option, takes) =
            short(letter).ok_or_else(|| format!("`-{letter}` is not an option of ipvsadm"))?;
        let rest = cluster.get(at + letter.len_utf8()..).unwrap_or_default();
        let value = match takes {
            Value::No => {
                settings.push(Setting { option, value: String::new() });
                continue;
            }
            Value::Needed | Value::Possible if !rest.is_empty() => rest.to_owned(),
            Value::Needed => next(words, option)?,
            Value::Possible => possible(words),
        };
        settings.push(Setting { option, value });
        return Ok(());
    }
    Ok(())
}

fn next<'a>(words: &mut impl Iterator<Item = &'a str>, option: &str) -> Result<String, String> {
    words.next().map(ToOwned::to_owned).ok_or_else(|| format!("{option} requires a value"))
}

fn possible<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> String {
    words.next_if(|word| !word.starts_with('-')).unwrap_or_default().to_owned()
}
