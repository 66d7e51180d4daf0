//! `GET /v1/namespaces/{namespace}/env`: environment variables with the addresses and ports of Services.

use std::collections::BTreeSet;

use axum::{extract::State, response::IntoResponse};
use http::{HeaderMap, HeaderValue, header};
use model::{
    discovery::environment::{ENVIRONMENT_BYTES_MAX, Environment, EnvironmentFilter},
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery},
    },
    security::{Verb, on},
};

/// Media type of the format `dotenv`.
const DOTENV: &str = "text/plain; charset=utf-8";
/// Maximum length of the list of Service names, in characters.
const NAMES_LENGTH_MAX: usize = 4096;

/// Query of the environment variables.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EnvironmentQuery {
    /// Format of the response: `json`, `dotenv` (lines `NAME=VALUE`, also for `docker run --env-file`) or `docker`
    /// (list of `NAME=VALUE`, for the field `Env` of the Docker Engine API). Default: `json`.
    #[serde(default)]
    #[param(inline)]
    format: EnvironmentFormat,
    /// Names of Services, separated by commas. Only their variables are returned. Default: all Services of the
    /// namespace and Service `default/kubernetes`.
    #[param(max_length = 4096, example = "web,db")]
    names: Option<String>,
    /// True if the variables of Docker container links are returned, such as `WEB_PORT_80_TCP_ADDR`. Default: true.
    #[serde(default = "yes")]
    #[param(default = true)]
    links: bool,
    /// True if variables of more than 1 MiB in all are returned instead of refused. Default: false.
    #[serde(default)]
    #[param(default = false)]
    force: bool,
}

/// Format of a response with environment variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EnvironmentFormat {
    /// Variables with the Services that they describe, as JSON or YAML.
    #[default]
    Json,
    /// Lines `NAME=VALUE`.
    Dotenv,
    /// List of texts `NAME=VALUE`, as JSON or YAML.
    Docker,
}

/// Path parameters with a namespace.
#[derive(Debug, Clone, Deserialize)]
struct NamespacePath {
    namespace: Namespace,
}

/// Environment variables of a namespace in one of the formats `json` and `docker`.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum EnvironmentDocument {
    /// Format `json`: variables with the Services that they describe.
    Json(Environment),
    /// Format `docker`: list of texts `NAME=VALUE`.
    Docker(Vec<String>),
}

const fn yes() -> bool {
    true
}

/// Registers the route of the environment variables.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("readEnvironment", "Service", "Read Services as environment variables")
        .describe(
            "The variables are those that kubelet sets in containers: host and ports of each Service with a \
             cluster IP in the namespace and of Service `default/kubernetes`. Linux accepts about 2 MiB of \
             arguments and variables for a new program, and fewer programs than that can cope with it; above \
             1 MiB the response is a problem with code `EnvironmentTooLarge`, unless `force` is true.",
        )
        .in_namespace()
        .query::<EnvironmentQuery>()
        .answer_or_text::<EnvironmentDocument>(
            200,
            "Returned with the variables.",
            &OBJECT_TYPES,
            "text/plain",
        )
        .problems(&[Code::NotAcceptable, Code::EnvironmentTooLarge]);
    router.routes(
        Route::at("/v1/namespaces/{namespace}/env")
            .on(HttpMethod::Get, on(Verb::List, Kind::Service), doc, read)
            .done(),
    )
}

async fn read(
    State(state): State<ReadState>,
    ApiPath(NamespacePath { namespace }): ApiPath<NamespacePath>,
    ApiQuery(EnvironmentQuery { format, names, links, force }): ApiQuery<EnvironmentQuery>,
    headers: HeaderMap,
) -> Answer {
    let names = names.as_deref().map(service_names).transpose()?;
    let view = state.view();
    let filter = EnvironmentFilter { names, links };
    let environment = Environment::of(&view.published().snapshot, &namespace, &filter);
    let size = environment.size();
    if size > ENVIRONMENT_BYTES_MAX && !force {
        return Err(Problem::new(
            Code::EnvironmentTooLarge,
            format!(
                "the variables of namespace `{namespace}` have {size} bytes, more than {ENVIRONMENT_BYTES_MAX}: \
                 select Services with `names`, leave out the variables of links with `links=false`, or send \
                 `force=true`"
            ),
        ));
    }
    match format {
        EnvironmentFormat::Json => Ok(render(form(&headers)?, &EnvironmentDocument::Json(environment))),
        EnvironmentFormat::Docker => {
            Ok(render(form(&headers)?, &EnvironmentDocument::Docker(environment.to_docker())))
        }
        EnvironmentFormat::Dotenv => {
            let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(DOTENV))];
            Ok((content_type, environment.to_dotenv()).into_response())
        }
    }
}

fn service_names(names: &str) -> Result<BTreeSet<Name>, Problem> {
    if names.len() > NAMES_LENGTH_MAX {
        return Err(Problem::bad_request(format!("`names` must have at most {NAMES_LENGTH_MAX} characters")));
    }
    let words = names.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            Name::parse(word).map_err(|error| Problem::bad_request(format!("`names`: `{word}` {error}")))
        })
        .collect()
}
