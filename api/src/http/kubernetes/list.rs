//! Read requests of the Kubernetes API: one object, or a page of a list.

use std::{ops::ControlFlow, sync::Arc};

use axum::extract::State;
use http::HeaderMap;
use model::primitives::{name::Namespace, quantity::Position};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accept::ListFormat,
    catalogue::Resource,
    options::{OneQuery, Options, Query, Since},
    show::{ListSelection, Side, Unit},
    status::json_answer,
    table, watch,
};
use crate::{
    base::error::{Answer, Code, Problem},
    http::{
        middleware::RequestId,
        params::{ApiPath, ApiQuery},
        routes::Shared,
        watch::resume_expired,
    },
    security::{Access, Caller, Verb, access::forbidden},
    state::paging::LIMIT_MAX,
};

/// Path parameters of the Kubernetes API.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ViewPath {
    /// Namespace of the objects. In the paths of Events this parameter is called `place`, because the
    /// permission check reads only `namespace`: Events concern Nodes, so a permission limited to a namespace
    /// must not grant access to them.
    #[serde(default, alias = "place")]
    namespace: Option<Namespace>,
    /// Name of the object; absent for lists.
    #[serde(default)]
    name: Option<String>,
}

/// Kubernetes resource and API version that a route serves.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServedResource {
    /// Resource of the route.
    pub(super) resource: Resource,
    /// API version of the route.
    pub(super) version: &'static str,
}

/// Page of a list of Kubernetes objects.
struct ResourcePage {
    items: Vec<Value>,
    /// Key after which the next page starts; `None` for the last page.
    more_after: Option<String>,
}

/// Lists the objects of a resource, or watches them if the query requests a watch.
pub(super) async fn collection(
    served: ServedResource,
    State(app): State<Shared>,
    caller: Caller,
    ApiPath(path): ApiPath<ViewPath>,
    ApiQuery(query): ApiQuery<Query>,
    request_id: RequestId,
    headers: HeaderMap,
) -> Answer {
    let (form, options) = (ListFormat::of(&headers)?, Options::of(query, served.resource)?);
    let chosen = ListSelection {
        resource: served.resource,
        api_version: served.version.to_owned(),
        namespace: path.namespace,
        labels: options.labels.clone(),
        fields: options.fields.clone(),
    };
    if options.is_watch {
        return watch::begin(app, &caller, chosen, form, &options, request_id).await;
    }
    // The pages after the first one continue at the state of the first.
    if options.continue_token.is_none() {
        reach(&app, options.since).await?;
    }
    list(&app, &caller, &chosen, form, &options)
}

/// Returns the object that the path names, or a problem with code `NotFound`.
pub(super) async fn one(
    served: ServedResource,
    State(app): State<Shared>,
    caller: Caller,
    ApiPath(path): ApiPath<ViewPath>,
    ApiQuery(query): ApiQuery<OneQuery>,
    headers: HeaderMap,
) -> Answer {
    let (form, resource) = (ListFormat::of(&headers)?, served.resource);
    let (since, include) = query.read()?;
    reach(&app, since).await?;
    let name = path.name.unwrap_or_default();
    let chosen = ListSelection {
        resource,
        api_version: served.version.to_owned(),
        namespace: path.namespace,
        labels: Default::default(),
        fields: Default::default(),
    };
    let missing =
        || Problem::new(Code::NotFound, format!("{} \"{name}\" not found", resource.words().plural));
    let unit = chosen.unit(&name).ok_or_else(missing)?;
    let access = caller.access();
    // For other resources the permission of the route applies.
    if resource == Resource::Namespaces && !chosen.is_seen(access, Verb::Get, &unit) {
        return Err(forbidden(format!("{access} may not get anything in namespace {name}")));
    }
    let published = app.hub.load();
    let view = app.view_of(Arc::clone(&published));
    let renderer = view.renderer();
    let side = Side {
        snapshot: &published.snapshot,
        compiled: Some(&published.compiled),
        epoch: published.epoch,
        status: &|object| renderer.node(object),
    };
    let object = side.show(&unit, &chosen).remove(&name).ok_or_else(missing)?;
    Ok(json_answer(&match form {
        ListFormat::Objects => object,
        ListFormat::Table(version) => {
            let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
            let row = table::row(resource, &object, app.source.now(), include);
            table::table(version, resource, metadata, vec![row])
        }
    }))
}

/// Waits until this server has the requested state, which another control server may have returned before.
///
/// # Errors
/// Returns a problem if this server does not reach the state, or if the exact state requested is no longer the
/// newest.
async fn reach(app: &Shared, since: Since) -> Result<(), Problem> {
    match since {
        Since::Any => Ok(()),
        Since::Latest => app.confirm().await,
        Since::NotOlder(position) => app.reach(position).await,
        Since::Exactly(position) => {
            app.reach(position).await?;
            let present: Position = app.hub.load().position();
            if present == position { Ok(()) } else { Err(resume_expired(position)) }
        }
    }
}

fn list(
    app: &Shared,
    caller: &Caller,
    chosen: &ListSelection,
    form: ListFormat,
    options: &Options,
) -> Answer {
    if options.continue_token.is_some() && !matches!(options.since, Since::Any | Since::Latest) {
        return Err(Problem::bad_request(
            "query parameter: `resourceVersion` must be omitted with `continue`",
        ));
    }
    let now = app.source.now();
    let resource = chosen.resource;
    let identity = (
        (resource, &chosen.api_version, &chosen.namespace),
        (chosen.labels.to_string(), chosen.fields.text()),
    );
    let resume = app.pages.resume(app.hub.load(), options.continue_token.as_deref(), &identity, now)?;
    let published = &resume.published;
    let view = app.view_of(Arc::clone(published));
    let renderer = view.renderer();
    let side = Side {
        snapshot: &published.snapshot,
        compiled: Some(&published.compiled),
        epoch: published.epoch,
        status: &|object| renderer.node(object),
    };
    let ResourcePage { items, more_after } =
        page(&side, caller.access(), chosen, options.limit, resume.after.as_deref())?;
    let mut metadata = json!({ "resourceVersion": published.position() });
    if let Some(key) = more_after {
        metadata["continue"] = json!(app.pages.token(published, key, &identity, now));
    }
    Ok(json_answer(&match form {
        ListFormat::Objects => json!({
            "kind": format!("{}List", resource.words().kind),
            "apiVersion": resource.group().api_version(&chosen.api_version),
            "metadata": metadata, "items": items,
        }),
        ListFormat::Table(version) => {
            let row = |object: &Value| table::row(resource, object, now, options.include);
            table::table(version, resource, metadata, items.iter().map(row).collect())
        }
    }))
}

/// Collects the objects of one page of a list. `after` identifies the last object of the previous page, as in
/// the continue token: its entity ([`Unit::to_text`]), a space, and its name as a Kubernetes object. `None`
/// selects the first page.
fn page(
    side: &Side<'_>,
    access: &Access,
    chosen: &ListSelection,
    limit: Option<usize>,
    after: Option<&str>,
) -> Result<ResourcePage, Problem> {
    let after = after.map(|text| {
        let parts = text.split_once(' ');
        parts.and_then(|(unit, name)| Some((Unit::parse(unit, chosen.resource)?, name.to_owned())))
    });
    let after = match after {
        None => None,
        Some(None) => return Err(Problem::bad_request("`continue` has no valid key")),
        Some(parsed) => parsed,
    };
    let most = limit.unwrap_or(usize::try_from(LIMIT_MAX).unwrap_or(usize::MAX));
    let mut items = Vec::new();
    let mut last: Option<String> = None;
    let mut is_more = false;
    let mut take = |unit: Unit| {
        if !chosen.is_seen(access, Verb::List, &unit) {
            return ControlFlow::Continue(());
        }
        for (name, object) in side.show(&unit, chosen) {
            let was_shown = after.as_ref().is_some_and(|(shown, last)| *shown == unit && name <= *last);
            if was_shown {
                continue;
            }
            if items.len() == most {
                is_more = true;
                return ControlFlow::Break(());
            }
            last = Some(format!("{} {name}", unit.to_text()));
            items.push(object);
        }
        ControlFlow::Continue(())
    };
    let begun = after.as_ref().map(|(unit, _)| unit);
    // The last unit of the previous page may have more objects than fit into that page.
    let flow = begun.map_or(ControlFlow::Continue(()), |unit| take(unit.clone()));
    if flow.is_continue() {
        side.walk(chosen, begun, take);
    }
    if is_more && limit.is_none() {
        let detail = format!("there are more than {LIMIT_MAX} {}", chosen.resource.words().plural);
        let hint = "list them in pages, with limit=500 and the continue token of each";
        return Err(Problem::bad_request(detail).hint(hint));
    }
    Ok(ResourcePage { items, more_after: last.filter(|_| is_more) })
}
