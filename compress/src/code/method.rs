//! The entropy coders: as requested ([`CodeSpec`]) and as chosen ([`Code`]). A coder is one file and one line of the table
//! below.

use serde::{Deserialize, Serialize};

use crate::code::coder::Entry;
use crate::code::context::symbols as context;
use crate::code::rice::symbols as rice;
use crate::code::{huffman, pack, rans};

/// Generates both enums and `METHODS` from the table. Each line is `Variant = module`; the module defines `METHOD`.
macro_rules! coders {
    ($($(#[$meta:meta])* $coder:ident = $module:ident,)*) => {
        /// A lossless coder of planes of symbols.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $($(#[$meta])* $coder,)*
        }

        /// The requested coder: a fixed one, or the one that makes the section of a tensor smallest.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum CodeSpec {
            $($(#[$meta])* $coder,)*
            /// The shortest of these for each tensor.
            Auto,
        }

        const METHODS: &[Entry] = &[$($module::METHOD,)*];

        impl Code {
            /// Every coder.
            pub const ALL: &[Self] = &[$(Self::$coder,)*];
        }

        impl CodeSpec {
            /// Every coder, then [`CodeSpec::Auto`].
            pub const ALL: &[Self] = &[$(Self::$coder,)* Self::Auto];

            /// The coders to try. On a tie the first one wins.
            pub(crate) fn candidates(self) -> &'static [Code] {
                match self {
                    $(Self::$coder => &[Code::$coder],)*
                    Self::Auto => &[Code::Rans, Code::Context, Code::Rice, Code::Huffman, Code::Pack],
                }
            }
        }
    };
}

// The order is that of the tags on the wire.
coders! {
    /// No entropy coding: each symbol takes its bit width.
    #[default]
    Pack = pack,
    /// Range asymmetric numeral systems with static frequencies per plane (Duda 2013). A plane for which packing is
    /// shorter is packed.
    Rans = rans,
    /// Rice codes of the distance to the most frequent symbol.
    Rice = rice,
    /// Canonical prefix codes (Huffman 1952) of at most 12 bits.
    Huffman = huffman,
    /// Context-adaptive binary arithmetic coding; the contexts are neighbors, rows and columns.
    Context = context,
}

impl Code {
    /// Name in TOML.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub(crate) fn entry(self) -> &'static Entry {
        &METHODS[usize::from(self.tag())]
    }

    /// Three bits of a recipe's tag.
    pub(crate) fn tag(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_tag(tag: u8) -> Option<Self> {
        Self::ALL.get(usize::from(tag)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_toml_and_auto_tries_every_coder() {
        for &code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert_eq!(Code::of_tag(code.tag()), Some(code));
            assert!(CodeSpec::Auto.candidates().contains(&code), "{code:?}");
        }
    }
}
