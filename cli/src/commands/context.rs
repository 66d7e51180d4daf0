//! `login` and `context`: store connections to control servers as contexts, and choose one of them.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use ::settings::SettingsFile;
use client::{Token, Url};
use model::primitives::name::{Name, Namespace};

use super::{oidc, security::identity_of};
use crate::{
    args::{
        Global,
        context::{Context, Login, current, directory, settings_of, token_of},
        namespace,
    },
    client::{Client, Request},
    connection::Connection,
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::{
        clean,
        table::{Cell, Table},
    },
};

/// Maximum length of a token on stdin, in bytes.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Stores a connection as a context after a request has succeeded with it.
pub(crate) async fn login(
    mut global: Global,
    arguments: Login,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Login { url, name, namespace, token_stdin, oidc: is_oidc, oidc_ca_file } = arguments;
    let name = name.map_or_else(|| name_of(&url), Ok)?;
    let directory = home()?;
    create_directory(&directory.join("contexts"))?;
    let token_file = token_of(&directory, &name);
    global.api = vec![url.clone()];
    let (token, login) = if is_oidc {
        let (token, login) = oidc::log_in(&global, oidc_ca_file, terminal).await?;
        (Some(token), login)
    } else {
        (token(&global, token_stdin)?, None)
    };
    // The token is tried from a file of its own, which replaces that of the context only if it is accepted.
    let tried = token_file.with_extension("new");
    if let Some(token) = &token {
        write_private(&tried, &format!("{token}\n"))?;
        global.token_file = Some(tried.clone());
        global.is_token_file_from_settings = false;
    }
    let identity = identity(&global).await;
    if identity.is_err() {
        let _removed = fs::remove_file(&tried);
    }
    let identity = identity?;
    let has_token = token.is_some();
    if has_token {
        fs::rename(&tried, &token_file).map_err(|error| failed(&token_file, &error))?;
    }
    oidc::store(&token_file, login.as_ref())?;
    let namespace = namespace.map(|namespace| namespace.to_string());
    let namespace = namespace.or_else(|| text_of(&settings_of(&directory, &name), namespace::KEY));
    let text = settings(url.as_str(), &global, has_token.then_some(&token_file), namespace);
    make_current(&directory, &name, &text)?;
    if !has_token && token_file.exists() {
        // That of an earlier login, which nothing names anymore.
        fs::remove_file(&token_file).map_err(|error| failed(&token_file, &error))?;
    }
    terminal.print(&format!("context {name}: {}, as {}\n", clean(url.as_str()), clean(&identity)))?;
    Ok(ExitCode::Success)
}

/// Writes the settings file of a context and makes it the current one.
fn make_current(directory: &Path, name: &Name, text: &str) -> Result<(), Failure> {
    write_private(&settings_of(directory, name), text)?;
    write_private(&directory.join("context"), &format!("{name}\n"))
}

/// Stores a connection with its token as a context, without a request, and makes it the current one. `api` is the URL of
/// the control server.
pub(super) fn store(
    directory: &Path,
    name: &Name,
    api: &str,
    global: &Global,
    token: &str,
) -> Result<(), Failure> {
    create_directory(&directory.join("contexts"))?;
    let token_file = token_of(directory, name);
    write_private(&token_file, &format!("{token}\n"))?;
    make_current(directory, name, &settings(api, global, Some(&token_file), None))
}

/// Deletes a context that exists or not, and the directories if they are empty then. If it is the current one, `previous`
/// becomes the current one.
pub(super) fn remove(directory: &Path, name: &Name, previous: Option<&Name>) -> Result<(), Failure> {
    let token_file = token_of(directory, name);
    let login = [oidc::login_file(&token_file), oidc::lock_file(&token_file)];
    for path in [settings_of(directory, name), token_file].into_iter().chain(login) {
        if path.exists() {
            fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        }
    }
    if current(directory).as_ref() == Some(name) {
        let path = directory.join("context");
        match previous {
            Some(previous) => write_private(&path, &format!("{previous}\n"))?,
            None => fs::remove_file(&path).map_err(|error| failed(&path, &error))?,
        }
    }
    for path in [directory.join("contexts"), directory.to_owned()] {
        // Fails if other files are there.
        let _is_used = fs::remove_dir(path);
    }
    Ok(())
}

pub(crate) fn run(command: &Context, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let directory = home()?;
    let known = |name: &Name| {
        if settings_of(&directory, name).exists() {
            return Ok(());
        }
        Err(Failure::usage(
            format!("there is no context {name}"),
            "`tidegate context list` lists the contexts",
        ))
    };
    match command {
        Context::List => return list(&directory, terminal),
        Context::Use { name, namespace } => {
            known(name)?;
            if let Some(namespace) = namespace {
                set_namespace(&settings_of(&directory, name), namespace)?;
            }
            write_private(&directory.join("context"), &format!("{name}\n"))?;
            let suffix = namespace.as_ref().map(|namespace| format!(", with namespace {namespace}"));
            terminal.print(&format!("context {name} is current{}\n", suffix.unwrap_or_default()))?;
        }
        Context::Delete { name } => {
            known(name)?;
            if current(&directory).as_ref() == Some(name) {
                let _removed = fs::remove_file(directory.join("context"));
            }
            let token_file = token_of(&directory, name);
            for path in [oidc::login_file(&token_file), oidc::lock_file(&token_file), token_file] {
                let _removed = fs::remove_file(path);
            }
            let path = settings_of(&directory, name);
            fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
            terminal.print(&format!("context {name} deleted\n"))?;
        }
    }
    Ok(ExitCode::Success)
}

fn list(directory: &Path, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory.join("contexts")).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_context = path.extension().is_some_and(|extension| extension == "toml");
        let name = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| Name::parse(stem).ok());
        names.extend(name.filter(|_| is_context));
    }
    names.sort();
    if names.is_empty() {
        terminal.note("there is no context; `tidegate login URL` creates one");
        return Ok(ExitCode::Success);
    }
    let current = current(directory);
    let mut table = Table::new(vec!["CURRENT", "NAME", "API", "NAMESPACE"]);
    for name in names {
        let path = settings_of(directory, &name);
        let text = |key| text_of(&path, key).map(|text| clean(&text));
        let mark = if current.as_ref() == Some(&name) { "*" } else { "-" };
        table.push(vec![
            Cell::from(mark),
            Cell::from(name.as_str()),
            Cell::from(text("api").unwrap_or_default()),
            Cell::from(text(namespace::KEY).unwrap_or_else(|| "default".to_owned())),
        ]);
    }
    terminal.print(&table.render(terminal.style))?;
    Ok(ExitCode::Success)
}

/// Returns the text of a key of a settings file; `None` if the file or the key is missing or unusable.
fn text_of(path: &Path, key: &str) -> Option<String> {
    SettingsFile::read(path).ok()?.texts(key).into_iter().next()
}

/// Replaces the namespace in the settings file of a context. The file has no tables, so each key has a line.
fn set_namespace(path: &Path, namespace: &Namespace) -> Result<(), Failure> {
    let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
    let is_other = |line: &&str| {
        line.split_once('=').is_none_or(|(key, _)| key.trim().trim_matches(['"', '\'']) != namespace::KEY)
    };
    let kept: String = text.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    write_private(path, &format!("{kept}{} = \"{namespace}\"\n", namespace::KEY))
}

/// Requests the identity of the caller from the server, to check address, trust and token.
async fn identity(global: &Global) -> Result<String, Failure> {
    let connection = Connection::of(global)?;
    let client = Client::new(connection, global.timeout, None, global.show_request)?;
    let answer = client.send(Request::get("/v1/whoami")).await?;
    Ok(identity_of(&answer))
}

/// Returns the token to store: from stdin, from the file of `--token-file`, or from the environment.
fn token(global: &Global, from_stdin: bool) -> Result<Option<String>, Failure> {
    let text = if from_stdin {
        let mut text = String::new();
        std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
        Some((text, "stdin".to_owned()))
    } else if let Some(path) = &global.token_file {
        let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
        Some((text, path.display().to_string()))
    } else {
        std::env::var("TIDEGATE_TOKEN").ok().map(|text| (text, "TIDEGATE_TOKEN".to_owned()))
    };
    let Some((text, place)) = text.filter(|(text, _)| !text.trim().is_empty()) else { return Ok(None) };
    Token::parse(&text, &place)?;
    Ok(Some(text.trim().to_owned()))
}

/// Returns the contents of the settings file of a context.
fn settings(api: &str, global: &Global, token_file: Option<&PathBuf>, namespace: Option<String>) -> String {
    let url = api.trim_end_matches('/');
    let absolute =
        |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone()).display().to_string();
    let keys = [
        ("api", Some(url.to_owned())),
        ("ca-file", global.ca_file.as_ref().map(absolute)),
        ("ca-hash", global.ca_hash.map(|pin| pin.to_string())),
        ("token-file", token_file.map(absolute)),
        (namespace::KEY, namespace),
    ];
    let line = |(key, value): (&str, Option<String>)| {
        // A basic string of TOML has the escapes of JSON.
        value.map(|value| format!("{key} = {}\n", serde_json::Value::from(value)))
    };
    keys.into_iter().filter_map(line).collect()
}

fn name_of(url: &Url) -> Result<Name, Failure> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).replace(':', "-");
    Name::parse(&host).map_err(|_| Failure::usage("the context has no name", "give one with --name NAME"))
}

/// Returns the configuration directory of the user.
pub(super) fn home() -> Result<PathBuf, Failure> {
    directory().ok_or_else(|| {
        Failure::usage(
            "there is no configuration directory",
            "set HOME or XDG_CONFIG_HOME to an absolute path",
        )
    })
}

fn create_directory(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed(path, &error))
}

/// Writes a file that only the user can read. A reader finds the old or the new contents.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _removed = fs::remove_file(&temporary);
        failed(path, &error)
    })
}

pub(super) fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::File { path: path.to_owned(), cause: error.to_string() }
}
