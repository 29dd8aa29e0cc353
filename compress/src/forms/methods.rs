//! The table of the methods of a slot, and the enum of specs generated from it.

/// One method of a slot, as written in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodInfo {
    /// Name in TOML.
    pub name: &'static str,
    /// What the method does, in one sentence.
    pub about: &'static str,
    /// Example values in TOML, at least one for each variant of the method on the wire.
    pub examples: &'static [&'static str],
    /// Whether most values that are not zero may decode to zero.
    pub leaves_out: bool,
}

/// The accepted forms, for error texts: names without parameters, then names with parameters.
pub(crate) fn forms(alone: &[&str], with_numbers: &[&str]) -> String {
    let alone: Vec<String> = alone.iter().map(|name| format!("{name:?}")).collect();
    format!("{} or one of {{ {} = .. }}", alone.join(", "), with_numbers.join(", "))
}

/// Generates the enum of specs, its TOML forms and `METHODS` from the table of a slot. Each line is `Variant = module`;
/// the module defines a type named like the variant, which implements the trait of the slot, and `METHOD`. The first
/// list has the methods without parameters.
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

        /// The enum and the type of each method with parameters, which the crate's root re-exports.
        pub(crate) mod types {
            pub use super::$spec;
            $(pub use super::$module::$with;)*
        }

        // Every method of the slot, in the order of help texts (not of the wire).
        pub(crate) const METHODS: &[$entry] = &[$($plain_mod::METHOD,)* $($module::METHOD,)*];

        impl $spec {
            pub(crate) fn method(&self) -> &dyn $role {
                match self {
                    $(Self::$plain => &$plain_mod::$plain,)*
                    $(Self::$with(numbers) => numbers,)*
                }
            }

            /// The method as users write it.
            pub fn info(&self) -> &'static $crate::forms::methods::MethodInfo {
                match self {
                    $(Self::$plain => const { &$plain_mod::METHOD.info },)*
                    $(Self::$with(_) => const { &$module::METHOD.info },)*
                }
            }

            /// Name in TOML.
            pub fn name(&self) -> &'static str {
                self.info().name
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
