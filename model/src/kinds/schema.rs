//! OpenAPI schemas of the types that are written as strings in JSON.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, schema::Type},
};

use crate::{
    kinds::{bgp_peer::PeerAsn, resource::ServiceKey, service::ClusterIp},
    primitives::quantity::Position,
};

impl PartialSchema for PeerAsn {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(u32::MAX));
        let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["internal", "external"]));
        let description = "AS number of a router: a number from 1 to 4,294,967,295, \
                           `internal` (the local AS number) or `external` (any other AS number).";
        let either = OneOfBuilder::new().description(Some(description)).item(number).item(word).build();
        RefOr::T(Schema::OneOf(either))
    }
}
impl ToSchema for PeerAsn {}

macro_rules! text_schema {
    ($ty:ty, $description:literal, $pattern:expr, $example:literal) => {
        impl PartialSchema for $ty {
            fn schema() -> RefOr<Schema> {
                let object = ObjectBuilder::new().schema_type(Type::String).description(Some($description));
                object.pattern($pattern).examples([$example]).build().into()
            }
        }
        impl ToSchema for $ty {}
    };
}

text_schema!(
    Position,
    "Position in the history of the store: epoch, dash, revision. Used as resume token of watches. \
     Positions of different epochs are not comparable by revision.",
    Some("^[0-9]{1,19}-[0-9]{1,19}$"),
    "1771000000-42"
);
text_schema!(
    ServiceKey,
    "Namespace and name of a Service, separated by a slash.",
    Some("^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*$"),
    "default/web"
);
text_schema!(
    ClusterIp,
    "Virtual IP address of a Service, or `None` for a headless Service.",
    None::<String>,
    "10.96.0.10"
);
