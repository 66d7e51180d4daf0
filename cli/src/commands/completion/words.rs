//! The words of an incomplete command line that select the candidates for its next word.

use std::ffi::OsString;

use model::primitives::name::Namespace;

use crate::Resource;

/// Options of the connection, which have a value.
const CONNECTION: [&str; 5] = ["--api", "--token-file", "--ca-file", "--ca-hash", "--context"];

/// Returns the options of the connection with their values, as `--option=value`. An option without a value is left out.
pub(super) fn connection(words: &[OsString]) -> Vec<OsString> {
    CONNECTION
        .into_iter()
        .filter_map(|option| {
            let mut joined = OsString::from(option);
            joined.push("=");
            joined.push(value_of(words, &[option])?);
            Some(joined)
        })
        .collect()
}

/// Returns the namespace of `-n` or `--namespace`; `None` if it is absent or invalid.
pub(super) fn namespace(words: &[OsString]) -> Option<Namespace> {
    let text = value_of(words, &["-n", "--namespace"])?;
    Namespace::parse(text.to_str()?).ok()
}

/// Returns the kind that the words name, as in `get svc` or `wait svc/web`; `None` if no word is a kind.
pub(super) fn kind(words: &[OsString]) -> Option<Resource> {
    // The first word is the program.
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_str()?;
        if matches!(text, "-n" | "--namespace") || CONNECTION.contains(&text) {
            words.next();
        } else if let Ok(resource) = text.split_once('/').map_or(text, |(kind, _)| kind).parse() {
            return Some(resource);
        }
    }
    None
}

/// Returns the value of an option that is given by one of `names`, as `--name value` or `--name=value`.
fn value_of(words: &[OsString], names: &[&str]) -> Option<OsString> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if names.contains(&text) {
            return words.next().cloned();
        }
        let joined = names.iter().find_map(|name| text.strip_prefix(name)?.strip_prefix('='));
        if let Some(value) = joined {
            return Some(value.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use model::kinds::resource::Kind;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_are_found_in_both_forms() {
        let line = words("tidegate --api http://a get svc --context=lab -n shop --ca-file");
        assert_eq!(connection(&line), ["--api=http://a", "--context=lab"]);
        assert_eq!(namespace(&line).unwrap().as_str(), "shop");
        assert_eq!(namespace(&words("tidegate get svc -n Shop")), None);
        assert_eq!(namespace(&words("tidegate get svc -n")), None);
    }

    #[test]
    fn the_kind_is_the_first_word_that_is_one() {
        let service = Some(Resource::Object(Kind::Service));
        assert_eq!(kind(&words("tidegate get svc ")), service);
        assert_eq!(kind(&words("tidegate -n node get svc/web")), service, "`node` is a namespace");
        assert_eq!(kind(&words("tidegate drain node n")), Some(Resource::Object(Kind::Node)));
        assert_eq!(kind(&words("tidegate get ")), None);
    }
}
