//! Form of paths in which routes and requests are compared.
//!
//! Endpoints decode a path before they use it, so that a route must match every spelling of its path: otherwise a request for
//! `/%61dmin` would pass the rule for `/admin`. Endpoints still receive the path as the client sent it.

use std::borrow::Cow;

/// Characters of paths that are not percent-encoded in the normal form: unreserved characters, sub-delimiters, `:`, `@` and
/// `/` (RFC 3986 §3.3).
const fn is_plain(byte: u8) -> bool {
    matches!(
        byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
            | b'-' | b'.' | b'_' | b'~'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
            | b':' | b'@' | b'/'
    )
}

/// Returns a path in the form in which paths are compared: characters that need no percent-encoding are decoded once, a
/// decoded slash separates elements, consecutive slashes are one, and all other bytes are percent-encoded in upper case.
pub(super) fn normal_path(path: &str) -> Cow<'_, str> {
    if path.bytes().all(is_plain) && !path.contains("//") {
        return path.into();
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = next(rest) {
        rest = after;
        push(&mut normal, byte);
    }
    normal.into()
}

/// Returns the byte with which a path begins, decoded if it is percent-encoded, and the rest.
fn next(path: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = path.split_first()?;
    let digits = after.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
    let digits = digits.filter(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
    let decoded = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
    Some(match decoded {
        Some(byte) => (byte, after.get(2..).unwrap_or_default()),
        None => (*first, after),
    })
}

/// Adds a byte to a path in normal form.
fn push(normal: &mut String, byte: u8) {
    match byte {
        b'/' if normal.ends_with('/') => {}
        byte if is_plain(byte) => normal.push(byte.into()),
        byte => normal.push_str(&format!("%{byte:02X}")),
    }
}

/// Returns the part of a path after a prefix in normal form without final slash, and after the slash that follows it, as the
/// client sent it. Returns `None` if the path ends with the prefix, or does not have it.
pub(super) fn after_prefix<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let mut normal = String::with_capacity(prefix.len());
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = next(rest) {
        // Slashes that belong to the prefix, such as the second one of `//admin`, precede its last byte.
        if byte == b'/' && normal == prefix {
            return path.get(path.len() - after.len()..);
        }
        rest = after;
        push(&mut normal, byte);
    }
    None
}

/// Returns a path in normal form without the parameters of its elements (RFC 3986 §3.3), which some endpoints ignore. Returns
/// `None` if it has none.
pub(super) fn without_parameters(path: &str) -> Option<String> {
    let cut = |element: &str| element.split(';').next().unwrap_or_default().to_owned();
    path.contains(';').then(|| {
        let whole = path.split('/').map(cut).collect::<Vec<_>>().join("/");
        normal_path(&whole).into_owned()
    })
}

/// Returns a path in normal form with slashes in place of backslashes, which some endpoints treat so. Returns `None` if it has
/// none.
pub(super) fn without_backslashes(path: &str) -> Option<String> {
    path.contains("%5C").then(|| normal_path(&path.replace("%5C", "/")).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of a path keeps its spelling; the slash before it is one, however it was sent.
    #[test]
    fn the_rest_after_a_prefix_is_as_sent() {
        for (path, prefix, expected) in [
            ("/admin/%78", "/admin", Some("%78")),
            ("/%61dmin/%78//y%2Fz", "/admin", Some("%78//y%2Fz")),
            ("//admin//x", "/admin", Some("/x")),
            ("/admin%2Fx", "/admin", Some("x")),
            ("/caf%c3%a9/%c3%a9", "/caf%C3%A9", Some("%c3%a9")),
            ("/admin", "/admin", None),
            ("/admin/", "/admin", Some("")),
            ("/a/b", "", Some("a/b")),
            ("/", "", Some("")),
            ("/administrator", "/admin", None),
        ] {
            assert_eq!(after_prefix(path, prefix), expected, "{path} {prefix}");
        }
    }

    #[test]
    fn all_spellings_of_a_path_have_one_form() {
        for (path, normal) in [
            ("/admin", "/admin"),
            ("/%61dmin", "/admin"),
            ("//admin", "/admin"),
            ("/%2Fadmin", "/admin"),
            ("/admin%2fx", "/admin/x"),
            ("/a///b//", "/a/b/"),
            ("/%40x%3B", "/@x;"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a{b}", "/a%7Bb%7D"),
            ("/a%7bb%7D", "/a%7Bb%7D"),
            // Decoded once only, as by endpoints.
            ("/%2561dmin", "/%2561dmin"),
            ("/50%", "/50%25"),
            ("/%zz", "/%25zz"),
        ] {
            assert_eq!(normal_path(path), normal, "{path}");
            assert_eq!(normal_path(normal), normal, "{path}");
        }
        assert_eq!(without_parameters("/a;x=1/b;y"), Some("/a/b".to_owned()));
        assert_eq!(without_parameters("/;x/admin"), Some("/admin".to_owned()));
        assert_eq!(without_parameters("/a"), None);
        assert_eq!(without_backslashes(&normal_path("/a%5cb/\\c")), Some("/a/b/c".to_owned()));
        assert_eq!(without_backslashes("/a"), None);
    }
}
