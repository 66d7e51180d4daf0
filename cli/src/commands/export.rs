//! `export`: prints objects as Kubernetes or MetalLB manifests and reports settings without an equivalent.

use model::primitives::name::Namespace;
use serde_json::Value;

use super::{document, get::collection_path};
use crate::{
    args::{Document, export::Export},
    client::{Client, Request},
    error::{ExitCode, Failure},
    import::export::export,
    manifest::Manifest,
    output::Terminal,
    resource::Resource,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Export,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let objects =
        if arguments.filename.is_empty() { listed(client, &arguments).await? } else { read(&arguments)? };
    let exported = export(arguments.format, &objects);
    let report = exported.report.text();
    match &arguments.report {
        Some(path) => std::fs::write(path, report)
            .map_err(|error| Failure::File { path: path.clone(), cause: error.to_string() })?,
        None => terminal.note(report.trim_end()),
    }
    let documents: Vec<String> =
        exported.documents.iter().map(|each| document(each, Document::Yaml)).collect();
    terminal.print(&documents.join("---\n"))?;
    Ok(ExitCode::Success)
}

/// Lists the objects of every kind that the export format supports.
async fn listed(client: &Client, arguments: &Export) -> Result<Vec<Value>, Failure> {
    let namespace: Option<&Namespace> = (!arguments.all_namespaces).then_some(&arguments.namespace);
    let mut objects = Vec::new();
    for kind in arguments.format.kinds() {
        let path = collection_path(Resource::Object(*kind), namespace);
        let mut listing = client.list(|| Request::get(path.clone())).await?.envelope;
        if let Some(Value::Array(items)) = listing.get_mut("items").map(Value::take) {
            objects.extend(items);
        }
    }
    Ok(objects)
}

fn read(arguments: &Export) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for path in &arguments.filename {
        objects.extend(Manifest::read(path)?.into_objects()?);
    }
    Ok(objects)
}
