//! Routes that return the endpoints of Services as computed for the agents: from Workloads and EndpointSets,
//! after health checks and maintenance.

use std::sync::Arc;

use axum::extract::State;
use http::HeaderMap;
use model::{
    cluster::compiled::CompiledService,
    kinds::resource::{Kind, ServiceKey},
    primitives::name::{Name, Namespace},
};
use serde::Deserialize;
use serde_json::json;
use utoipa::openapi::HttpMethod;

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, CollectionPath, NoQuery, PageQuery},
        schema::EndpointsList,
    },
    security::{Access, Caller, Verb, each, on},
    state::paging::{Page, take_page},
};

#[derive(Debug, Clone, Deserialize)]
struct EndpointsPath {
    namespace: Namespace,
    service: Name,
}

/// Registers the routes that return the computed endpoints of Services.
pub(super) fn add(router: Routes) -> Routes {
    let list_doc = |id: &str, summary: &str| {
        Doc::new(id, "Service", summary)
            .describe(
                "Returns the compiled form of Services: addresses, ports and endpoints from Workloads and \
             EndpointSets after health checks and maintenance, ordered by namespace and name.",
            )
            .query::<PageQuery>()
            .answer::<EndpointsList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
            .problems(&[Code::NotAcceptable, Code::PageExpired])
    };
    let everywhere = Route::at("/v1/endpoints").on(
        HttpMethod::Get,
        each(Verb::List, Kind::Service),
        list_doc("listEndpointsEverywhere", "List computed endpoints of all namespaces"),
        |State(app): State<Shared>,
         caller: Caller,
         ApiQuery(query): ApiQuery<PageQuery>,
         headers: HeaderMap| async move { list(app, caller, None, query, headers).await },
    );
    let namespaced = Route::at("/v1/namespaces/{namespace}/endpoints").on(
        HttpMethod::Get,
        on(Verb::List, Kind::Service),
        list_doc("listEndpoints", "List computed endpoints of a namespace").in_namespace(),
        |State(app): State<Shared>,
         caller: Caller,
         ApiPath(path): ApiPath<CollectionPath>,
         ApiQuery(query): ApiQuery<PageQuery>,
         headers: HeaderMap| async move { list(app, caller, path.namespace, query, headers).await },
    );
    let one_doc = Doc::new("readEndpoints", "Service", "Read computed endpoints of one Service")
        .describe(
            "Returns the compiled form of one Service: addresses, ports and endpoints from Workloads \
             and EndpointSets after health checks and maintenance.",
        )
        .in_namespace()
        .named("service", "Name of the Service.")
        .answer::<CompiledService>(
            200,
            "Returned with the endpoints as sent to every agent.",
            &OBJECT_TYPES,
            &[],
        )
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let one = Route::at("/v1/namespaces/{namespace}/endpoints/{service}").on(
        HttpMethod::Get,
        on(Verb::Get, Kind::Service),
        one_doc,
        read,
    );
    router.routes(everywhere.done()).routes(namespaced.done()).routes(one.done())
}

async fn list(
    app: Shared,
    caller: Caller,
    namespace: Option<Namespace>,
    query: PageQuery,
    headers: HeaderMap,
) -> Answer {
    let (of, access) = (Arc::clone(&app), Arc::clone(caller.access()));
    app.render(&caller, move || render_page(&of, &access, namespace, query, &headers)).await
}

fn render_page(
    app: &Shared,
    access: &Access,
    namespace: Option<Namespace>,
    query: PageQuery,
    headers: &HeaderMap,
) -> Answer {
    let form = form(headers)?;
    let limit = query.limit()?;
    let now = app.source.now();
    let identity = ("endpoints", &namespace);
    let resume = app.pages.resume(app.hub.load(), query.continue_token.as_deref(), &identity, now)?;
    let after = resume.after.map(|text| {
        ServiceKey::try_from(text).map_err(|_| Problem::bad_request("`continue` has no valid key"))
    });
    let after = after.transpose()?;
    let wanted = |key: &ServiceKey| {
        namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace)
            && access.may_object(Verb::List, Kind::Service, Some(&key.namespace))
    };
    let rest = resume.published.compiled.after(after.as_ref()).filter(|(key, _)| wanted(key));
    let mut rest = rest.peekable();
    let (items, last) = take_page(&mut rest, limit, |(_, entry)| json!(entry.form));
    let beyond = rest.peek().is_some();
    let page = Page {
        items,
        more_after: last.filter(|_| beyond).map(|(key, _)| key.to_string()),
        remaining: beyond.then(|| rest.count()),
    };
    let envelope = app.pages.envelope("EndpointsList", &resume.published, page, &identity, now);
    Ok(render(form, &envelope))
}

async fn read(
    State(app): State<Shared>,
    ApiPath(EndpointsPath { namespace, service }): ApiPath<EndpointsPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let key = ServiceKey { namespace, name: service };
    let published = app.hub.load();
    let entry = published.compiled.get(&key).ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there are no endpoints of a Service {key}"))
            .hint("a Service that does not exist or is only a DNS name (ExternalName) has no endpoints")
    })?;
    Ok(render(form, &*entry.form))
}
