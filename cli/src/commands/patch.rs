//! `patch`: changes single fields of an object by a JSON merge patch.

use serde_json::Value;
use translate::parse::{self, Language};

use super::get::{object_path, parse_located};
use crate::{
    args::patch::Patch,
    client::{Client, Request},
    error::{ExitCode, Failure},
    manifest::Manifest,
    output::Terminal,
    resource::{Resource, Target},
    views::render::outcome,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Patch,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let (resource, name) = one_object(&arguments.target, arguments.name.as_deref())?;
    let (namespace, name) = parse_located(resource, name, &arguments.namespace)?;
    let body = merge_patch(&arguments)?;
    let request = Request::patch(object_path(resource, &namespace, &name))
        .body("application/merge-patch+json", body.to_string())
        .query("dryRun", arguments.dry_run.then_some("true"))
        .query("confirm", arguments.because.confirm.then_some("true"))
        .message(arguments.because.message);
    let object = client.send(request).await?;
    terminal.print(&outcome(&object, "patched", arguments.dry_run, terminal.style))?;
    Ok(ExitCode::Success)
}

/// Returns the kind and the name of the only object that a command names, as `KIND NAME` or `KIND/NAME`.
pub(super) fn one_object<'a>(
    target: &'a Target,
    name: Option<&'a str>,
) -> Result<(Resource, &'a str), Failure> {
    let [resource @ Resource::Object(_)] = target.resources[..] else {
        return Err(Failure::usage("only one stored object can be changed", "write KIND/NAME"));
    };
    match (target.name.as_deref(), name) {
        (Some(name), None) | (None, Some(name)) => Ok((resource, name)),
        (Some(_), Some(_)) => Err(Failure::usage("only one object can be given", "write KIND/NAME")),
        (None, None) => {
            let word = resource.singular();
            Err(Failure::usage(format!("which {word}?"), format!("the name of the {word} is missing")))
        }
    }
}

/// Reads the patch, which is one JSON or YAML object.
fn merge_patch(arguments: &Patch) -> Result<Value, Failure> {
    let is_list = |text: &String| text.trim_start().starts_with(['[', '-']);
    if arguments.patch.as_ref().is_some_and(is_list) {
        return Err(Failure::usage("the patch is a list", HINT));
    }
    let mut objects = match (&arguments.patch, &arguments.patch_file) {
        (Some(text), _) => parse::objects(Language::detect("", text.as_bytes()), text.as_bytes())
            .map_err(|error| Failure::usage(format!("--patch is {error}"), HINT))?,
        (None, Some(path)) => Manifest::read(path)?.into_objects()?,
        (None, None) => Vec::new(),
    };
    match (objects.pop(), objects.is_empty()) {
        (Some(patch @ Value::Object(_)), true) => Ok(patch),
        (_, _) => Err(Failure::usage("the patch must be one object with the fields to change", HINT)),
    }
}

const HINT: &str = "write it as in -p '{\"spec\":{\"sessionAffinity\":\"ClientIP\"}}'; lists of JSON patch operations are not \
                    supported";
