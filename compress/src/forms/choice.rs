//! TOML values that are a name (`"keep"`) or a name with parameters (`{ top_k = 0.01 }`).

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};

/// A closed set of names, some of which take parameters.
pub(crate) trait Choice: Sized {
    /// The accepted forms, for error texts.
    fn forms() -> String;

    /// The choice `name` without parameters.
    fn plain(name: &str) -> Option<Self>;

    /// The choice `name` with parameters, which are the next value of `map`.
    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error>;
}

pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(NameOrTable(PhantomData))
}

struct NameOrTable<T>(PhantomData<T>);

impl<'de, T: Choice> Visitor<'de> for NameOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::forms())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        T::plain(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
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
