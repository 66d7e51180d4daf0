//! Routes of the objects of one kind: list, create, read, replace, patch, delete. The differences between kinds
//! are defined in `model`.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, header};
use model::{
    admission::{
        admit::{self, Operation},
        decode::{Expect, decode},
    },
    kinds::resource::{Kind, Object, ObjectKey},
};
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        etag::{self, IfMatch},
        negotiate::{form, render},
    },
    http::{
        body,
        mutation::{self as mutate, WriteOptions},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, CollectionPath, ListQuery, NoQuery, ObjectPath, PoolMutationQuery},
        patch::{self, not_found},
        schema,
    },
    security::{Access, Caller, Verb, each, on},
    state::{
        idempotency::{self, KeyedRequest},
        paging::{Page, take_page},
    },
};

pub(super) const ETAG: (&str, &str) = ("ETag", "Entity tag of metadata and spec, to be sent as `If-Match`.");
pub(super) const REVISION: (&str, &str) = ("X-Revision", "Revision of the state that includes the write.");
pub(super) const DRY_RUN: (&str, &str) = ("X-Dry-Run", "`true` for a dry run.");
const LOCATION: (&str, &str) = ("Location", "Path of the created object.");

/// Registers the list, create, read, replace, patch and delete routes of a kind.
pub(super) fn add(router: Routes, kind: Kind) -> Routes {
    match kind {
        Kind::Service => add_kind::<schema::Service, schema::ServiceList>(router, kind),
        Kind::EndpointSet => add_kind::<schema::EndpointSet, schema::EndpointSetList>(router, kind),
        Kind::Workload => add_kind::<schema::Workload, schema::WorkloadList>(router, kind),
        Kind::Node => add_kind::<schema::Node, schema::NodeList>(router, kind),
        Kind::AddressPool => add_kind::<schema::AddressPool, schema::AddressPoolList>(router, kind),
        Kind::BfdProfile => add_kind::<schema::BfdProfile, schema::BfdProfileList>(router, kind),
        Kind::BgpPeer => add_kind::<schema::BgpPeer, schema::BgpPeerList>(router, kind),
        Kind::Advertisement => add_kind::<schema::Advertisement, schema::AdvertisementList>(router, kind),
        Kind::DnsZone => add_kind::<schema::DnsZone, schema::DnsZoneList>(router, kind),
        Kind::Certificate => add_kind::<schema::Certificate, schema::CertificateList>(router, kind),
        Kind::Gateway => add_kind::<schema::Gateway, schema::GatewayList>(router, kind),
        Kind::HttpRoute => add_kind::<schema::HttpRoute, schema::HttpRouteList>(router, kind),
        Kind::TlsRoute => add_kind::<schema::TlsRoute, schema::TlsRouteList>(router, kind),
        Kind::WorkloadNetwork => {
            add_kind::<schema::WorkloadNetwork, schema::WorkloadNetworkList>(router, kind)
        }
        Kind::NetworkPolicy => add_kind::<schema::NetworkPolicy, schema::NetworkPolicyList>(router, kind),
        Kind::Address => super::addresses::add(router),
        Kind::EndpointHealth => {
            add_records::<schema::EndpointHealth, schema::EndpointHealthList>(router, kind)
        }
        Kind::Block => add_records::<schema::Block, schema::BlockList>(router, kind),
        Kind::Attachment => add_records::<schema::Attachment, schema::AttachmentList>(router, kind),
    }
}

fn add_kind<O: utoipa::ToSchema, L: utoipa::ToSchema>(router: Routes, kind: Kind) -> Routes {
    let prefix = if kind.is_namespaced() { "/v1/namespaces/{namespace}" } else { "/v1" };
    let path = format!("{prefix}/{}", kind.plural());
    let router = router.routes(collection::<O, L>(&path, kind).done()).routes(one::<O>(&path, kind).done());
    if kind.is_namespaced() { router.routes(everywhere::<L>(kind).done()) } else { router }
}

/// Registers the list and read routes of a kind whose objects only the server writes.
fn add_records<O: utoipa::ToSchema, L: utoipa::ToSchema>(router: Routes, kind: Kind) -> Routes {
    let prefix = if kind.is_namespaced() { "/v1/namespaces/{namespace}" } else { "/v1" };
    let path = format!("{prefix}/{}", kind.plural());
    let all = Route::at(&path).on(
        HttpMethod::Get,
        on(Verb::List, kind),
        list_doc::<L>(kind, &format!("list{kind}s"), format!("List {kind} records")),
        move |State(app): State<Shared>,
              caller: Caller,
              ApiPath(path),
              ApiQuery(query),
              headers: HeaderMap| async move { list(app, caller, kind, path, query, headers).await },
    );
    let one = Route::at(format!("{path}/{{name}}")).on(
        HttpMethod::Get,
        on(Verb::Get, kind),
        read_doc::<O>(kind),
        move |State(app): State<Shared>, ApiPath(path), ApiQuery(query), headers: HeaderMap| async move {
            read(app, kind, path, query, headers)
        },
    );
    let router = router.routes(all.done()).routes(one.done());
    if kind.is_namespaced() { router.routes(everywhere::<L>(kind).done()) } else { router }
}

fn collection<O: utoipa::ToSchema, L: utoipa::ToSchema>(path: &str, kind: Kind) -> Route {
    Route::at(path)
        .on(
            HttpMethod::Get,
            on(Verb::List, kind),
            list_doc::<L>(kind, &format!("list{kind}s"), format!("List {kind}s")),
            move |State(app): State<Shared>,
                  caller: Caller,
                  ApiPath(path),
                  ApiQuery(query),
                  headers: HeaderMap| async move {
                list(app, caller, kind, path, query, headers).await
            },
        )
        .on(
            HttpMethod::Post,
            on(Verb::Create, kind),
            create_doc::<O>(kind),
            move |State(app): State<Shared>,
                  caller: Caller,
                  ApiPath(path),
                  ApiQuery(query),
                  request: Request| { create(app, caller, kind, path, query, request) },
        )
}

fn one<O: utoipa::ToSchema>(path: &str, kind: Kind) -> Route {
    Route::at(format!("{path}/{{name}}"))
        .on(
            HttpMethod::Get,
            on(Verb::Get, kind),
            read_doc::<O>(kind),
            move |State(app): State<Shared>, ApiPath(path), ApiQuery(query), headers: HeaderMap| async move {
                read(app, kind, path, query, headers)
            },
        )
        .on(
            HttpMethod::Put,
            on(Verb::Update, kind),
            replace_doc::<O>(kind),
            move |State(app): State<Shared>,
                  caller: Caller,
                  ApiPath(path),
                  ApiQuery(query),
                  request: Request| { replace(app, caller, kind, path, query, request) },
        )
        .on(
            HttpMethod::Patch,
            on(Verb::Update, kind),
            patch_doc::<O>(kind),
            move |State(app): State<Shared>,
                  caller: Caller,
                  ApiPath(path),
                  ApiQuery(query),
                  request: Request| { change(app, caller, kind, path, query, request) },
        )
        .on(
            HttpMethod::Delete,
            on(Verb::Delete, kind),
            delete_doc::<O>(kind),
            move |State(app): State<Shared>,
                  caller: Caller,
                  ApiPath(path),
                  ApiQuery(query),
                  headers: HeaderMap| { delete(app, caller, kind, path, query, headers) },
        )
}

fn everywhere<L: utoipa::ToSchema>(kind: Kind) -> Route {
    let doc =
        Doc::new(format!("list{kind}sEverywhere"), kind.as_str(), format!("List {kind}s of all namespaces"));
    let doc = doc
        .describe(listing(kind, "all namespaces"))
        .query::<ListQuery>()
        .answer::<L>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::PageExpired]);
    Route::at(format!("/v1/{}", kind.plural())).on(
        HttpMethod::Get,
        each(Verb::List, kind),
        doc,
        move |State(app): State<Shared>, caller: Caller, ApiQuery(query), headers: HeaderMap| async move {
            list(app, caller, kind, CollectionPath { namespace: None }, query, headers).await
        },
    )
}

fn doc(kind: Kind, id: String, summary: String) -> Doc {
    let doc = Doc::new(id, kind.as_str(), summary).problems(&[Code::NotAcceptable]);
    if kind.is_namespaced() { doc.in_namespace() } else { doc }
}

/// Returns the OpenAPI description of the operation that lists objects of a kind. `scope` is part of the
/// text, for example `one namespace`.
fn listing(kind: Kind, scope: &str) -> String {
    format!(
        "Returns the {kind} objects of {scope} with their status, ordered by namespace and name. \
             Long listings have several pages."
    )
}

fn list_doc<L: utoipa::ToSchema>(kind: Kind, id: &str, summary: String) -> Doc {
    let scope = if kind.is_namespaced() { "one namespace" } else { "the cluster" };
    doc(kind, id.to_owned(), summary)
        .describe(listing(kind, scope))
        .query::<ListQuery>()
        .answer::<L>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::PageExpired])
}

fn create_doc<O: utoipa::ToSchema>(kind: Kind) -> Doc {
    doc(kind, format!("create{kind}"), format!("Create a {kind}"))
        .describe(format!(
            "Creates the {kind} and returns it with all defaults and allocated values. Fails with \
             `AlreadyExists` if an object of this name exists."
        ))
        .mutation(kind)
        .header(
            "Idempotency-Key",
            "Idempotency key of the request, 1 to 255 visible ASCII characters. A \
                                    repetition with the same key at the same control server returns the \
                                    first response, for one day.",
        )
        .body::<O>(&OBJECT_TYPES, "Object to create. Fields set by the server may be omitted.")
        .answer::<O>(
            201,
            "Returned if the object was created.",
            &OBJECT_TYPES,
            &[ETAG, LOCATION, REVISION, DRY_RUN],
        )
        .problems(&[Code::AlreadyExists, Code::Conflict, Code::Invalid])
}

fn read_doc<O: utoipa::ToSchema>(kind: Kind) -> Doc {
    doc(kind, format!("read{kind}"), format!("Read a {kind} with its status"))
        .describe(format!("Returns the desired and the observed state of one {kind}."))
        .named("name", "Name of the object.")
        .answer::<O>(200, "Returned with the object.", &OBJECT_TYPES, &[ETAG])
        .problems(&[Code::NotFound])
}

fn replace_doc<O: utoipa::ToSchema>(kind: Kind) -> Doc {
    doc(kind, format!("replace{kind}"), format!("Replace or create a {kind}"))
        .describe(
            "Requires `If-Match`, or `If-None-Match: *` to create the object. Allocated addresses \
                   and ports that the body omits are kept.",
        )
        .named("name", "Name of the object.")
        .mutation(kind)
        .header(
            "If-Match",
            "`ETag` of the state to replace, or `*` for any state. Required unless the object is created.",
        )
        .header("If-None-Match", "`*` to create the object; the request fails if it exists.")
        .body::<O>(&OBJECT_TYPES, "New state of the object.")
        .answer::<O>(
            200,
            "Returned if the object was replaced or is unchanged.",
            &OBJECT_TYPES,
            &[ETAG, REVISION, DRY_RUN],
        )
        .answer::<O>(
            201,
            "Returned if the object was created.",
            &OBJECT_TYPES,
            &[ETAG, LOCATION, REVISION, DRY_RUN],
        )
        .problems(&[Code::NotFound, Code::Conflict, Code::Invalid])
        .problems(&[Code::PreconditionFailed, Code::PreconditionRequired])
}

fn patch_doc<O: utoipa::ToSchema>(kind: Kind) -> Doc {
    doc(kind, format!("patch{kind}"), format!("Patch a {kind} (JSON merge patch)"))
        .describe(format!(
            "Changes the listed fields of the {kind} and keeps all others. Lists are replaced as a \
             whole."
        ))
        .named("name", "Name of the object.")
        .mutation(kind)
        .header("If-Match", "`ETag` of the state to change. Default: any state.")
        .body::<schema::MergePatch>(
            &["application/merge-patch+json", "application/json"],
            "Fields to change (RFC 7396); `null` removes a field.",
        )
        .answer::<O>(
            200,
            "Returned if the object was changed or is unchanged.",
            &OBJECT_TYPES,
            &[ETAG, REVISION, DRY_RUN],
        )
        .problems(&[Code::NotFound, Code::Conflict, Code::Invalid, Code::PreconditionFailed])
}

fn delete_doc<O: utoipa::ToSchema>(kind: Kind) -> Doc {
    // A pool cannot be deleted while Services hold its addresses, nor an object while others refer to it.
    let is_named = matches!(kind, Kind::AddressPool | Kind::BfdProfile | Kind::BgpPeer);
    let refusals: &[Code] = if is_named { &[Code::Invalid] } else { &[] };
    doc(kind, format!("delete{kind}"), format!("Delete a {kind}"))
        .describe(format!("Deletes the {kind} and returns its last state. Allocated values are released."))
        .named("name", "Name of the object.")
        .mutation(kind)
        .header("If-Match", "`ETag` of the state to delete. Default: any state.")
        .answer::<O>(
            200,
            "Returned with the last state of the deleted object.",
            &OBJECT_TYPES,
            &[ETAG, REVISION, DRY_RUN],
        )
        .problems(&[Code::NotFound, Code::PreconditionFailed])
        .problems(refusals)
}

async fn list(
    app: Shared,
    caller: Caller,
    kind: Kind,
    path: CollectionPath,
    query: ListQuery,
    headers: HeaderMap,
) -> Answer {
    list_matching(app, caller, kind, (path, query), headers, (String::new(), |_| true)).await
}

/// Lists the objects that match the query and an additional filter. The filter consists of a function and a
/// text; page tokens contain the text, so that a token is valid only with the same filter.
pub(super) async fn list_matching(
    app: Shared,
    caller: Caller,
    kind: Kind,
    query: (CollectionPath, ListQuery),
    headers: HeaderMap,
    (filter, matches): (String, impl Fn(&Object) -> bool + Send + 'static),
) -> Answer {
    let (of, access) = (Arc::clone(&app), Arc::clone(caller.access()));
    app.render(&caller, move || render_page(&of, &access, kind, query, &headers, (&filter, matches))).await
}

fn render_page(
    app: &Shared,
    access: &Access,
    kind: Kind,
    (path, query): (CollectionPath, ListQuery),
    headers: &HeaderMap,
    (filter, matches): (&str, impl Fn(&Object) -> bool),
) -> Answer {
    let form = form(headers)?;
    let (limit, selector) = (query.limit()?, query.selector()?);
    let now = app.source.now();
    let identity = (kind, &path.namespace, format!("{selector}{filter}"));
    let resume = app.pages.resume(app.hub.load(), query.continue_token.as_deref(), &identity, now)?;
    let after = resume.after.as_deref().map(|text| {
        ObjectKey::parse_store_key(text).ok_or_else(|| Problem::bad_request("`continue` has no valid key"))
    });
    let after = after.transpose()?;
    let view = app.view_of(Arc::clone(&resume.published));
    let renderer = view.renderer();
    let listed = resume.published.snapshot.list(kind, path.namespace.as_ref(), after.as_ref());
    let is_seen = |object: &Object| access.may_object(Verb::List, kind, object.metadata.namespace.as_ref());
    let mut rest = listed
        .filter(|object| is_seen(object) && selector.matches(&object.metadata.labels) && matches(object))
        .peekable();
    let (items, last) = take_page(&mut rest, limit, |object| renderer.object(object));
    let beyond = rest.peek().is_some();
    let page = Page {
        items,
        more_after: last.filter(|_| beyond).map(|object| object.key().to_store_key()),
        remaining: (beyond && selector.is_empty() && filter.is_empty()).then(|| rest.count()),
    };
    let envelope = app.pages.envelope(&format!("{kind}List"), &resume.published, page, &identity, now);
    Ok(render(form, &envelope))
}

async fn create(
    app: Shared,
    caller: Caller,
    kind: Kind,
    path: CollectionPath,
    query: PoolMutationQuery,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let target = request.uri().to_string();
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let serve = async {
        let expect = Expect { kind: Some(kind), namespace: path.namespace, name: None };
        let object = decode(&value, &expect).map_err(Problem::invalid)?;
        let manner = query.manner(kind, form, bytes.len())?;
        let written = mutate::write(&app, &caller, alone(Operation::Create(object)), manner).await?;
        mutate::answer_object(&app, manner, StatusCode::CREATED, &written)
    };
    let request =
        KeyedRequest { access: caller.access(), headers: &parts.headers, target: &target, body: &bytes };
    idempotency::once(&app.idempotency, app.source.now(), request, serve).await
}

fn read(app: Shared, kind: Kind, path: ObjectPath, _: NoQuery, headers: HeaderMap) -> Answer {
    let form = form(&headers)?;
    let key = key(kind, path);
    let view = app.view();
    let object = view.published().snapshot.get(&key).ok_or_else(|| not_found(&key))?;
    let mut response = render(form, &view.renderer().object(object)).into_response();
    response.headers_mut().insert(header::ETAG, etag::header_value(&object.metadata));
    Ok(response)
}

async fn replace(
    app: Shared,
    caller: Caller,
    kind: Kind,
    path: ObjectPath,
    query: PoolMutationQuery,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let demand = etag::if_match(&parts.headers)?;
    let create_only = etag::create_only(&parts.headers)?;
    if demand.is_none() && !create_only {
        let detail = "PUT replaces the whole object, so it must name the state to replace";
        return Err(Problem::new(Code::PreconditionRequired, detail).hint(
            "send `If-Match` with the last `ETag` of the object, `If-Match: *` for any state, or \
                   `If-None-Match: *` to create",
        ));
    }
    if demand.is_some() && create_only {
        return Err(Problem::bad_request("`If-Match` and `If-None-Match` exclude each other"));
    }
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let key = key(kind, path);
    let expect = Expect { kind: Some(kind), namespace: key.namespace.clone(), name: Some(key.name.clone()) };
    let object = decode(&value, &expect).map_err(Problem::invalid)?;
    let manner = query.manner(kind, form, bytes.len())?;
    match demand {
        None => create_at(&app, &caller, object, manner).await,
        Some(demand) => {
            let if_revision = current_revision(&app, &key, &demand).await?;
            let written =
                mutate::write(&app, &caller, alone(Operation::Replace { object, if_revision }), manner)
                    .await?;
            mutate::answer_object(&app, manner, StatusCode::OK, &written)
        }
    }
}

async fn create_at(app: &Shared, caller: &Caller, object: Object, manner: WriteOptions) -> Answer {
    let key = object.key();
    match mutate::write(app, caller, alone(Operation::Create(object)), manner).await {
        Ok(written) => mutate::answer_object(app, manner, StatusCode::CREATED, &written),
        Err(problem) if problem.code() == Code::AlreadyExists => {
            let detail = format!("{key} exists, and `If-None-Match: *` requires that it does not");
            Err(Problem::new(Code::PreconditionFailed, detail).hint("replace it with `If-Match`"))
        }
        Err(problem) => Err(problem),
    }
}

async fn change(
    app: Shared,
    caller: Caller,
    kind: Kind,
    path: ObjectPath,
    query: PoolMutationQuery,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let demand = etag::if_match(&parts.headers)?;
    let (bytes, changes) = body::read_patch(&parts.headers, body).await?;
    let manner = query.manner(kind, form, bytes)?;
    patch::patch(&app, &caller, &key(kind, path), &changes, demand.as_ref(), manner).await
}

async fn delete(
    app: Shared,
    caller: Caller,
    kind: Kind,
    path: ObjectPath,
    query: PoolMutationQuery,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let key = key(kind, path);
    let if_revision = match etag::if_match(&headers)? {
        Some(demand) => current_revision(&app, &key, &demand).await?,
        None => None,
    };
    let manner = query.manner(kind, form, 0)?;
    let written = mutate::write(&app, &caller, alone(Operation::Delete { key, if_revision }), manner).await?;
    mutate::answer_object(&app, manner, StatusCode::OK, &written)
}

async fn current_revision(
    app: &Shared,
    key: &ObjectKey,
    demand: &IfMatch,
) -> Result<Option<model::primitives::quantity::Revision>, Problem> {
    app.decide(|published| {
        // A missing object is reported as `NotFound` rather than as a failed precondition.
        let object = published.snapshot.get(key).ok_or_else(|| not_found(key))?;
        etag::required_revision(demand, object)
    })
    .await
}

fn key(kind: Kind, path: ObjectPath) -> ObjectKey {
    ObjectKey { kind, namespace: path.namespace, name: path.name }
}

fn alone(operation: Operation) -> admit::Request {
    admit::Request { operations: vec![operation], ..admit::Request::default() }
}
