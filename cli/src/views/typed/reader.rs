//! Deserializer over `serde_json::Value` that ignores unknown fields of structs, even if the type denies
//! unknown fields.

use serde::de::{
    Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor,
    value::{MapDeserializer, SeqDeserializer},
};
use serde_json::{Error, Value};

/// Deserializer of one borrowed JSON value.
#[derive(Clone, Copy)]
pub(super) struct LenientReader<'de>(pub(super) &'de Value);

impl<'de> IntoDeserializer<'de, Error> for LenientReader<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for LenientReader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.deserialize_any(visitor)
            }
            Value::Array(values) => visitor.visit_seq(SeqDeserializer::new(values.iter().map(LenientReader))),
            Value::Object(fields) => {
                let entries = fields.iter().map(|(key, value)| (key.as_str(), LenientReader(value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Object(fields) = self.0 else {
            return Err(Error::invalid_type(Unexpected::Other("another type"), &visitor));
        };
        let entries = fields.iter().filter(|(key, _)| known.contains(&key.as_str()));
        let entries = entries.map(|(key, value)| (key.as_str(), LenientReader(value)));
        visitor.visit_map(MapDeserializer::new(entries))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}
