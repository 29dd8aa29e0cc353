//! The condition of a rule.

use serde::{Deserialize, Serialize};

use crate::layout::Tensor;

/// A condition on a tensor: all given fields must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of min_len, max_len, min_dims, max_dims and name"
)]
pub struct When {
    /// Minimum number of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_len: Option<usize>,
    /// Maximum number of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_len: Option<usize>,
    /// Minimum number of dimensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_dims: Option<usize>,
    /// Maximum number of dimensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dims: Option<usize>,
    /// Pattern of the name; `*` matches any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl When {
    /// Whether `tensor` satisfies every condition.
    pub fn holds(&self, tensor: &Tensor) -> bool {
        let within = |value, min: Option<usize>, max: Option<usize>| {
            min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
        };
        within(tensor.len, self.min_len, self.max_len)
            && within(tensor.shape.len(), self.min_dims, self.max_dims)
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| name_matches(pattern, &tensor.name))
    }
}

/// Whether `name` matches `pattern`, in which `*` matches any text.
// Greedy: finds the parts between stars from the left, and the last part at the end.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use crate::spec::when::name_matches;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*", "any.thing"),
            ("*.bias", "conv1.bias"),
            ("conv*.weight", "conv12.weight"),
            ("a*b*c", "a-bb-cc"),
            ("**", "x"),
            ("layer.*.*.bias", "layer.0.fc.bias"),
        ] {
            assert!(name_matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a", "ab"),
            ("*.bias", "bias"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("", "x"),
            ("*b*", "acd"),
        ] {
            assert!(!name_matches(pattern, name), "{pattern} {name}");
        }
    }
}
