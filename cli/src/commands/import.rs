//! `import`: converts configuration of other systems to objects, prints or applies these, and reports for each
//! setting if it was converted.

use super::{apply, document};
use crate::{
    args::{Document, Import},
    client::{Client, Request, shell_quoted},
    error::{ExitCode, Failure},
    import::{ImportResult, import},
    manifest::Manifest,
    output::Terminal,
    parse::Language,
};

/// Comment line above the agent settings, which are printed as a configuration file because they are not
/// objects.
const SETTINGS: &str = "# Settings of agents, for the file behind `tidegate-agent --config`";

pub(crate) async fn run(
    client: &Client,
    arguments: Import,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let imported = read(client, &arguments).await?;
    terminal.note(imported.report.text().trim_end());
    let settings = settings(&imported);
    if imported.objects.is_empty() {
        return only_settings(arguments, &settings, terminal);
    }
    if !settings.is_empty() {
        terminal.note(settings.trim_end());
    }
    let documents: Vec<String> =
        imported.objects.iter().map(|object| document(object, Document::Yaml)).collect();
    let yaml = documents.join("---\n");
    if !arguments.apply {
        terminal.print(&yaml)?;
        return Ok(ExitCode::Success);
    }
    let request = Request::post("/v1/apply")
        .body(Language::Yaml.media_type(), yaml)
        .label(curl_data(&arguments))
        .query("dryRun", arguments.dry_run.then_some("true"))
        .message(arguments.message.clone());
    let names = imported.objects.iter().map(crate::views::render::object_name).collect();
    let answer = client.send(request).await.map_err(|failure| failure.with_items(names))?;
    apply::print_outcomes(&answer, arguments.dry_run, terminal)?;
    Ok(ExitCode::Success)
}

async fn read(client: &Client, arguments: &Import) -> Result<ImportResult, Failure> {
    let mut sources = Vec::new();
    for path in &arguments.files {
        sources.extend(Manifest::load(path, client.timeout()).await?.into_sources());
    }
    let (paths, sources): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
    import(&sources, arguments.from).map_err(|(number, cause)| {
        let path = paths.get(number).cloned().unwrap_or_default();
        Failure::File { path, cause }
    })
}

/// Renders the agent settings as a configuration file.
fn settings(imported: &ImportResult) -> String {
    if imported.agent_settings.is_empty() {
        return String::new();
    }
    let lines = imported.agent_settings.iter().map(|(setting, value)| format!("{setting} = {value}\n"));
    format!("{SETTINGS}\n{}", lines.collect::<String>())
}

/// Handles an import whose input contains no objects: prints the agent settings as a configuration file.
/// Returns an error if there are no settings either, or with `--apply`, because settings are not objects.
fn only_settings(arguments: Import, settings: &str, terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let path = arguments.files.into_iter().next().unwrap_or_default();
    if settings.is_empty() {
        return Err(Failure::File { path, cause: "nothing in it can be imported".to_owned() });
    }
    if arguments.apply {
        let cause = "the file contains agent settings only: import it without --apply and pass the \
                     output to `tidegate-agent --config`";
        return Err(Failure::File { path, cause: cause.to_owned() });
    }
    terminal.print(settings)?;
    Ok(ExitCode::Success)
}

fn curl_data(arguments: &Import) -> String {
    let from = arguments.from.map(|format| format!("--from {format} ")).unwrap_or_default();
    let files: Vec<String> =
        arguments.files.iter().map(|path| shell_quoted(&path.display().to_string())).collect();
    format!("@<(tidegate import {from}{})", files.join(" "))
}
