//! The bytes of what records and ledger rows consist of. Integers and floats are little-endian; a text is its length (u16) and
//! UTF-8; an option is a byte 0 or 1 and then the value; a list is a count (u32) and its items; sets and maps of clients are
//! lists with rising names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::wire::{Reader, Writer};
use fl_compress::{Digest, Error, Stages};
use fl_proto::{ClientId, Metric, Metrics};

/// A value with one form as bytes.
pub(crate) trait Field: Sized {
    fn write(&self, out: &mut Writer<'_>);

    /// Reads the bytes of [`Field::write`]. `what`: its name in errors.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`.
    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error>;
}

/// A struct is its fields, in this order.
macro_rules! fields {
    ($struct:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::storage::field::Field for $struct {
            fn write(&self, out: &mut fl_compress::wire::Writer<'_>) {
                $(self.$field.write(out);)+
            }

            fn read(from: &mut fl_compress::wire::Reader<'_>, _: &str) -> Result<Self, fl_compress::Error> {
                Ok(Self { $($field: $crate::storage::field::Field::read(from, stringify!($field))?),+ })
            }
        }
    };
}

/// An enum is the number of its kind, then the fields of the kind, in this order.
macro_rules! kinds {
    ($enum:ident { $($kind:literal => $variant:ident { $($field:ident),+ $(,)? }),+ $(,)? }) => {
        impl $crate::storage::field::Field for $enum {
            fn write(&self, out: &mut fl_compress::wire::Writer<'_>) {
                match self {
                    $(Self::$variant { $($field),+ } => {
                        out.u8($kind);
                        $($field.write(out);)+
                    })+
                }
            }

            fn read(from: &mut fl_compress::wire::Reader<'_>, what: &str) -> Result<Self, fl_compress::Error> {
                Ok(match from.u8(what)? {
                    $($kind => Self::$variant {
                        $($field: $crate::storage::field::Field::read(from, stringify!($field))?),+
                    },)+
                    _ => return Err(from.corrupt(what)),
                })
            }
        }
    };
}

pub(crate) use {fields, kinds};

macro_rules! numbers {
    ($($number:ident)+) => {$(
        impl Field for $number {
            fn write(&self, out: &mut Writer<'_>) {
                out.$number(*self);
            }

            fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
                from.$number(what)
            }
        }
    )+};
}

numbers!(i16 u32 u64 f64);
fields!(Stages {
    fp32,
    reduced,
    quantized,
    coded,
    framed,
    entropy_bound
});

impl Field for i64 {
    fn write(&self, out: &mut Writer<'_>) {
        out.u64(*self as u64);
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        Ok(from.u64(what)? as i64)
    }
}

impl Field for bool {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        from.flag(what)
    }
}

impl Field for Digest {
    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(&self.0);
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        from.array(what).map(Self)
    }
}

/// Longest text in bytes; a longer one is cut.
const MAX_TEXT: usize = 4_096;

impl Field for String {
    fn write(&self, out: &mut Writer<'_>) {
        out.text(&self[..self.floor_char_boundary(MAX_TEXT)]);
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        from.text(what).map(str::to_owned)
    }
}

impl Field for ClientId {
    fn write(&self, out: &mut Writer<'_>) {
        out.text(self.as_str());
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        from.text(what)?.parse().map_err(|_| from.corrupt(what))
    }
}

impl<T: Field> Field for Option<T> {
    fn write(&self, out: &mut Writer<'_>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        from.flag(what)?.then(|| T::read(from, what)).transpose()
    }
}

impl<T: Field> Field for Vec<T> {
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.len() as u32);
        self.iter().for_each(|item| item.write(out));
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        // Not allocated by the count, which may be wrong.
        let mut out = Self::new();
        for _ in 0..from.u32(what)? {
            out.push(T::read(from, what)?);
        }
        Ok(out)
    }
}

impl<T: Field> Field for BTreeMap<ClientId, T> {
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.len() as u32);
        for (client, value) in self {
            client.write(out);
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        let mut out: Vec<(ClientId, T)> = Vec::new();
        for _ in 0..from.u32(what)? {
            let client = ClientId::read(from, what)?;
            if out.last().is_some_and(|(last, _)| *last >= client) {
                return Err(from.corrupt(what));
            }
            out.push((client, T::read(from, what)?));
        }
        // From a sorted vector, which is faster than one insertion after another.
        Ok(out.into_iter().collect())
    }
}

/// Nothing beside a client's name.
impl Field for () {
    fn write(&self, _: &mut Writer<'_>) {}

    fn read(_: &mut Reader<'_>, _: &str) -> Result<Self, Error> {
        Ok(())
    }
}

impl Field for BTreeSet<ClientId> {
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.len() as u32);
        self.iter().for_each(|client| client.write(out));
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        BTreeMap::<ClientId, ()>::read(from, what).map(|clients| clients.into_keys().collect())
    }
}

/// A count (u8), then each metric's name, value and weight, sorted by name.
impl Field for Arc<Metrics> {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(self.len() as u8);
        for (name, Metric { value, weight }) in self.iter() {
            out.text(name);
            out.f64(value);
            out.f64(weight);
        }
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        let mut metrics = Metrics::new();
        let mut before = "";
        for _ in 0..from.u8(what)? {
            let name = from.text(what)?;
            let (value, weight) = (from.f64(what)?, from.f64(what)?);
            let added = metrics.add(name, Metric { value, weight });
            if added.is_err() || name <= before {
                return Err(from.corrupt(what));
            }
            before = name;
        }
        Ok(metrics.into())
    }
}
