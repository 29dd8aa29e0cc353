//! The table of a slot's methods, and the enum of what a user can ask of the slot.

/// One method of a slot, as users write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodInfo {
    /// Name in TOML.
    pub name: &'static str,
    /// What the method does, in one sentence.
    pub about: &'static str,
    /// Values of the slot in TOML that use the method: at least one for each of its variants on the wire.
    pub examples: &'static [&'static str],
}

/// The refusal of a value that no method of a slot takes: names that stand alone, then names with numbers.
pub(crate) fn forms(alone: &[&str], with_numbers: &[&str]) -> String {
    let alone: Vec<String> = alone.iter().map(|name| format!("{name:?}")).collect();
    format!("{} or one of {{ {} = .. }}", alone.join(", "), with_numbers.join(", "))
}

/// Generates from the table of a slot the enum of specs, its TOML forms and `METHODS`. Each line is `Variant = module`; the
/// module defines a type of the variant's name, which implements the trait of the slot, and its `METHOD`. The first list has
/// the methods without numbers.
macro_rules! methods {
    (
        $(#[$meta:meta])* $spec:ident: $role:ident, $entry:ident;
        plain { $($(#[$plain_doc:meta])* $plain:ident = $plain_mod:ident,)* }
        numbers { $($(#[$doc:meta])* $with:ident = $module:ident,)* }
    ) => {
        $(#[$meta])*
        #[derive(serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $spec {
            $($(#[$plain_doc])* $plain,)*
            $($(#[$doc])* $with($module::$with),)*
        }

        /// Every method of the slot. The order is that of texts, not of the wire.
        pub(crate) const METHODS: &[$entry] = &[$($plain_mod::METHOD,)* $($module::METHOD,)*];

        impl $spec {
            /// The method with its numbers.
            pub(crate) fn method(&self) -> &dyn $role {
                match self {
                    $(Self::$plain => &$plain_mod::$plain,)*
                    $(Self::$with(numbers) => numbers,)*
                }
            }

            /// Name in TOML.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$plain => $plain_mod::METHOD.info.name,)*
                    $(Self::$with(_) => $module::METHOD.info.name,)*
                }
            }
        }

        impl $crate::forms::choice::Choice for $spec {
            fn forms() -> String {
                let alone = [$(Some($plain_mod::METHOD.info.name),)*
                    $($module::$with::without_numbers().map(|_| $module::METHOD.info.name),)*];
                let alone: Vec<&str> = alone.into_iter().flatten().collect();
                $crate::forms::methods::forms(&alone, &[$($module::METHOD.info.name,)*])
            }

            fn plain(name: &str) -> Option<Self> {
                match name {
                    $(_ if name == $plain_mod::METHOD.info.name => Some(Self::$plain),)*
                    $(_ if name == $module::METHOD.info.name => $module::$with::without_numbers().map(Self::$with),)*
                    _ => None,
                }
            }

            fn with_numbers<'de, A: serde::de::MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
                match name {
                    $(_ if name == $module::METHOD.info.name => map.next_value().map(|numbers| Some(Self::$with(numbers))),)*
                    _ => Ok(None),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::forms::choice::deserialize(deserializer)
            }
        }
    };
}
pub(crate) use methods;
