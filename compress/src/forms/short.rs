//! TOML values that are one number (`top_k = 0.01`) or a table (`top_k = { density = 0.01, chunk = 4096 }`).

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A type with a short form.
pub(crate) trait Short: Sized {
    // Both forms, for error texts.
    const FORMS: &'static str;
    /// The long form; omitted fields have the defaults of the short form.
    type Table: for<'de> Deserialize<'de> + Serialize;

    fn from_number(number: f64) -> Result<Self, crate::Error>;

    fn from_table(table: Self::Table) -> Result<Self, crate::Error>;

    /// The short form if it loses nothing, else the table.
    fn parts(&self) -> Result<f64, Self::Table>;
}

pub(crate) fn deserialize<'de, T: Short, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(NumberOrTable(PhantomData))
}

pub(crate) fn serialize<T: Short, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    match value.parts() {
        // Writes an integer without a fraction: a rank is 4, not 4.0.
        Ok(number) if number.fract() == 0.0 && number.abs() < 1e9 => serializer.serialize_i64(number as i64),
        Ok(number) => serializer.serialize_f64(number),
        Err(table) => table.serialize(serializer),
    }
}

struct NumberOrTable<T>(PhantomData<T>);

impl<'de, T: Short> Visitor<'de> for NumberOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORMS)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::from_number(number).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table = T::Table::deserialize(MapAccessDeserializer::new(map))?;
        T::from_table(table).map_err(A::Error::custom)
    }
}

/// Implements serde's traits for types with a short form.
macro_rules! short_forms {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                crate::forms::short::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::forms::short::deserialize(deserializer)
            }
        }
    )*};
}
pub(crate) use short_forms;
