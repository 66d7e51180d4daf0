//! Test that this version accepts the commands and manifests in the documentation.

use std::{fs, path::Path};

use clap::{CommandFactory as _, Parser};
use cli::args::Cli;
use model::admission::decode::{Expect, decode};
use reference_pages::{
    command::{self, File},
    golden,
};
use serde_json::Value;

/// Returns the fenced code blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut blocks, mut open) = (Vec::new(), None::<(String, String)>);
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(word), None) => open = Some((word.to_owned(), String::new())),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some((word, text))) => open = Some((word, text + line + "\n")),
            (None, None) => {}
        }
    }
    blocks
}

/// Folders of `docs/` with commands and manifests.
const FOLDERS: [&str; 4] = ["tutorials", "how-to", "reference", "explanation"];

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = FOLDERS.map(|folder| fs::read_dir(root.join("docs").join(folder)).unwrap());
    let guides = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = guides.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.chain([root.join("README.md")]);
    pages.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// Splits a command line at blanks outside of single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (at, part) in command.split('\'').enumerate() {
        if at % 2 == 1 {
            words.last_mut().map_or_else(|| panic!("{command}"), |word| word.push_str(part));
            continue;
        }
        // Text that follows a quote without a blank belongs to the same word.
        let mut parts = part.split(' ');
        let first = parts.next().unwrap_or_default();
        if let Some(word) = words.last_mut() {
            word.push_str(first);
        } else {
            words.push(first.to_owned());
        }
        words.extend(parts.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_of_the_guides_is_understood() {
    let mut commands = 0;
    for (path, page) in pages() {
        for (_, text) in blocks(&page) {
            for line in text.lines().map(|line| line.trim().trim_start_matches("$ ")) {
                let command = line.split(" && ").find(|part| part.starts_with("tidegate "));
                let Some(command) = command
                    .and_then(|command| command.split(" > ").next()?.split(" # ").next()?.split("  ").next())
                else {
                    continue;
                };
                if command.contains("[OPTIONS]") {
                    continue;
                }
                let parsed = Cli::try_parse_from(words(command));
                assert!(parsed.is_ok(), "{path}: `{command}`: {}", parsed.unwrap_err());
                commands += 1;
            }
        }
    }
    assert!(commands > 10, "{commands} commands found");
}

#[test]
fn every_manifest_of_the_guides_is_valid() {
    let mut objects = 0;
    for (path, page) in pages() {
        for (_, text) in blocks(&page).into_iter().filter(|(word, _)| word == "yaml") {
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            for document in documents {
                let decoded = decode(&document, &Expect::default());
                assert!(decoded.is_ok(), "{path}: {document:#}: {:?}", decoded.unwrap_err());
                objects += 1;
            }
        }
    }
    assert!(objects >= 5, "{objects} objects found");
}

#[test]
fn every_command_and_flag_has_a_row() -> Result<(), String> {
    let description = "`tidegate` reads the settings of its connection from flags, from environment variables and from \
                       `~/.config/tidegate/config.toml`. `TIDEGATE_TOKEN` can hold the token itself.";
    let file = File { description, keys: Some(&["api", "ca-file", "ca-hash", "token-file"]) };
    golden::check("tidegate.md", &command::page(&Cli::command(), file))
}
