//! Tests that the recipes in ARCHITECTURE.md ("How do I add a …") are complete. Each recipe lists the files
//! that enumerate the existing proxy modes, kinds, stores or sources, which an addition must change.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use model::kinds::{node::ProxyMode, resource::Kind};

use crate::{root, sources};

/// Suffixes of the types of a kind, such as `NodeSpec`.
const TYPE_SUFFIXES: [&str; 3] = ["Spec", "Status", "List"];

/// Files that contain all names of a set, such as the proxy modes, but that a section of ARCHITECTURE.md on adding
/// one need not mention, each with the reason for this exception.
const OTHER_LISTS: [(&str, &str); 6] = [
    ("bench/src/targets/found.rs", "names the memory of processes"),
    ("bench/src/targets/render.rs", "names the memory of processes"),
    ("translate/src/kube_proxy.rs", "names the modes of kube-proxy"),
    ("lab/tests/rows/mod.rs", "describes features in sentences"),
    ("lab/tests/tidy/recipes.rs", "is this test"),
    ("bench/src/soak/render.rs", "describes one topology in a sentence"),
];

/// Section of ARCHITECTURE.md that names the files to change for one sort of addition.
struct Recipe {
    /// Sort of addition, as the section names it: `proxy mode`, `kind`, `store` or `source`.
    name: &'static str,
    /// Names of the existing modes, kinds, stores or sources in each spelling. A file enumerates them if it
    /// contains all names of a spelling.
    spellings: Vec<Spelling>,
    /// Placeholder in the file names of the recipe, such as `<mode>`, and the values that replace it.
    placeholder: (&'static str, Vec<String>),
}

/// One way in which files write the names of a set.
enum Spelling {
    /// Whole words of the code, outside of comments.
    Words(Vec<String>),
    /// Names in quotes or backquotes, also in comments.
    Quoted(Vec<String>),
}

impl Spelling {
    /// Returns true if a file contains one of the names.
    fn is_used_in(&self, text: &str) -> bool {
        match self {
            Self::Words(names) => {
                let words = words(text);
                names.iter().any(|name| words.contains(name.as_str()))
            }
            Self::Quoted(names) => names.iter().any(|name| is_quoted_in(name, text)),
        }
    }

    /// Returns true if a file contains all of the names.
    fn is_enumerated_in(&self, text: &str) -> bool {
        match self {
            Self::Words(names) => {
                let words = words(text);
                names.iter().all(|name| words.contains(name.as_str()))
            }
            Self::Quoted(names) => names.iter().all(|name| is_quoted_in(name, text)),
        }
    }
}

fn is_quoted_in(name: &str, text: &str) -> bool {
    ['"', '\'', '`'].iter().any(|quote| text.contains(&format!("{quote}{name}{quote}")))
}

/// Returns the words of the code outside of comments. A type such as `NodeSpec` is replaced by its kind, `Node`.
fn words(text: &str) -> BTreeSet<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words
        .map(|word| TYPE_SUFFIXES.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word))
        .collect()
}

fn recipes() -> [Recipe; 4] {
    let owned = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
    let modes: Vec<_> = ProxyMode::ALL.iter().map(|mode| mode.as_str().to_owned()).collect();
    let kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str().to_owned()).collect();
    let stores = ["memory", "sqlite", "etcd"];
    let adapters = ["files", "docker", "dns", "kubernetes"];
    let variants = |names: &[String]| Spelling::Words(names.iter().map(|name| capitalized(name)).collect());
    [
        Recipe {
            name: "proxy mode",
            spellings: vec![variants(&modes), Spelling::Quoted(modes.clone())],
            placeholder: ("<mode>", modes),
        },
        Recipe {
            name: "kind",
            spellings: vec![Spelling::Words(kinds.clone())],
            placeholder: ("<kind>", kinds.iter().map(|kind| snake_case(kind)).collect()),
        },
        Recipe {
            name: "store",
            spellings: vec![Spelling::Words(owned(&stores)), variants(&owned(&stores))],
            placeholder: ("<store>", owned(&["sqlite", "etcd"])),
        },
        Recipe {
            name: "source",
            spellings: vec![Spelling::Words(owned(&adapters)), variants(&owned(&adapters))],
            placeholder: ("<source>", owned(&adapters)),
        },
    ]
}

fn capitalized(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Returns the files that a recipe names. Placeholders are not replaced.
fn listed(page: &str, name: &str) -> BTreeSet<String> {
    let start = page.find(&format!("\n- **{name}**")).unwrap_or_else(|| panic!("no recipe for a {name}"));
    let rest = &page[start + 1..];
    let end = rest.find("\n- **").or_else(|| rest.find("\n\n")).unwrap_or(rest.len());
    let quoted = rest[..end].split('`').skip(1).step_by(2);
    quoted.filter(|text| text.contains('/') && !text.contains(' ')).map(str::to_owned).collect()
}

/// Returns the paths of a listed file for all values of the placeholder.
fn expanded(file: &str, (placeholder, values): &(&str, Vec<String>)) -> Vec<String> {
    if !file.contains(placeholder) {
        return vec![file.to_owned()];
    }
    values.iter().map(|value| file.replace(placeholder, value)).collect()
}

/// Returns the files with code or settings, by their paths below the root.
fn files() -> Vec<(String, String)> {
    let mut found = sources();
    let mut open: Vec<PathBuf> =
        ["web", "packaging/etc", "store/src", "sync/src"].map(|at| root().join(at)).to_vec();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            let is_text = path.extension().is_some_and(|extension| extension == "js" || extension == "toml");
            if path.is_dir() {
                open.push(path);
            } else if is_text {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let below = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.into_iter().map(|(path, text)| (below(&path), text)).collect()
}

#[test]
fn each_recipe_lists_every_file_that_enumerates_the_existing_ones() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files = files();
    let mut faults = Vec::new();
    for recipe in recipes() {
        let listed = listed(&page, recipe.name);
        let enumerating = files.iter().filter(|(path, text)| {
            !OTHER_LISTS.iter().any(|(other, _)| other == path)
                && recipe.spellings.iter().any(|spelling| spelling.is_enumerated_in(text))
        });
        let mut count = 0;
        for (path, _) in enumerating {
            count += 1;
            let is_listed =
                listed.iter().any(|file| path == file || (file.ends_with('/') && path.starts_with(file)));
            if !is_listed {
                faults.push(format!("the recipe for a {} lacks {path}", recipe.name));
            }
        }
        println!("{}: {count} files enumerate the existing ones", recipe.name);
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn each_file_that_a_recipe_lists_exists_and_names_an_existing_one() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut faults = Vec::new();
    for recipe in recipes() {
        for file in listed(&page, recipe.name) {
            for path in expanded(&file, &recipe.placeholder) {
                let place = root().join(&path);
                if !place.exists() {
                    faults
                        .push(format!("the recipe for a {} lists {path}, which does not exist", recipe.name));
                }
                let is_template = file != path || place.extension().is_none_or(|extension| extension != "rs");
                if is_template {
                    continue;
                }
                let text = fs::read_to_string(&place).unwrap_or_default();
                if !recipe.spellings.iter().any(|spelling| spelling.is_used_in(&text)) {
                    faults.push(format!("the recipe for a {} lists {path}, which names none", recipe.name));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Traits of proxy modes and stores have no default methods, because a default could silently be wrong for
/// the next one.
#[test]
fn the_traits_of_proxy_modes_and_stores_have_no_default_methods() {
    for (file, name) in [("store/src/lib.rs", "Store"), ("node-agent/dataplane/src/lib.rs", "Dataplane")] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let start = text.find(&format!("pub trait {name}: ")).unwrap();
        let body = &text[start..start + text[start..].find("\n}\n").unwrap()];
        assert!(body.contains("fn "), "{file}");
        let defaults = body.lines().skip(1).filter(|line| line.ends_with('{') || line.ends_with("{}"));
        assert_eq!(defaults.collect::<Vec<_>>(), [""; 0], "default methods of {name}");
    }
}

/// The history view of the status page has a filter for each kind of object.
#[test]
fn the_status_page_lists_every_kind() {
    let text = fs::read_to_string(root().join("web/views/history.js")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("const KINDS = [")).unwrap();
    let found: BTreeSet<_> = line.split('\'').skip(1).step_by(2).collect();
    assert_eq!(found, Kind::ALL.iter().map(|kind| kind.as_str()).collect());
}

#[test]
fn an_enumeration_is_found_in_code_and_in_quotes_and_not_in_other_words() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let words = Spelling::Words(names(&["Node", "Service"]));
    assert!(words.is_enumerated_in("match kind { Kind::Node => 1, Spec::Service(_) => 2 }"));
    assert!(words.is_enumerated_in("type A = (NodeSpec, ServiceStatus);"));
    assert!(!words.is_enumerated_in("// Node\nKind::Service => nodes"));
    let quoted = Spelling::Quoted(names(&["ipvs", "nftables"]));
    assert!(quoted.is_enumerated_in("/// `ipvs` or `nftables`"));
    assert!(!quoted.is_enumerated_in("\"ipvs\" nftables"));
}
