//! Tensors as they are stored: name and shape, and type and role where the tensor is not a trained one of type F32, as
//! all tensors were before there were others.

use std::fmt;

use fl_compress::{Dtype, Error, Layout, Role, TensorSpec};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A stored tensor: `["name", [2, 3]]` or `["name", [2, 3], "F16", "buffer"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTensor(pub(crate) TensorSpec);

/// The stored tensors of a layout.
pub(crate) fn stored(layout: &Layout) -> Vec<StoredTensor> {
    let tensors = layout.tensors().iter();
    let spec = tensors.map(TensorSpec::from);
    spec.map(StoredTensor).collect()
}

/// The layout of stored tensors.
///
/// # Errors
/// As [`Layout::of`].
pub(crate) fn layout(tensors: &[StoredTensor]) -> Result<Layout, Error> {
    Layout::of(tensors.iter().map(|tensor| tensor.0.clone()))
}

impl Serialize for StoredTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TensorSpec {
            name,
            shape,
            dtype,
            role,
        } = &self.0;
        if (*dtype, *role) == Default::default() {
            (name, shape).serialize(serializer)
        } else {
            (name, shape, dtype.name(), role.name()).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for StoredTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Parts)
    }
}

struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = StoredTensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("name and shape of a tensor, or name, shape, type and role")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<StoredTensor, A::Error> {
        let missing = |at| -> A::Error { de::Error::invalid_length(at, &self) };
        let mut spec = TensorSpec {
            name: parts.next_element()?.ok_or_else(|| missing(0))?,
            shape: parts.next_element()?.ok_or_else(|| missing(1))?,
            ..TensorSpec::default()
        };
        if let Some(dtype) = parts.next_element::<String>()? {
            let role: String = parts.next_element()?.ok_or_else(|| missing(3))?;
            let unknown =
                |what: &str, name: &str| -> A::Error { de::Error::custom(format!("unknown {what} `{name}`")) };
            spec.dtype = Dtype::find(&dtype).ok_or_else(|| unknown("type of a tensor", &dtype))?;
            let known = Role::ALL.into_iter().find(|known| known.name() == role);
            spec.role = known.ok_or_else(|| unknown("role of a tensor", &role))?;
        }
        Ok(StoredTensor(spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tensors_are_stored_as_before_and_others_with_type_and_role() {
        let old = r#"[["w",[2,3]],["z",[]]]"#;
        let plain: Vec<StoredTensor> = serde_json::from_str(old).unwrap();
        let layout = super::layout(&plain).unwrap();
        assert_eq!(layout, Layout::new([("w", vec![2, 3]), ("z", vec![])]).unwrap());
        assert_eq!(serde_json::to_string(&stored(&layout)).unwrap(), old);
        let new = r#"[["w",[2],"BF16","trained"],["m",[2],"F32","buffer"],["n",[],"I64","counter"]]"#;
        let others: Vec<StoredTensor> = serde_json::from_str(new).unwrap();
        let layout = super::layout(&others).unwrap();
        assert_eq!(layout.counters().len(), 1);
        assert_eq!(serde_json::to_string(&stored(&layout)).unwrap(), new);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (text, why) in [
            (r#"["w"]"#, "invalid length 1"),
            (r#"["w",[2],"F8","trained"]"#, "unknown type of a tensor `F8`"),
            (r#"["w",[2],"F32","shared"]"#, "unknown role of a tensor `shared`"),
            (r#"["w",[2],"F32"]"#, "invalid length 3"),
            (r#"["w",[2],"F32","buffer",1]"#, "trailing"),
        ] {
            let refused = serde_json::from_str::<StoredTensor>(text).unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
