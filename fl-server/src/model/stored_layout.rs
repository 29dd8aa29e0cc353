//! Tensors as they are stored: name, shape, type and role.

use fl_compress::{Dtype, Error, Layout, Role, TensorSpec};
use serde::{Deserialize, Serialize};

/// A stored tensor: `["name", [2, 3], "F16", "buffer"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub(crate) struct StoredTensor(pub(crate) TensorSpec);

type Parts = (String, Vec<usize>, String, String);

pub(crate) fn stored(layout: &Layout) -> Vec<StoredTensor> {
    layout
        .tensors()
        .iter()
        .map(TensorSpec::from)
        .map(StoredTensor)
        .collect()
}

/// The layout of stored tensors.
pub(crate) fn layout(tensors: &[StoredTensor]) -> Result<Layout, Error> {
    Layout::of(tensors.iter().map(|tensor| tensor.0.clone()))
}

impl From<StoredTensor> for Parts {
    fn from(StoredTensor(spec): StoredTensor) -> Self {
        (
            spec.name,
            spec.shape,
            spec.dtype.name().to_owned(),
            spec.role.name().to_owned(),
        )
    }
}

impl TryFrom<Parts> for StoredTensor {
    type Error = String;

    fn try_from((name, shape, dtype, role): Parts) -> Result<Self, String> {
        let Some(dtype) = Dtype::find(&dtype) else {
            return Err(format!("unknown type of tensor `{name}`: `{dtype}`"));
        };
        let Some(role) = Role::ALL.into_iter().find(|known| known.name() == role) else {
            return Err(format!("unknown role of tensor `{name}`: `{role}`"));
        };
        Ok(Self(TensorSpec {
            dtype,
            role,
            name,
            shape,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_stored_with_type_and_role() {
        let text = r#"[["w",[2],"BF16","trained"],["m",[2],"F32","buffer"],["n",[],"I64","counter"]]"#;
        let tensors: Vec<StoredTensor> = serde_json::from_str(text).unwrap();
        let layout = super::layout(&tensors).unwrap();
        assert_eq!(layout.counters().len(), 1);
        assert_eq!(serde_json::to_string(&stored(&layout)).unwrap(), text);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (text, why) in [
            (r#"["w",[2]]"#, "invalid length 2"),
            (r#"["w",[2],"F8","trained"]"#, "unknown type of tensor `w`: `F8`"),
            (r#"["w",[2],"F32","shared"]"#, "unknown role of tensor `w`: `shared`"),
            (r#"["w",[2],"F32","buffer",1]"#, "trailing"),
        ] {
            let refused = serde_json::from_str::<StoredTensor>(text).unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
