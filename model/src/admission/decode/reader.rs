//! Deserializer over `serde_json::Value`. Unlike that of `serde_json`, it reads structs from JSON objects
//! only, never from arrays, and its errors are [`DecodeError`] values, not texts.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, Unexpected, VariantAccess,
    Visitor,
    value::{MapDeserializer, SeqDeserializer},
};
use serde_json::Value;

use super::error::DecodeError;

/// JSON value as a serde deserializer that returns errors in the terms of the API.
#[derive(Clone, Copy)]
pub(super) struct Reader<'de>(pub(super) &'de Value);

impl<'de> Reader<'de> {
    fn mismatch(self, expected: &dyn Expected) -> DecodeError {
        DecodeError::invalid_type(unexpected(self.0), expected)
    }
}

/// Returns the serde value by which error messages describe the actual JSON value.
fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(value), _, _) => Unexpected::Unsigned(value),
            (None, Some(value), _) => Unexpected::Signed(value),
            (None, None, Some(value)) => Unexpected::Float(value),
            (None, None, None) => Unexpected::Other("a number"),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for Reader<'de> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(self.mismatch(&visitor)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(values) => visitor.visit_seq(SeqDeserializer::new(values.iter().map(Reader))),
            Value::Object(fields) => {
                let entries = fields.iter().map(|(key, value)| (key.as_str(), Reader(value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if self.0.is_object() { self.deserialize_any(visitor) } else { Err(self.mismatch(&visitor)) }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        // Addresses and networks are parsed by their own crates, whose messages lack the expected format.
        let expected = DecodeError::expecting(&visitor);
        self.deserialize_any(visitor).map_err(|error| error.of_text(self.0, &expected))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.0.as_str() {
            Some(word) => visitor.visit_enum(UnitVariant(word)),
            None => Err(DecodeError::not_one_of(unexpected(self.0), variants)),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Name of an enum variant without data, as a serde `VariantAccess`. Variants with data are rejected, because
/// no enum that this deserializer reads has such a variant.
struct UnitVariant<'de>(&'de str);

impl<'de> EnumAccess<'de> for UnitVariant<'de> {
    type Error = DecodeError;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        seed.deserialize(IntoDeserializer::<DecodeError>::into_deserializer(self.0))
            .map(|value| (value, self))
    }
}

impl<'de> VariantAccess<'de> for UnitVariant<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, DecodeError> {
        Err(DecodeError::custom(format!("`{}` must have a value", self.0)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, _visitor: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::custom(format!("`{}` must have values", self.0)))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, DecodeError> {
        Err(DecodeError::custom(format!("`{}` must have fields", self.0)))
    }
}
