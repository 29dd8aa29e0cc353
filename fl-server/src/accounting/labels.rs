//! Enums whose values are labels of metrics.

/// Declares such an enum, with the label of each value, and `ALL` in the order of declaration: counters are indexed by it.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: [Self; [$($label),*].len()] = [$(Self::$variant),*];

            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }
    };
}
pub(crate) use labels;
