//! Path parameters and documentation shared by the routes that read one Service.

use http::HeaderMap;
use model::{
    kinds::resource::ServiceKey,
    primitives::name::{Name, Namespace},
};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    base::{
        error::{Code, Problem},
        negotiate::{Form, form},
    },
    context::sub_states::ReadState,
    http::{
        openapi::{Doc, OBJECT_TYPES},
        patch::not_found,
    },
    state::object_view::View,
};

/// Path parameters with the namespace and name of a Service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServicePath {
    pub(super) namespace: Namespace,
    pub(super) name: Name,
}

/// Documents a route that reads one Service: adds the path parameters, the response of type `T` with the
/// description `answer`, and the problem responses.
pub(super) fn document<T: ToSchema>(doc: Doc, answer: &str) -> Doc {
    doc.in_namespace()
        .named("name", "Name of the Service.")
        .answer::<T>(200, answer, &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound])
}

/// Returns the requested media type, the key of the Service in the path, and the current state.
///
/// # Errors
/// Returns a problem with code `NotFound` if the Service does not exist.
pub(super) fn find<'a>(
    state: &'a ReadState,
    ServicePath { namespace, name }: ServicePath,
    headers: &HeaderMap,
) -> Result<(Form, ServiceKey, View<'a>), Problem> {
    let form = form(headers)?;
    let (key, view) = (ServiceKey { namespace, name }, state.view());
    if view.published().snapshot.service(&key).is_none() {
        return Err(not_found(&key.object_key()));
    }
    Ok((form, key, view))
}
