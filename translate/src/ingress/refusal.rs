//! Refusals of the paths that an object with an untranslated restriction serves.
//!
//! Invariant: the refused paths are all paths to which the restriction may apply, so that another rule cannot serve one of
//! them without it. A path that cannot be described exactly is replaced by a shorter one, which covers more.

use serde_json::{Value, json};

/// Maximum number of paths that stand for one regular expression; a longer list is replaced by a common prefix.
const ALTERNATIVES_MAX: usize = 16;
/// Maximum length of a refused path in bytes. Longer paths are cut.
const PATH_BYTES_MAX: usize = 1000;
/// Maximum length of a reason in bytes. Longer reasons are cut.
const REASON_BYTES_MAX: usize = 1000;

/// Comparison of paths by the program that served them before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathStyle {
    /// Exact path.
    Exact,
    /// Prefix of whole path elements.
    Elements,
    /// Prefix of characters.
    Characters,
    /// Regular expression without regard to case, which must match the start of the path only (`use-regex` of ingress-nginx).
    Regex,
    /// Regular expression that must match the whole path, with regard to case (Gateway API).
    WholeRegex,
}

/// Paths that a rule refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedPath {
    /// Path, or a prefix of the paths.
    value: String,
    is_exact: bool,
    by_characters: bool,
    ignores_case: bool,
    covers_longer: bool,
    /// True if the paths belong to the host name, whatever the listener, as those of Ingresses.
    at_all_listeners: bool,
}

impl RefusedPath {
    /// Returns the paths that a path of an object matches.
    pub(crate) fn of(path: &str, style: PathStyle) -> Vec<Self> {
        let path = if path.is_empty() { "/" } else { path };
        let of = |value: &str, is_exact, by_characters| {
            let (value, is_whole) = valid(value);
            Self {
                value,
                is_exact: is_exact && is_whole,
                by_characters: by_characters || !is_whole,
                ignores_case: false,
                covers_longer: !is_whole,
                at_all_listeners: false,
            }
        };
        match style {
            PathStyle::Exact => vec![of(path, true, false)],
            PathStyle::Elements => vec![of(path, false, false)],
            PathStyle::Characters => vec![of(path, false, true)],
            PathStyle::Regex | PathStyle::WholeRegex => {
                let elements = path.strip_suffix("(/|$)(.*)").filter(|base| !base.contains(is_special));
                let starts = match elements {
                    Some(base) => vec![of(base, false, false)],
                    None => regex_starts(path).iter().map(|start| of(start, false, true)).collect(),
                };
                let ignores_case = style == PathStyle::Regex;
                let covers_longer = style == PathStyle::WholeRegex || path.contains(is_special);
                let whole = |one: Self| Self {
                    ignores_case,
                    covers_longer: covers_longer || one.covers_longer,
                    ..one
                };
                starts.into_iter().map(whole).collect()
            }
        }
    }

    /// Returns the paths together with all longer ones, whatever other rules have them.
    pub(crate) fn covering_longer_paths(self) -> Self {
        Self { covers_longer: true, ..self }
    }

    /// Returns the paths at all listeners of the host name.
    pub(crate) fn at_all_listeners(self) -> Self {
        Self { at_all_listeners: true, ..self }
    }

    /// Returns the condition of a rule for the paths.
    pub(crate) fn path(&self) -> Value {
        json!({ "type": if self.is_exact { "Exact" } else { "PathPrefix" }, "value": self.value })
    }

    /// Returns the setting of a rule that refuses the paths for a reason.
    pub(crate) fn refusal(&self, reason: &str) -> Value {
        let mut refusal = json!({ "reason": clipped(reason) });
        if self.by_characters {
            refusal["comparison"] = "Characters".into();
        }
        for (field, is_set) in [
            ("ignoreCase", self.ignores_case),
            ("coversLongerPaths", self.covers_longer),
            ("allListeners", self.at_all_listeners),
        ] {
            if is_set {
                refusal[field] = true.into();
            }
        }
        refusal
    }

    /// Returns the refused paths in words, for reports.
    pub(crate) fn words(&self) -> String {
        match (self.is_exact, self.value.as_str()) {
            (true, path) => path.to_owned(),
            (false, "/") if self.covers_longer => "all paths".to_owned(),
            (false, path) if self.by_characters => format!("{path}*"),
            (false, path) => format!("{}/*", path.trim_end_matches('/')),
        }
    }
}

/// Returns true if a character has a meaning in regular expressions.
fn is_special(c: char) -> bool {
    ".()[]{}*+?|^$\\".contains(c)
}

/// Returns a text without control characters and of limited length.
fn clipped(text: &str) -> String {
    let text = crate::json::clean(text);
    let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default().to_owned()
}

/// Returns the longest start of a path that an HttpRoute accepts, and true if it is the whole path.
fn valid(path: &str) -> (String, bool) {
    let mut value = String::new();
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let is_valid = match byte {
            b'%' => digits.is_some_and(|two| !two.eq_ignore_ascii_case(b"2f")),
            b'/' => !value.ends_with('/'),
            _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(byte),
        };
        // An element that begins with a dot may become `.` or `..`.
        let is_dot = value.ends_with('/') && (*byte == b'.' || (*byte == b'%' && digits == Some(b"2e")));
        if !is_valid || is_dot || value.len() >= PATH_BYTES_MAX {
            break;
        }
        value.push(char::from(*byte));
        rest = after;
    }
    if !value.starts_with('/') {
        return ("/".to_owned(), false);
    }
    (value, rest.is_empty())
}

/// Returns starts of paths, one of which each path has that a regular expression matches from its start.
fn regex_starts(pattern: &str) -> Vec<String> {
    let everything = || vec!["/".to_owned()];
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    // Only the first alternative is bound to the start of the path.
    let Some(alternatives) = split(pattern).filter(|found| found.len() == 1) else { return everything() };
    let mut starts = vec![String::new()];
    let mut rest = alternatives.first().copied().unwrap_or_default();
    while !rest.is_empty() {
        if let Some((c, after)) = literal(rest) {
            starts.iter_mut().for_each(|start| start.push(c));
            rest = after;
            continue;
        }
        let Some((inner, after)) = group(rest).filter(|(_, after)| !after.starts_with(['?', '*', '{']))
        else {
            break;
        };
        let inner = inner.strip_prefix("?:").unwrap_or(inner);
        let Some(alternatives) = split(inner).filter(|_| !inner.starts_with('?')) else { break };
        if starts.len() * alternatives.len() > ALTERNATIVES_MAX {
            break;
        }
        let ends: Vec<_> = alternatives.iter().map(|one| literals(one)).collect();
        let with = |start: &String| ends.iter().map(|(end, _)| format!("{start}{end}")).collect::<Vec<_>>();
        starts = starts.iter().flat_map(with).collect();
        if ends.iter().any(|(_, is_whole)| !is_whole) {
            break;
        }
        rest = after;
    }
    starts.sort();
    starts.dedup();
    if starts.iter().all(|start| start.starts_with('/')) { starts } else { everything() }
}

/// Returns the literal characters with which a regular expression begins, and true if it has no others.
fn literals(mut rest: &str) -> (String, bool) {
    let mut text = String::new();
    while let Some((c, after)) = literal(rest) {
        text.push(c);
        rest = after;
    }
    (text, rest.is_empty())
}

/// Returns the literal character with which a regular expression begins, and the rest.
fn literal(pattern: &str) -> Option<(char, &str)> {
    let mut chars = pattern.chars();
    let mut c = chars.next()?;
    if c == '\\' {
        c = chars.next().filter(char::is_ascii_punctuation)?;
    } else if is_special(c) {
        return None;
    }
    let rest = chars.as_str();
    // The character may be absent.
    (!rest.starts_with(['?', '*', '{'])).then_some((c, rest))
}

/// Returns the contents of the group with which a regular expression begins, and the rest.
fn group(pattern: &str) -> Option<(&str, &str)> {
    let inner = pattern.strip_prefix('(')?;
    let mut depth = 1_usize;
    let mut is_escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            // Brackets may contain parentheses.
            '[' => return None,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((inner.get(..at)?, inner.get(at + 1..)?));
        }
    }
    None
}

/// Splits a regular expression into its alternatives. Returns `None` if its groups are not understood.
fn split(pattern: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut depth, mut start, mut is_escaped, mut in_brackets) = (0_usize, 0, false, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ']' => in_brackets = false,
            _ if in_brackets => {}
            '[' => in_brackets = true,
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => {
                parts.push(pattern.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(pattern.get(start..)?);
    (depth == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_expression_refuses_the_paths_that_it_may_match() {
        for (pattern, expected) in [
            ("/(internal|metrics)(/.*)?", "/internal* /metrics*"),
            ("/api(/|$)(.*)", "/api/*"),
            ("/v[0-9]+/x", "/v*"),
            ("/(a|b)[0-9]+", "/a* /b*"),
            (r"/index\.php$", "/index.php*"),
            ("/ab?c", "/a*"),
            ("/ab*", "/a*"),
            ("/a+b", "/a*"),
            ("/(a|b)?c", "all paths"),
            ("/a|/b", "all paths"),
            ("/(?i)admin", "all paths"),
            ("/.*\\.php", "all paths"),
            ("/(?:a|b.)/c", "/a* /b*"),
            ("(/a|/b)/c", "/a/c* /b/c*"),
            ("/[(]a", "all paths"),
            ("/a(b", "all paths"),
        ] {
            let found = RefusedPath::of(pattern, PathStyle::Regex);
            assert!(found.iter().all(|one| one.covers_longer && one.ignores_case), "{pattern}");
            let found: Vec<_> = found.iter().map(RefusedPath::words).collect();
            assert_eq!(found.join(" "), expected, "{pattern}");
        }
    }

    #[test]
    fn a_refused_path_is_valid_or_cut() {
        for (path, style, expected) in [
            ("", PathStyle::Elements, "/*"),
            ("/a", PathStyle::Exact, "/a"),
            ("/a", PathStyle::Elements, "/a/*"),
            ("/a", PathStyle::Characters, "/a*"),
            ("/a//b", PathStyle::Exact, "/a/*"),
            ("/a b", PathStyle::Elements, "/a*"),
            ("/a%2Fb", PathStyle::Elements, "/a*"),
            ("/a/../b", PathStyle::Elements, "/a/*"),
            ("a", PathStyle::Elements, "all paths"),
        ] {
            let words: Vec<_> = RefusedPath::of(path, style).iter().map(RefusedPath::words).collect();
            assert_eq!(words, [expected], "{path}");
        }
    }
}
