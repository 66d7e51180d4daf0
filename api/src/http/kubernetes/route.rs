//! Routes of the read-only Kubernetes API. Each route requires a permission. Requests with other methods or paths
//! are rejected, with a message that names the Tidegate command to use.

use axum::{
    Router,
    extract::{RawPathParams, Request},
    handler::Handler,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, any},
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use super::{
    PREFIX,
    catalogue::{Group, Resource},
    discovery,
    list::{self, ServedResource},
    path::Target,
    refusal,
    status::json_answer,
};
use crate::{
    base::error::{Answer, Code, Problem},
    http::routes::Shared,
    security::{
        Permission, Verb,
        permission::{self, Subject},
    },
};

/// Media type of the OpenAPI document requested by `kubectl`. The `@` is not valid in a media type (RFC 9110
/// §8.3.1), so clients that parse the type of the response would reject it.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// Media type of the response if the client requests [`PROTOBUF`].
const BYTES: &str = "application/octet-stream";

/// Router of the Kubernetes API, with the paths and their permissions.
struct KubernetesRoutes {
    router: Router<Shared>,
    asked: Vec<(String, Permission)>,
}

/// Adds the routes of the Kubernetes API to the router of the server.
pub(crate) fn serve(router: Router<Shared>) -> Router<Shared> {
    router.merge(view().router)
}

/// Returns every path that supports GET, with the required permission in the format of `x-permission` of the
/// OpenAPI document.
#[must_use]
pub fn routes() -> Vec<(String, Value)> {
    view().asked.into_iter().map(|(path, asks)| (path, asks.to_json())).collect()
}

fn view() -> KubernetesRoutes {
    let view = KubernetesRoutes { router: Router::new(), asked: Vec::new() };
    let view = Resource::ALL.into_iter().fold(view, |view, resource| {
        resource
            .group()
            .versions()
            .iter()
            .fold(view, |view, version| add(view, ServedResource { resource, version }))
    });
    let KubernetesRoutes { router, asked } = discover(view);
    let rest = || any(unknown.layer(from_fn(known)));
    let router = router.route(PREFIX, rest()).route(&format!("{PREFIX}/{{*rest}}"), rest());
    KubernetesRoutes { router, asked }
}

impl KubernetesRoutes {
    /// Adds a path with the handler of its GET requests and the permission they require. Other methods are
    /// rejected.
    fn on<H, T>(mut self, path: String, asks: Permission, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        let guard = from_fn(move |path: RawPathParams, request: Request, next: Next| {
            permission::guard(asks, path, request, next)
        });
        let methods = MethodRouter::new().on(MethodFilter::GET, handler.layer(guard));
        self.router = self.router.route(&path, methods.fallback(refuse.layer(from_fn(known))));
        self.asked.push((path, asks));
        self
    }
}

/// Middleware that rejects unauthenticated callers. Authenticated callers need no particular permission.
async fn known(path: RawPathParams, request: Request, next: Next) -> Response {
    permission::guard(Permission::Known, path, request, next).await
}

fn add(view: KubernetesRoutes, served: ServedResource) -> KubernetesRoutes {
    let resource = served.resource;
    let root = format!("{PREFIX}{}", resource.group().path(served.version));
    let plural = resource.words().plural;
    let all = move |app, caller, path, query, id, headers| {
        list::collection(served, app, caller, path, query, id, headers)
    };
    let one = move |app, caller, path, query, headers| list::one(served, app, caller, path, query, headers);
    let on = |verb| match resource.of() {
        Some(kind) => Permission::On(verb, Subject::Object(kind)),
        None => Permission::Each(verb, None),
    };
    // Events are namespaced but concern Nodes, which are cluster-scoped: a caller limited to a namespace sees
    // none of them.
    let (place, everywhere) = match (resource, resource.of()) {
        (Resource::Events, _) => ("place", on(Verb::List)),
        (_, Some(kind)) if resource.is_namespaced() => {
            ("namespace", Permission::Each(Verb::List, Some(Subject::Object(kind))))
        }
        _ => ("namespace", on(Verb::List)),
    };
    let view = view.on(format!("{root}/{plural}"), everywhere, all);
    if !resource.is_namespaced() {
        return view.on(format!("{root}/{plural}/{{name}}"), on(Verb::Get), one);
    }
    let inside = format!("{root}/namespaces/{{{place}}}/{plural}");
    view.on(inside.clone(), on(Verb::List), all).on(format!("{inside}/{{name}}"), on(Verb::Get), one)
}

/// Adds the routes of the discovery documents, which contain no data of the cluster.
fn discover(view: KubernetesRoutes) -> KubernetesRoutes {
    let fixed = |value: Value| {
        move || {
            let answer = json_answer(&value);
            async move { answer }
        }
    };
    let mut answers = vec![
        ("/version".to_owned(), discovery::version()),
        ("/api".to_owned(), discovery::core_versions()),
        ("/apis".to_owned(), discovery::groups()),
    ];
    answers.extend(
        Group::NAMED.into_iter().map(|group| (format!("/apis/{}", group.name()), discovery::group(group))),
    );
    for group in [Group::Core].into_iter().chain(Group::NAMED) {
        let versions = group.versions().iter();
        answers.extend(versions.map(|version| (group.path(version), discovery::resources(group, version))));
    }
    let view = answers.into_iter().fold(view, |view, (path, value)| {
        view.on(format!("{PREFIX}{path}"), Permission::Known, fixed(value))
    });
    view.on(format!("{PREFIX}/openapi/v2"), Permission::Known, document)
}

async fn document(headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if !accepted.into_iter().any(|text| text.contains(PROTOBUF)) {
        return json_answer(&discovery::document());
    }
    let mut response = discovery::document_in_protobuf().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(BYTES));
    response
}

/// Rejects a write to a known path, because the Kubernetes API is read-only. The message names the Tidegate
/// command to use.
async fn refuse(request: Request) -> Answer {
    let words = refusal::of_write(request.method(), &Target::of(request.uri().path()));
    Err(Problem::new(Code::MethodNotAllowed, words))
}

/// Rejects a request for an unknown path: a read with status 404, a write with status 405.
async fn unknown(request: Request) -> Answer {
    let target = Target::of(request.uri().path());
    if request.method().is_safe() {
        return Err(Problem::new(Code::NotFound, refusal::of_read(&target)));
    }
    Err(Problem::new(Code::MethodNotAllowed, refusal::of_write(request.method(), &target)))
}
