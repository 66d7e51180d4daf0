//! OpenAPI document. Each route is registered together with its documentation, so that no route lacks it.

mod audience;
mod descriptions;
mod examples;
mod named_variants;

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
        server::Server,
        tag::TagBuilder,
    },
};
use utoipa_axum::{
    PathItemExt,
    router::{OpenApiRouter, UtoipaMethodRouter},
};

use self::audience::{AGENT_TAG, Audience};
use crate::{
    base::error::{Code, ProblemBody},
    http::{
        params::{MutationQuery, PoolMutationQuery},
        routes::Shared,
    },
    security::{Permission, permission},
};

/// Error codes that every operation of the API may return.
const COMMON: [Code; 6] =
    [Code::BadRequest, Code::TooManyRequests, Code::Timeout, Code::Unavailable, Code::Behind, Code::Internal];
/// Name of the security scheme of bearer tokens.
const TOKEN: &str = "token";
/// Name of the security scheme of agent certificates.
const CERTIFICATE: &str = "agentCertificate";
/// Name of the security scheme of sessions of the status page (cookies).
const SESSION: &str = "pageSession";
/// Media types of responses with objects.
pub(crate) const OBJECT_TYPES: [&str; 2] = ["application/json", "application/yaml"];

type Schemas = Vec<(String, RefOr<Schema>)>;

/// Builder for the OpenAPI documentation of one operation.
pub(crate) struct Doc {
    operation: OperationBuilder,
    schemas: Schemas,
    problems: Vec<Code>,
}

/// Routes of the server with their documentation. Only a [`GuardedRoute`] can be added, so each route has a
/// permission.
pub(crate) struct Routes(OpenApiRouter<Shared>);

/// Path whose operations all have permissions, ready to be added to [`Routes`].
pub(crate) struct GuardedRoute(UtoipaMethodRouter<Shared>);

/// Path with its operations and their documentation, while it is being built.
pub(crate) struct Route {
    path: String,
    paths: Paths,
    schemas: Schemas,
    methods: MethodRouter<Shared>,
}

impl Doc {
    /// Creates the documentation of an operation from its id, tag and summary.
    pub(crate) fn new(id: impl Into<String>, tag: &str, summary: impl Into<String>) -> Self {
        let operation = OperationBuilder::new().operation_id(Some(id)).tag(tag).summary(Some(summary.into()));
        Self { operation, schemas: Schemas::new(), problems: COMMON.to_vec() }
    }

    /// Adds the query parameters, headers and error codes that all writes of a kind share.
    pub(crate) fn mutation(self, kind: Kind) -> Self {
        let doc = if kind == Kind::AddressPool {
            self.query::<PoolMutationQuery>()
        } else {
            self.query::<MutationQuery>()
        };
        doc.authored().problems(&[Code::GuardHeld, Code::QuotaExceeded])
    }

    /// Adds the request headers with the author and the reason of a write.
    pub(crate) fn authored(self) -> Self {
        self.header(
            "X-Tidegate-Author",
            "Author of the change for history and audit log, at most 260 characters. A claim of the \
             client: it is not verified.",
        )
        .header(
            "X-Change-Message",
            "Reason of the change for history and audit log, at most 200 \
                                     characters.",
        )
    }

    /// Sets the description of the operation, in Markdown.
    pub(crate) fn describe(self, text: impl Into<String>) -> Self {
        Self { operation: self.operation.description(Some(text.into())), ..self }
    }

    /// Adds the path parameter `namespace`.
    pub(crate) fn in_namespace(self) -> Self {
        self.path_parameter("namespace", "Namespace of the objects.", Namespace::schema())
    }

    /// Adds a path parameter with the given name that holds the name of an object.
    pub(crate) fn named(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, Name::schema())
    }

    /// Adds a path parameter with the given name that holds an id.
    pub(crate) fn named_text(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, String::schema())
    }

    /// Adds a path parameter with the given name that holds the numeric id of a query to an agent.
    pub(crate) fn asked(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, u64::schema())
    }

    /// Adds a path parameter with the given name that holds a revision.
    pub(crate) fn numbered(self, parameter: &str, description: &str) -> Self {
        self.path_parameter(parameter, description, Revision::schema())
    }

    fn path_parameter(self, name: &str, description: &str, schema: RefOr<Schema>) -> Self {
        let parameter =
            ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let parameter = parameter.description(Some(description)).schema(Some(schema));
        Self { operation: self.operation.parameter(parameter), ..self }
    }

    /// Adds the fields of type `T` as query parameters.
    pub(crate) fn query<T: IntoParams>(self) -> Self {
        let parameters = T::into_params(|| Some(ParameterIn::Query));
        Self { operation: parameters.into_iter().fold(self.operation, OperationBuilder::parameter), ..self }
    }

    /// Adds an optional request header.
    pub(crate) fn header(self, name: &str, description: &str) -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::String).max_length(Some(1024));
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
        let parameter =
            parameter.required(Required::False).description(Some(description)).schema(Some(schema));
        Self { operation: self.operation.parameter(parameter), ..self }
    }

    /// Adds a request body of type `T` in the given media types.
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

    /// Adds a response whose body has type `T`.
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

    /// Adds a response whose body has type `T`, or is text of the given content type, by the choice of the client.
    pub(crate) fn answer_or_text<T: ToSchema>(
        mut self,
        status: u16,
        description: &str,
        types: &[&str],
        text_type: &str,
    ) -> Self {
        let schema = self.reference::<T>();
        let text = ObjectBuilder::new().schema_type(Type::String);
        let response = ResponseBuilder::new().description(description);
        let response = response.content(text_type, Content::new(Some(RefOr::T(Schema::from(text.build())))));
        let response = types
            .iter()
            .fold(response, |response, name| response.content(*name, Content::new(Some(schema.clone()))));
        Self { operation: self.operation.response(status.to_string(), with_headers(response, &[])), ..self }
    }

    /// Adds a response whose body is text of the given content type.
    pub(crate) fn text(self, status: u16, description: &str, content_type: &str) -> Self {
        let schema = ObjectBuilder::new().schema_type(Type::String);
        let response = ResponseBuilder::new().description(description);
        let response =
            response.content(content_type, Content::new(Some(RefOr::T(Schema::from(schema.build())))));
        Self { operation: self.operation.response(status.to_string(), with_headers(response, &[])), ..self }
    }

    /// Adds a response that has no body.
    pub(crate) fn empty(self, status: u16, description: &str) -> Self {
        let response = ResponseBuilder::new().description(description);
        Self { operation: self.operation.response(status.to_string(), with_headers(response, &[])), ..self }
    }

    /// Adds a response that redirects a browser (status 303) and may set a cookie.
    pub(crate) fn redirect(self, description: &str) -> Self {
        let headers = [
            ("Location", "Address to which the browser is redirected."),
            ("Set-Cookie", "Cookie of the login or of the session."),
        ];
        let response = ResponseBuilder::new().description(description);
        Self { operation: self.operation.response("303", with_headers(response, &headers)), ..self }
    }

    /// Adds error codes that the operation may return in addition to [`COMMON`].
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend(codes);
        self
    }

    /// Records the required permission as `x-permission`, with the authentication schemes and error codes that
    /// result from it.
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
        // Without a scheme, the empty list states that the operation needs no authentication.
        let operation =
            operation.securities(Some(schemes.iter().map(|name| SecurityRequirement::new(*name, none))));
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
            let lines: Vec<_> =
                codes.iter().map(|code| format!("Problem with code `{code:?}`: {}.", code.title())).collect();
            let response = ResponseBuilder::new().description(lines.join(" "));
            let response = response.content("application/problem+json", Content::new(Some(schema.clone())));
            let retry: &[_] = if status.as_u16() == 429 || status.as_u16() == 503 {
                &[("Retry-After", "Time in seconds after which the client may repeat the request.")]
            } else {
                &[]
            };
            operation.response(status.as_u16().to_string(), with_headers(response, retry))
        });
        (operation, self.schemas)
    }
}

/// Documents the response of the HTTP library to a request whose target is too long (status 414).
fn too_long() -> Response {
    let description = "Returned if path and query of the request are longer than the server accepts. The response \
                       has no body.";
    ResponseBuilder::new().description(description).build()
}

fn with_headers(response: ResponseBuilder, headers: &[(&str, &str)]) -> Response {
    let all = [("X-Request-Id", "Id of the request, as in the log of the server.")];
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
    /// Creates a route for a path, without operations.
    pub(crate) fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), paths: Paths::new(), schemas: Schemas::new(), methods: MethodRouter::new() }
    }

    /// Adds an operation with the permission it requires. The permission is checked before the request is
    /// read.
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

    /// Finishes the route; operations can no longer be added.
    pub(crate) fn done(self) -> GuardedRoute {
        GuardedRoute((self.schemas, self.paths, self.methods))
    }
}

/// Returns true if the HTTP method is safe (RFC 9110, 9.2.1).
fn is_safe(method: &HttpMethod) -> bool {
    match method {
        HttpMethod::Get | HttpMethod::Head | HttpMethod::Options | HttpMethod::Trace => true,
        HttpMethod::Post | HttpMethod::Put | HttpMethod::Delete | HttpMethod::Patch => false,
    }
}

impl Routes {
    /// Creates an empty collection of routes.
    pub(crate) fn new() -> Self {
        Self(OpenApiRouter::with_openapi(base()))
    }

    /// Adds a path to the router and to the OpenAPI document.
    pub(crate) fn routes(self, GuardedRoute(path): GuardedRoute) -> Self {
        Self(self.0.routes(path))
    }

    /// Splits the collection into the router and the OpenAPI document.
    pub(crate) fn split(self) -> (axum::Router<Shared>, OpenApi) {
        self.0.split_for_parts()
    }
}

/// Returns the OpenAPI document without paths: title, version and authentication schemes.
pub(crate) fn base() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Tidegate")
        .version("v1")
        .description(Some(
            "Control API of Tidegate. A write returns the revision that it created; the progress of the \
             nodes is reported in `status`. Errors are `application/problem+json` and list every invalid \
             field. If several control servers share a store, each serves reads from its own replica, \
             which may be a moment behind the others but never goes backwards. A request with the header \
             `X-Tidegate-Min-Position`, set to a position or revision returned by any server, is served \
             after this server has reached it, and fails with `Behind` after 5 seconds. With the value \
             `latest`, the server first confirms its state with the store, so that the read includes \
             every write that any server accepted before the request (a linearizable read). Writes are \
             always decided on the newest state.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()));
    let tag =
        |name: &str, description: &str| TagBuilder::new().name(name).description(Some(description)).build();
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([Server::new("/")]))
        .tags(Some([
            tag("Service", "Stable virtual addresses in front of endpoints."),
            tag("EndpointSet", "Endpoints given by users or adapters."),
            tag("Workload", "Addressable instances that the selector of a Service matches."),
            tag("Node", "Machines with an agent."),
            tag("BGP", "BGP sessions of nodes, their routes and events."),
            tag("Cluster", "Bulk writes, change streams, and the state of the cluster."),
            tag(AGENT_TAG, "Operations of agents."),
            tag("Security", "Tokens, roles, sessions and audit log."),
            tag("Server", "Health and version of this server."),
        ]))
        .components(Some(schemes()))
        .build()
}

/// Returns the authentication schemes: bearer token, client certificate and session cookie.
fn schemes() -> Components {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("Token created by `POST /v1/tokens`."))
        .build();
    let certificate = SecurityScheme::MutualTls {
        description: Some("Certificate of an agent. It names the node of the agent.".to_owned()),
        deprecated: None,
        extensions: None,
    };
    let session = ApiKeyValue::with_description(
        "tidegate-session",
        "Session of the status page, created by `POST /v1/session`; named `__Host-tidegate-session` over \
         TLS. Mutating requests also need the header `X-Tidegate-Page: 1`.",
    );
    ComponentsBuilder::new()
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(session)))
        .security_scheme(TOKEN, SecurityScheme::Http(token))
        .security_scheme(CERTIFICATE, certificate)
        .build()
}

/// Returns the OpenAPI document for users as JSON text: the contents of the file `openapi/tidegate-v1.json`, which
/// `GET /openapi.json` returns.
///
/// # Panics
/// Never panics: the document has string keys only.
#[must_use]
pub fn document() -> String {
    document_for(Audience::Users)
}

/// Returns the OpenAPI document with the operations that only agents use, as JSON text: the contents of the file
/// `openapi/tidegate-agent-v1.json`, which `GET /openapi-agent.json` returns.
///
/// # Panics
/// Never panics: the document has string keys only.
#[must_use]
pub fn agent_document() -> String {
    document_for(Audience::Agents)
}

fn document_for(audience: Audience) -> String {
    let (_, document) = crate::http::routes::router().split();
    let mut json = serde_json::to_value(&document).expect("the document serialises");
    descriptions::complete(&mut json);
    named_variants::name(&mut json);
    examples::add(&mut json);
    audience.select(&mut json);
    if audience == Audience::Agents {
        json["info"]["title"] = json!("Tidegate for agents");
    }
    json["jsonSchemaDialect"] = json!("https://spec.openapis.org/oas/3.1/dialect/base");
    let mut text = serde_json::to_string_pretty(&json).expect("JSON serialises");
    text.push('\n');
    text
}
