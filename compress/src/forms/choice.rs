//! TOML values that are a name (`"keep"`), a name with parameters (`{ top_k = 0.01 }`), or a list of both.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Unexpected, Visitor};

/// A closed set of names, some of which take parameters.
pub(crate) trait Choice: Sized {
    /// The accepted forms, for error texts.
    fn forms() -> String;

    fn plain(name: &str) -> Option<Self>;

    /// The choice `name` with parameters, which are the next value of `map`.
    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error>;

    /// The choice that is written as the list `parts`.
    fn together(_parts: &[Self]) -> Option<Self> {
        None
    }
}

pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(NameOrTable(PhantomData))
}

struct NameOrTable<T>(PhantomData<T>);

impl<'de, T: Choice> DeserializeSeed<'de> for NameOrTable<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Choice> Visitor<'de> for NameOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::forms())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        T::plain(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = seq.next_element_seed(NameOrTable(PhantomData))? {
            parts.push(part);
        }
        T::together(&parts).ok_or_else(|| A::Error::invalid_value(Unexpected::Seq, &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let refusal = |name: &str| A::Error::invalid_value(Unexpected::Other(&format!("table with `{name}`")), &self);
        let name: String = map
            .next_key()?
            .ok_or_else(|| A::Error::invalid_value(Unexpected::Map, &self))?;
        let chosen = T::with_numbers(&name, &mut map)?.ok_or_else(|| refusal(&name))?;
        match map.next_key::<String>()? {
            None => Ok(chosen),
            Some(second) => Err(refusal(&second)),
        }
    }
}
