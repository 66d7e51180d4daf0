//! OpenAPI schemas of types whose wire form is a text with a form of its own.

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
        let description = "A number; `internal`: ours; `external`: any but ours.";
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
    "Where in which life of the store: epoch, dash, revision. Used as resume token.",
    Some("^[0-9]{1,19}-[0-9]{1,19}$"),
    "1771000000-42"
);
text_schema!(
    ServiceKey,
    "A Service: namespace, slash, name.",
    Some("^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*$"),
    "default/web"
);
text_schema!(
    ClusterIp,
    "A virtual address, or the word `None` of a headless Service.",
    None::<String>,
    "10.96.0.10"
);
