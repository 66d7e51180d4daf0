//! The OpenAPI document: each route is registered together with what is said about it, so that neither can be alone.

use std::collections::BTreeMap;

use axum::{
    extract::{RawPathParams, Request},
    handler::Handler,
    middleware::{Next, from_fn},
    routing::MethodRouter,
};
use model::{
    kinds::resource::Kind,
    primitives::{
        name::{Name, Namespace},
        quantity::Revision,
    },
};
use serde_json::json;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        Components, ComponentsBuilder, Content, HttpMethod, InfoBuilder, LicenseBuilder, ObjectBuilder,
        OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response, Schema,
        header::HeaderBuilder,
        path::{OperationBuilder, ParameterBuilder, ParameterIn, Paths},
        request_body::RequestBodyBuilder,
        response::ResponseBuilder,
        schema::Type,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
        tag::TagBuilder,
    },
};
use utoipa_axum::{
    PathItemExt,
    router::{OpenApiRouter, UtoipaMethodRouter},
};

use crate::{
    base::error::{Code, ProblemBody},
    http::{
        params::{MutationQuery, PoolMutationQuery},
        routes::Shared,
    },
    security::{Permission, permission},
};

/// What every answer to a request may be.
const COMMON: [Code; 6] =
    [Code::BadRequest, Code::TooManyRequests, Code::Timeout, Code::Unavailable, Code::Behind, Code::Internal];
/// The scheme of bearer tokens.
const TOKEN: &str = "token";
/// The scheme of agents' certificates.
const CERTIFICATE: &str = "agentCertificate";
/// The scheme of the status page.
const SESSION: &str = "pageSession";
/// The forms of ordinary answers.
pub(crate) const OBJECT_TYPES: [&str; 2] = ["application/json", "application/yaml"];

type Schemas = Vec<(String, RefOr<Schema>)>;

/// What is said about one operation.
pub(crate) struct Doc {
    operation: OperationBuilder,
    schemas: Schemas,
    problems: Vec<Code>,
}

/// The routes of the server. Only [`Guarded`] ones can be added, so each asks for a permission.
pub(crate) struct Routes(OpenApiRouter<Shared>);

/// A path whose operations have permissions, in the form in which the router takes it.
pub(crate) struct Guarded(UtoipaMethodRouter<Shared>);

/// One path with its operations.
pub(crate) struct Route {
    path: String,
    paths: Paths,
    schemas: Schemas,
    methods: MethodRouter<Shared>,
}

impl Doc {
    /// An operation with its id, the tag it is found under, and one sentence.
    pub(crate) fn new(id: impl Into<String>, tag: &str, summary: impl Into<String>) -> Self {
        let operation = OperationBuilder::new().operation_id(Some(id)).tag(tag).summary(Some(summary.into()));
        Self { operation, schemas: Schemas::new(), problems: COMMON.to_vec() }
    }

    /// Adds the parameters of every mutation of a kind.
    pub(crate) fn mutation(self, kind: Kind) -> Self {
        let doc = if kind == Kind::AddressPool {
            self.query::<PoolMutationQuery>()
        } else {
            self.query::<MutationQuery>()
        };
        doc.authored().problems(&[Code::GuardHeld])
    }

    /// Adds the headers that say who asks, and why.
    pub(crate) fn authored(self) -> Self {
        self.header(
            "X-Tidegate-Author",
            "Who asks, as history shows it: at most 260 characters. A claim, not a proof.",
        )
        .header("X-Change-Message", "Why, as history shows it: at most 200 characters.")
    }

    /// Adds what one sentence does not hold.
    pub(crate) fn describe(self, text: impl Into<String>) -> Self {
        Self { operation: self.operation.description(Some(text.into())), ..self }
    }

    /// Adds the path parameter `namespace`.
    pub(crate) fn in_namespace(self) -> Self {
        self.path_parameter("namespace", "The namespace.", Namespace::schema())
    }

    /// Adds a path parameter that is an object's name.
    pub(crate) fn named(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, Name::schema())
    }

    /// Adds a path parameter that is an id.
    pub(crate) fn named_text(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, String::schema())
    }

    /// Adds a path parameter that is the number of a question.
    pub(crate) fn asked(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, u64::schema())
    }

    /// Adds a path parameter that is a revision.
    pub(crate) fn numbered(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, Revision::schema())
    }

    fn path_parameter(self, name: &str, description: &str, schema: RefOr<Schema>) -> Self {
        let parameter =
            ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let parameter = parameter.description(Some(description)).schema(Some(schema));
        Self { operation: self.operation.parameter(parameter), ..self }
    }

    /// Adds query parameters.
    pub(crate) fn query<T: IntoParams>(self) -> Self {
        let parameters = T::into_params(|| Some(ParameterIn::Query));
        Self { operation: parameters.into_iter().fold(self.operation, OperationBuilder::parameter), ..self }
    }

    /// Adds a request header.
    pub(crate) fn header(self, name: &str, description: &str) -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::String).max_length(Some(1024));
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
        let parameter =
            parameter.required(Required::False).description(Some(description)).schema(Some(schema));
        Self { operation: self.operation.parameter(parameter), ..self }
    }

    /// Says what the body is.
    pub(crate) fn body<T: ToSchema>(mut self, types: &[&str], description: &str) -> Self {
        let schema = self.reference::<T>();
        let body = RequestBodyBuilder::new().description(Some(description)).required(Some(Required::True));
        let body =
            types.iter().fold(body, |body, name| body.content(*name, Content::new(Some(schema.clone()))));
        let operation = self.operation.request_body(Some(body.build()));
        Self { operation, ..self }.problems(&[
            Code::TooDeep,
            Code::PayloadTooLarge,
            Code::UnsupportedMediaType,
        ])
    }

    /// Says what an answer with a body is.
    pub(crate) fn answer<T: ToSchema>(
        mut self,
        status: u16,
        description: &str,
        types: &[&str],
        headers: &[(&str, &str)],
    ) -> Self {
        let schema = self.reference::<T>();
        let response = ResponseBuilder::new().description(description);
        let response = types
            .iter()
            .fold(response, |response, name| response.content(*name, Content::new(Some(schema.clone()))));
        Self {
            operation: self.operation.response(status.to_string(), with_headers(response, headers)),
            ..self
        }
    }

    /// Says what a textual answer is.
    pub(crate) fn text(self, status: u16, description: &str, content_type: &str) -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::String);
        let response = ResponseBuilder::new().description(description);
        let response =
            response.content(content_type, Content::new(Some(RefOr::T(Schema::from(schema.build())))));
        Self { operation: self.operation.response(status.to_string(), with_headers(response, &[])), ..self }
    }

    /// Says that an answer has no body.
    pub(crate) fn empty(self, status: u16, description: &str) -> Self {
        let response = ResponseBuilder::new().description(description);
        Self { operation: self.operation.response(status.to_string(), with_headers(response, &[])), ..self }
    }

    /// Adds problems beyond those of every request.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend(codes);
        self
    }

    /// Says what is asked of whoever calls it.
    fn asking(self, asks: Permission) -> Self {
        let extension = BTreeMap::from([("x-permission".to_owned(), asks.to_json())]);
        let operation = self.operation.extensions(Some(extension.into_iter().collect()));
        let (schemes, codes): (&[&str], &[Code]) = match asks {
            Permission::Open => (&[], &[]),
            Permission::Known => (&[TOKEN, CERTIFICATE, SESSION], &[Code::Unauthenticated]),
            Permission::On(..) | Permission::Each(..) => {
                (&[TOKEN, CERTIFICATE, SESSION], &[Code::Unauthenticated, Code::Forbidden])
            }
            Permission::Agent | Permission::OwnNode => {
                (&[CERTIFICATE], &[Code::Unauthenticated, Code::Forbidden])
            }
        };
        let none: [&str; 0] = [];
        let operation = schemes
            .iter()
            .fold(operation, |operation, name| operation.security(SecurityRequirement::new(*name, none)));
        Self { operation, ..self }.problems(codes)
    }

    fn reference<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        RefOr::Ref(Ref::from_schema_name(T::name()))
    }

    fn finish(mut self) -> (OperationBuilder, Schemas) {
        let schema = self.reference::<ProblemBody>();
        self.problems.sort_by_key(|code| (code.status().as_u16(), *code));
        self.problems.dedup();
        let groups = self.problems.chunk_by(|a, b| a.status() == b.status());
        let operation = self.operation.response("414", too_long());
        let operation = groups.fold(operation, |operation, codes| {
            let status = codes[0].status();
            let lines: Vec<_> = codes.iter().map(|code| format!("`{code:?}`: {}.", code.title())).collect();
            let response = ResponseBuilder::new().description(lines.join(" "));
            let response = response.content("application/problem+json", Content::new(Some(schema.clone())));
            let retry: &[_] = if status.as_u16() == 429 || status.as_u16() == 503 {
                &[("Retry-After", "When to try again, in seconds.")]
            } else {
                &[]
            };
            operation.response(status.as_u16().to_string(), with_headers(response, retry))
        });
        (operation, self.schemas)
    }
}

/// What the HTTP layer itself answers, before a request has an id.
fn too_long() -> Response {
    let description = "The request's path and query are longer than the server reads. There is no body.";
    ResponseBuilder::new().description(description).build()
}

fn with_headers(response: ResponseBuilder, headers: &[(&str, &str)]) -> Response {
    let all = [("X-Request-Id", "The id of the request, as in the log.")];
    let text = || ObjectBuilder::new().schema_type(Type::String);
    all.iter()
        .chain(headers)
        .fold(response, |response, (name, description)| {
            let header = HeaderBuilder::new().schema(Some(text())).description(Some(*description));
            response.header(*name, header.build())
        })
        .build()
}

impl Route {
    /// A path without operations.
    pub(crate) fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), paths: Paths::new(), schemas: Schemas::new(), methods: MethodRouter::new() }
    }

    /// Adds an operation with what it asks of whoever calls it, which is looked at before anything of the request is read.
    pub(crate) fn on<H, T>(mut self, method: HttpMethod, asks: Permission, doc: Doc, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        let doc = if is_safe(&method) { doc } else { doc.problems(&[Code::CrossSite, Code::ReadOnly]) };
        let (operation, schemas) = doc.asking(asks).finish();
        let filter = method.to_method_filter();
        self.paths.add_path_operation(&self.path, vec![method], operation.build());
        self.schemas.extend(schemas);
        let guard = from_fn(move |path: RawPathParams, request: Request, next: Next| {
            permission::guard(asks, path, request, next)
        });
        self.methods = self.methods.on(filter, handler.layer(guard));
        self
    }

    /// The form in which the router takes it.
    pub(crate) fn done(self) -> Guarded {
        Guarded((self.schemas, self.paths, self.methods))
    }
}

/// Whether an operation changes nothing, by its method (RFC 9110, 9.2.1).
fn is_safe(method: &HttpMethod) -> bool {
    match method {
        HttpMethod::Get | HttpMethod::Head | HttpMethod::Options | HttpMethod::Trace => true,
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Delete | HttpMethod::Patch => false,
    }
}

impl Routes {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self(OpenApiRouter::with_openapi(base()))
    }

    /// Adds a path.
    pub(crate) fn routes(self, Guarded(path): Guarded) -> Self {
        Self(self.0.routes(path))
    }

    /// What serves them, and what is said about them.
    pub(crate) fn split(self) -> (axum::Router<Shared>, OpenApi) {
        self.0.split_for_parts()
    }
}

/// The document without its paths.
pub(crate) fn base() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Tidegate")
        .version("v1")
        .description(Some(
            "The control API of Tidegate. Writes answer with a revision; what the nodes have done about it is in \
             `status`. Errors are `application/problem+json` and name every field that must change. Of several control \
             servers on one store each answers reads from what it has seen, which may be a moment behind the others; what it \
             has shown it never goes back behind. A request with the header `X-Tidegate-Min-Position`, a position or a \
             revision that another one has answered, is served when this one has seen it too, and after 5 seconds \
             refused as `Behind`. Writes are decided on the newest state at each of them.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()));
    let tag =
        |name: &str, description: &str| TagBuilder::new().name(name).description(Some(description)).build();
    OpenApiBuilder::new()
        .info(info)
        .tags(Some([
            tag("Service", "A stable address in front of endpoints."),
            tag("EndpointSet", "Endpoints given by hand or by an adapter."),
            tag("Workload", "Anything with an address; what a Service's selector picks."),
            tag("Node", "A machine with an agent."),
            tag("BGP", "Sessions of nodes with routers, what the routers were told, and what happened."),
            tag("Cluster", "Many objects at once, changes as they happen, and how it is going."),
            tag("Agent", "What agents use."),
            tag("Security", "Tokens, roles, and who one is."),
            tag("Server", "This server itself."),
        ]))
        .components(Some(schemes()))
        .build()
}

/// The ways to prove who one is, when the server asks for it.
fn schemes() -> Components {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token, made by `POST /v1/tokens`."))
        .build();
    let certificate = SecurityScheme::MutualTls {
        description: Some("The certificate of an agent, which names its node.".to_owned()),
        deprecated: None,
        extensions: None,
    };
    let session = ApiKeyValue::with_description(
        "tidegate-session",
        "The session of the status page, begun by `POST /v1/session`; `__Host-tidegate-session` where TLS is spoken. A request \
         that may change something needs the header `X-Tidegate-Page: 1` besides.",
    );
    ComponentsBuilder::new()
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(session)))
        .security_scheme(TOKEN, SecurityScheme::Http(token))
        .security_scheme(CERTIFICATE, certificate)
        .build()
}

/// The document as it is served and checked in.
///
/// # Panics
/// Never: the document has string keys only.
#[must_use]
pub fn document() -> String {
    let (_, document) = crate::http::routes::router().split();
    let mut json = serde_json::to_value(&document).expect("the document serialises");
    json["jsonSchemaDialect"] = json!("https://spec.openapis.org/oas/3.1/dialect/base");
    let mut text = serde_json::to_string_pretty(&json).expect("JSON serialises");
    text.push('\n');
    text
}
