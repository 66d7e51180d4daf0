//! `GET /v1/namespaces`: namespaces that contain objects, with the number of objects of each kind.

use std::collections::BTreeMap;

use axum::extract::State;
use http::HeaderMap;
use imbl::OrdMap;
use model::{cluster::snapshot::Snapshot, kinds::resource::Kind, primitives::name::Namespace};
use serde::Serialize;
use utoipa::{ToSchema, openapi::HttpMethod};

use super::Shared;
use crate::{
    base::{
        error::{Answer, Code},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiQuery, NoQuery},
    },
    security::{Access, Caller, Permission, Verb},
};

/// Namespaces that contain objects.
#[derive(Debug, Serialize, ToSchema)]
struct NamespaceList {
    /// Namespaces in the order of their names.
    items: Vec<NamespaceRow>,
}

/// Namespace and the number of its objects.
#[derive(Debug, Serialize, ToSchema)]
struct NamespaceRow {
    /// Name of the namespace.
    #[schema(value_type = String, example = "shop")]
    name: Namespace,
    /// Number of objects by kind. Kinds without objects, and kinds that the caller may not list in this namespace,
    /// are absent.
    objects: BTreeMap<&'static str, usize>,
}

/// Registers the route of namespaces.
pub(super) fn add(router: Routes) -> Routes {
    let doc = Doc::new("listNamespaces", "Cluster", "List the namespaces that contain objects")
        .describe(
            "A namespace exists while it contains an object. Callers see the namespaces in which they may list \
             objects of some kind that exist there.",
        )
        .answer::<NamespaceList>(200, "Returned with names and numbers of objects.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let route = Route::at("/v1/namespaces");
    router.routes(route.on(HttpMethod::Get, Permission::Each(Verb::List, None), doc, read).done())
}

async fn read(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (published, access) = (app.hub.load(), caller.access().clone());
    app.render(&caller, move || Ok(render(form, &list(&published.snapshot, &access)))).await
}

/// Returns the namespaces that the caller sees. The cost depends on the number of namespaces, not of objects.
fn list(snapshot: &Snapshot, access: &Access) -> NamespaceList {
    let row = |(name, counts): (&Namespace, &OrdMap<Kind, usize>)| {
        let seen = counts.iter().filter(|(kind, _)| access.may_object(Verb::List, **kind, Some(name)));
        let objects: BTreeMap<_, _> = seen.map(|(kind, count)| (kind.as_str(), *count)).collect();
        (!objects.is_empty()).then(|| NamespaceRow { name: name.clone(), objects })
    };
    NamespaceList { items: snapshot.namespaces().filter_map(row).collect() }
}
