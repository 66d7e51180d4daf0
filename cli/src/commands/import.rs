//! `import`: prints or applies what was translated, and says what became of every setting.

use super::{apply, document};
use crate::{
    args::{Document, Import},
    client::{Client, Request, shell_quoted},
    error::{ExitCode, Failure},
    import::translate,
    manifest::Manifest,
    output::Terminal,
    parse::Language,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Import,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let mut sources = Vec::new();
    for path in &arguments.files {
        sources.extend(Manifest::read(path)?.into_documents()?);
    }
    let imported = translate(&sources);
    terminal.note(imported.report.text().trim_end());
    if imported.objects.is_empty() {
        let path = arguments.files.into_iter().next().unwrap_or_default();
        return Err(Failure::File { path, cause: "nothing in it can be imported".to_owned() });
    }
    let documents: Vec<String> =
        imported.objects.iter().map(|object| document(object, Document::Yaml)).collect();
    let yaml = documents.join("---\n");
    if !arguments.apply {
        terminal.print(&yaml)?;
        return Ok(ExitCode::Success);
    }
    let files: Vec<String> =
        arguments.files.iter().map(|path| shell_quoted(&path.display().to_string())).collect();
    let curl_data = format!("@<(tidegate import {})", files.join(" "));
    let request = Request::post("/v1/apply", Language::Yaml, yaml.into_bytes(), curl_data)
        .query("dryRun", arguments.dry_run.then_some("true"))
        .because(arguments.message.as_ref());
    let names = imported.objects.iter().map(crate::render::object_name).collect();
    let answer = client.send(request).await.map_err(|failure| failure.with_items(names))?;
    apply::print_outcomes(&answer, arguments.dry_run, terminal)?;
    Ok(ExitCode::Success)
}
