//! Lines whose fields add up: sums saturate, for some of the figures are claims of clients.

/// A figure that adds up.
pub(crate) trait Sum {
    fn add(&mut self, more: Self);
}

impl Sum for u64 {
    fn add(&mut self, more: Self) {
        *self = self.saturating_add(more);
    }
}

impl Sum for f64 {
    fn add(&mut self, more: Self) {
        *self += more;
    }
}

/// Adds up integers.
pub(crate) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Declares a line as [`line!`](crate::table::line::line) does, with the method `add`.
macro_rules! sums {
    (
        $(#[$meta:meta])*
        $vis:vis struct $line:ident {
            $(
                #[doc = $about:literal]
                $(#[$field_meta:meta])*
                $field:ident $(as $name:literal)? : $type:ty [$($unit:literal)?],
            )*
        }
    ) => {
        $crate::table::line::line! {
            $(#[$meta])*
            $vis struct $line {
                $( #[doc = $about] $(#[$field_meta])* $field $(as $name)? : $type [$($unit)?], )*
            }
        }

        impl $line {
            /// Adds `more`, field by field.
            pub fn add(&mut self, more: &Self) {
                $( $crate::table::sums::Sum::add(&mut self.$field, more.$field); )*
            }
        }
    };
}
pub(crate) use sums;
