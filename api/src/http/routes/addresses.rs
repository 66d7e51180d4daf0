//! Load balancer addresses: list and read their records, and move one to another node.
//!
//! The name of a record is the address; for IPv6, the eight groups are written in full and joined by dashes,
//! because names cannot contain colons. Paths accept this name and the usual notation of the address.

use axum::{
    extract::{Request, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, header};
use model::{
    admission::admit::{self, Operation},
    kinds::{
        address::{AddressSpec, address_of, name_of},
        resource::{Kind, Object, ObjectKey, ServiceKey},
    },
    observed::assign::move_to,
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema, openapi::HttpMethod};

use super::{Shared, resource};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        etag,
        negotiate::{form, render},
    },
    context::sub_states::ReadState,
    http::{
        body,
        mutation::{self as mutate, WriteOptions},
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery, CollectionPath, ListQuery, MutationQuery, NoQuery},
        patch::not_found,
        schema,
    },
    security::{Caller, Verb, on},
};

/// Path parameter with a load balancer address, as record name or in its usual notation.
#[derive(Debug, Clone, Deserialize)]
struct AddressPath {
    name: String,
}

/// Query of the address listing.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AddressQuery {
    /// Maximum number of objects in the page, from 1 to 5000. Values out of range are rejected. Default: 500.
    #[param(minimum = 1, maximum = 5000, default = 500)]
    limit: Option<u32>,
    /// Page token: `metadata.continue` of the previous page. All pages of a listing show the same state.
    /// Tokens expire after 5 minutes without use.
    #[serde(rename = "continue")]
    #[param(max_length = 2048)]
    continue_token: Option<String>,
    /// Label selector, such as `app=web,tier!=db,zone in (a,b)`. Only matching objects are returned. Default:
    /// all objects.
    #[param(max_length = 4096)]
    label_selector: Option<String>,
    /// Name of an AddressPool. Only addresses of this pool are returned. Default: all pools.
    #[param(value_type = Option<String>, max_length = 253)]
    pool: Option<Name>,
    /// Service as `namespace/name`. Only addresses of this Service are returned. Default: all Services.
    #[param(value_type = Option<String>, max_length = 512)]
    service: Option<ServiceKey>,
    /// Name of a Node. Only addresses for which this node is the first announcement candidate are returned.
    /// Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
}

/// Request to move the announcement of an address to another node.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AddressMoveRequest)]
struct AddressMove {
    /// Name of the Node that takes over the announcement. The node must be able to announce the address.
    #[schema(value_type = String)]
    node: Name,
}

/// Registers the routes of load balancer addresses.
pub(super) fn add(router: Routes) -> Routes {
    let kind = Kind::Address;
    let path = format!("/v1/{}", kind.plural());
    let list_doc = Doc::new("listAddresses", kind.as_str(), "List Address records")
        .describe(
            "Returns the records of assigned and reserved load balancer addresses with their status, \
             ordered by name. Filters are combined.",
        )
        .query::<AddressQuery>()
        .answer::<schema::AddressList>(200, "Returned with one page of the listing.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::PageExpired]);
    let read_doc = Doc::new("readAddress", kind.as_str(), "Read one Address record")
        .describe(
            "Returns the record of one load balancer address with its Services, its announcement and \
             its status.",
        )
        .named("name", NAME)
        .answer::<schema::Address>(200, "Returned with the record.", &OBJECT_TYPES, &[resource::ETAG])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let move_doc = Doc::new("moveAddress", kind.as_str(), "Move an address to another node")
        .describe(
            "Makes the node the first announcement candidate of the address and keeps it there. The \
             request fails with `Invalid` and the reason if the node cannot announce the address.",
        )
        .named("name", NAME)
        .query::<MutationQuery>()
        .body::<AddressMove>(&OBJECT_TYPES, "Node that takes over the announcement.")
        .answer::<schema::Address>(
            200,
            "Returned if the address moves, or the node already announces it.",
            &OBJECT_TYPES,
            &[resource::ETAG, resource::REVISION, resource::DRY_RUN],
        )
        .problems(&[Code::NotAcceptable, Code::NotFound, Code::Conflict, Code::Invalid]);
    router
        .routes(Route::at(&path).on(HttpMethod::Get, on(Verb::List, Kind::Address), list_doc, list).done())
        .routes(
            Route::at(format!("{path}/{{name}}"))
                .on(HttpMethod::Get, on(Verb::Get, Kind::Address), read_doc, read)
                .done(),
        )
        .routes(
            Route::at(format!("{path}/{{name}}/move"))
                .on(HttpMethod::Post, on(Verb::Move, Kind::Address), move_doc, move_address)
                .done(),
        )
}

const NAME: &str = "Name of the record: the address, with IPv6 written as eight full groups joined by \
                    dashes. The usual notation is accepted as well.";

async fn list(
    State(app): State<Shared>,
    caller: Caller,
    ApiQuery(query): ApiQuery<AddressQuery>,
    headers: HeaderMap,
) -> Answer {
    let AddressQuery { limit, continue_token, label_selector, pool, service, node } = query;
    let asks = pool.is_some() || service.is_some() || node.is_some();
    let filter = if asks { format!(" {pool:?} {service:?} {node:?}") } else { String::new() };
    let list_query = ListQuery::new(limit, continue_token, label_selector);
    let matches = move |object: &Object| {
        let Some(AddressSpec { pool: of, services, announcement, .. }) = object.as_address() else {
            return false;
        };
        let owner = announcement.candidates.first().map(|first| &first.node);
        pool.as_ref().is_none_or(|pool| of.as_ref() == Some(pool))
            && service.as_ref().is_none_or(|service| services.contains(service))
            && node.as_ref().is_none_or(|node| owner == Some(node))
    };
    let path = CollectionPath { namespace: None };
    resource::list_matching(app, caller, Kind::Address, (path, list_query), headers, (filter, matches)).await
}

async fn read(
    State(state): State<ReadState>,
    ApiPath(AddressPath { name }): ApiPath<AddressPath>,
    ApiQuery(_): ApiQuery<NoQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let (_, key) = key(&name)?;
    let view = state.view();
    let object = view.published().snapshot.get(&key).ok_or_else(|| not_found(&key))?;
    let mut response = render(form, &view.renderer().object(object)).into_response();
    response.headers_mut().insert(header::ETAG, etag::header_value(&object.metadata));
    Ok(response)
}

async fn move_address(
    State(app): State<Shared>,
    caller: Caller,
    ApiPath(AddressPath { name }): ApiPath<AddressPath>,
    ApiQuery(query): ApiQuery<MutationQuery>,
    request: Request,
) -> Answer {
    let form = form(request.headers())?;
    let (parts, body) = request.into_parts();
    let (bytes, value) = body::read_one(&parts.headers, body).await?;
    let AddressMove { node } = body::typed(&value)?;
    let (address, key) = key(&name)?;
    app.confirm().await?;
    let operation = {
        let view = app.view();
        let record = view.published().snapshot.get(&key).ok_or_else(|| not_found(&key))?;
        let if_epoch = record.as_address().map_or(0, |record| record.announcement.epoch);
        let moved = view.renderer().announcing(|of| move_to(&of.scene, of.book, address, &node));
        let announcement = moved.map_err(|why| {
            let message = format!("must be a node that can announce {address}; {node} cannot: {why}");
            Problem::invalid(vec![Violation::new("/node", ViolationCode::Invalid, message)])
        })?;
        let is_there = record
            .as_address()
            .is_some_and(|record| record.announcement.candidates == announcement.candidates);
        // An unchanged assignment is not recorded again: every new one makes its owner repeat the
        // announcement on the network.
        (!is_there).then_some(Operation::SetAnnouncer { address, if_epoch, announcement })
    };
    let manner = WriteOptions {
        is_dry_run: query.dry_run,
        evict: false,
        confirm: query.confirm,
        form,
        bytes: bytes.len(),
    };
    let Some(operation) = operation else { return mutate::answer_unchanged(&app, manner, &key) };
    let request = admit::Request { operations: vec![operation], ..admit::Request::default() };
    let written = mutate::write(&app, &caller, request, manner).await?;
    if written.outcomes.is_empty() {
        let detail = format!("the announcer of {address} has changed at the same time");
        return Err(Problem::new(Code::Conflict, detail).hint("read it again and repeat the request"));
    }
    mutate::answer_object(&app, manner, StatusCode::OK, &written)
}

fn key(name: &str) -> Result<(std::net::IpAddr, ObjectKey), Problem> {
    let address = address_of(name).ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no Address {name}"))
            .hint("use an IP address, such as 192.0.2.7 or 2001:db8::7")
    })?;
    Ok((address, ObjectKey { kind: Kind::Address, namespace: None, name: name_of(address) }))
}
