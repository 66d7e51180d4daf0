//! Comparison of the page with the API: each page element that names an API field must show the value of that
//! field.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use lab::{host::wait, processes::browser::Browser};
use serde_json::{Value, json};

/// Maximum number of elements compared per view, because lists are long and their rows have the same
/// structure.
const FIELDS_MAX: usize = 400;

/// Compares the page elements that name an API field with the API response, and returns their number. Only
/// the first [`FIELDS_MAX`] elements are compared. The comparison is repeated after a mismatch, because a
/// value may change between rendering and request.
pub(crate) fn expect_true(
    browser: &mut Browser,
    api: &lab::cluster::control::Http,
    what: &str,
) -> Result<usize> {
    wait::until(&format!("the fields of {what} to be what the API says"), || {
        let mut answers: BTreeMap<String, Value> = BTreeMap::new();
        let fields = shown(browser)?;
        for (field, text) in &fields {
            let (path, pointer) =
                field.split_once('#').with_context(|| format!("`{field}` names no pointer"))?;
            if !answers.contains_key(path) {
                answers.insert(path.to_owned(), api.get_json(path)?);
            }
            let answer = &answers[path];
            let value = answer.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(tells(value, text), "{field} is {value} and the page shows {text:?}");
        }
        Ok(fields.len())
    })
}

fn shown(browser: &mut Browser) -> Result<Vec<(String, String)>> {
    let seen = browser.script(
        "return [...document.querySelectorAll('[data-field]')].filter((one) => one.getClientRects().length && one.dataset.field.startsWith('/')) \
             .slice(0, arguments[0]).map((one) => [one.dataset.field, one.textContent]);",
        &[json!(FIELDS_MAX)],
    )?;
    Ok(serde_json::from_value(seen)?)
}

/// Returns true if the text of a page element is a valid display of the API value.
fn tells(value: &Value, text: &str) -> bool {
    let text = text.trim();
    match value {
        Value::Null => is_nothing(text),
        Value::Bool(is_so) => {
            text.eq_ignore_ascii_case(if *is_so { "yes" } else { "no" }) || text == is_so.to_string()
        }
        Value::Number(number) => number.as_f64().is_some_and(|number| tells_number(number, text)),
        Value::String(word) => tells_word(word, text),
        Value::Array(items) if items.is_empty() => is_nothing(text) || text == "0" || text == "none",
        Value::Array(items) => {
            tells_number(items.len() as f64, text)
                || items.iter().all(|item| tells(item, text) || contains(item, text))
        }
        Value::Object(_) => false,
    }
}

fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "–" | "-" | "none")
}

fn contains(item: &Value, text: &str) -> bool {
    item.as_str().is_some_and(|item| text.contains(item))
}

fn tells_word(word: &str, text: &str) -> bool {
    if word.is_empty() {
        return is_nothing(text);
    }
    if text.contains(word) {
        return true;
    }
    // Of a position `epoch-revision` the page shows the revision.
    if word.split_once('-').is_some_and(|(_, revision)| text.trim_start_matches('r') == revision) {
        return true;
    }
    // `UnsupportedSetting` is shown as `unsupported setting`.
    let letters =
        |text: &str| text.chars().filter(|one| one.is_alphanumeric()).collect::<String>().to_lowercase();
    letters(text) == letters(word) || is_time(word) && tells_time(word, text)
}

fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.as_bytes().get(10) == Some(&b'T') && word.ends_with('Z')
}

/// Returns true if the text displays the time `word` of the API: as the time of day, or as an age, of which
/// only the format is checked.
fn tells_time(word: &str, text: &str) -> bool {
    let clock = word.get(11..19).unwrap_or_default();
    text.contains(clock) || text == "now" || text.ends_with(" ago") || number_of(text).is_some()
}

/// Returns true if the text displays a number: in full, in a larger unit, or rounded to the displayed digits.
fn tells_number(number: f64, text: &str) -> bool {
    // Words may precede it: `share 25 %`.
    let starts = text.char_indices().filter(|(at, one)| {
        one.is_ascii_digit()
            && !text[..*at].ends_with(|before: char| {
                before.is_alphanumeric() && before != 'r' || before == '.' || before == ','
            })
    });
    starts.map(|(at, _)| &text[at..]).any(|rest| begins_with_number(number, rest))
}

fn begins_with_number(number: f64, text: &str) -> bool {
    let Some((shown, step, unit)) = number_of(text) else { return false };
    // Other words may follow the unit.
    let unit = unit.split([' ', ',', ';']).next().unwrap_or_default();
    let factors: &[f64] = match unit.trim_end_matches("/s").trim_end_matches('B').trim() {
        "" | "ms" => &[1.0],
        "k" | "kB" => &[1e3],
        "s" => &[1e3, 1.0],
        "M" => &[1e6],
        "G" => &[1e9],
        "T" => &[1e12],
        "min" => &[6e4, 60.0],
        "h" => &[3.6e6, 3_600.0],
        "d" => &[8.64e7, 86_400.0],
        "%" => &[1.0, 0.01],
        _ if unit.starts_with(|letter: char| letter.is_alphabetic()) => &[1.0],
        _ => return false,
    };
    factors.iter().any(|factor| (shown * factor - number).abs() <= step * factor * 0.5001)
}

/// Parses the number at the start of a text. Returns the number, the value of one unit of its last digit, and
/// the rest of the text.
fn number_of(text: &str) -> Option<(f64, f64, &str)> {
    let text = text.strip_prefix('r').unwrap_or(text);
    let end =
        text.find(|one: char| !(one.is_ascii_digit() || one == ',' || one == '.')).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let digits = digits.trim_end_matches('.').replace(',', "");
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let step = 10_f64.powi(-i32::try_from(decimals).ok()?);
    Some((digits.parse().ok()?, step, rest.trim()))
}

/// Returns an error if `count`, the number of page elements of a view that name an API field, is 0.
pub(crate) fn expect_some(count: usize, what: &str) -> Result<()> {
    if count == 0 {
        bail!("no element of {what} names the field that it shows");
    }
    Ok(())
}

#[test]
fn a_text_tells_a_number_by_itself_rounded_or_in_a_larger_unit_and_no_other() {
    for (number, text) in [
        (5000.0, "5,000"),
        (5000.0, "5 k"),
        (1234.0, "1.23 k"),
        (38.0, "38 ms"),
        (2412.0, "2.4 s"),
        (240_000.0, "4 min"),
        (12.5, "12.5/s"),
        (1_500_000.0, "1.50 MB"),
        (17.0, "r17"),
        (0.25, "25%"),
        (3.0, "3 nodes"),
        (0.0, "share 0 %, 0 of 1"),
    ] {
        assert!(tells(&json!(number), text), "{number} {text}");
    }
    for (number, text) in
        [(5000.0, "4,999"), (5000.0, "5"), (38.0, "39 ms"), (2412.0, "2.5 s"), (3.0, ""), (3.0, "–")]
    {
        assert!(!tells(&json!(number), text), "{number} {text}");
    }
}

#[test]
fn a_text_tells_words_times_and_nothing_by_what_they_are() {
    assert!(tells(&json!("NoEndpoints"), "no endpoints"));
    assert!(tells(&json!("1795251600-17"), "r17"));
    assert!(!tells(&json!("1795251600-17"), "r18"));
    assert!(tells(&json!("2026-11-21T09:00:00Z"), "2026-11-21 09:00:00 UTC"));
    assert!(tells(&json!("2026-11-21T09:00:00Z"), "3 min ago"));
    assert!(!tells(&json!("node1"), "node2"));
    assert!(tells(&Value::Null, "–") && !tells(&Value::Null, "0"));
    assert!(tells(&json!(["a", "b"]), "a, b") && !tells(&json!(["a", "b"]), "a"));
}
