//! The `[model]` table of a run.toml: first weights, and the roles of their tensors.

use std::fmt;
use std::path::PathBuf;

use fl_compress::{Kinds, Role, TensorSpec, name_matches};
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::plan::error::{PlanError, rule};
use crate::config::plan::rounded::RoundedVersions;

/// Most names in an error.
const FEW: usize = 6;

/// Patterns of tensor names for each role; `*` matches any text.
///
/// A tensor that no pattern matches has the role that [`Role::by_default`] gives it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Roles {
    /// Trained tensors; the other floating-point tensors are then frozen by default.
    pub trained: Option<Vec<String>>,
    /// Running statistics.
    pub buffer: Vec<String>,
    /// Integers of which the largest counts.
    pub counter: Vec<String>,
    /// Tensors that stay on the client.
    pub local: Vec<String>,
    /// Tensors that nobody changes.
    pub frozen: Vec<String>,
}

impl Roles {
    fn patterns(&self) -> [(Role, &[String]); 5] {
        [
            (Role::Trained, self.trained.as_deref().unwrap_or_default()),
            (Role::Buffer, &self.buffer),
            (Role::Counter, &self.counter),
            (Role::Local, &self.local),
            (Role::Frozen, &self.frozen),
        ]
    }

    /// The role of each of `tensors`, in their order; those that they have do not matter.
    ///
    /// # Errors
    /// A text that names the key and the tensor, and what to do: a pattern matches no tensor; two keys match the same
    /// tensor; the type of a tensor does not suit its role; no tensor is trained.
    pub fn assign(&self, tensors: &[TensorSpec], kinds: &Kinds) -> Result<Vec<Role>, String> {
        for (role, patterns) in self.patterns() {
            for pattern in patterns {
                if !tensors.iter().any(|tensor| name_matches(pattern, &tensor.name)) {
                    return Err(format!(
                        "`model.{}` has the pattern `{pattern}`, which matches no tensor; the file has {}",
                        role.name(),
                        some(tensors)
                    ));
                }
            }
        }
        let roles: Result<Vec<Role>, String> = tensors.iter().map(|tensor| self.role(tensor, kinds)).collect();
        let roles = roles?;
        if !roles.contains(&Role::Trained) {
            return Err(format!(
                "no tensor is trained; name some in `model.trained`, or fewer in the other lists; the file has {}",
                some(tensors)
            ));
        }
        Ok(roles)
    }

    fn role(&self, tensor: &TensorSpec, kinds: &Kinds) -> Result<Role, String> {
        let TensorSpec { name, dtype, .. } = tensor;
        let mut found: Option<(Role, &str)> = None;
        for (role, patterns) in self.patterns() {
            let Some(pattern) = patterns.iter().find(|pattern| name_matches(pattern, name)) else {
                continue;
            };
            if let Some((other, before)) = found {
                return Err(format!(
                    "tensor `{name}` matches both `{before}` of `model.{}` and `{pattern}` of `model.{}`; change one of the two",
                    other.name(),
                    role.name()
                ));
            }
            found = Some((role, pattern.as_str()));
        }
        let kind = kinds.get(name).copied();
        let (role, pattern) = match found {
            None => return Ok(Role::by_default(tensor, kind, self.trained.is_some())),
            // Of many names, statistics and integers stay what they are.
            Some((Role::Trained, pattern)) if pattern.contains('*') => {
                return Ok(Role::by_default(tensor, kind, false));
            }
            Some((Role::Buffer, pattern)) if pattern.contains('*') && !dtype.is_float() => {
                return Ok(Role::by_default(tensor, kind, self.trained.is_some()));
            }
            Some(found) => found,
        };
        let suits = match role {
            Role::Trained | Role::Buffer => dtype.is_float(),
            Role::Counter => !dtype.is_float(),
            Role::Local | Role::Frozen => true,
        };
        if suits {
            return Ok(role);
        }
        let (kind, other) = match role {
            Role::Counter => ("a floating-point", "`model.trained` or `model.buffer`"),
            _ => ("an integer", "`model.counter` or `model.frozen`"),
        };
        Err(format!(
            "tensor `{name}` is {}, {kind} type, and cannot be {} (pattern `{pattern}` of `model.{}`); name it in {other}",
            dtype.name(),
            match role {
                Role::Trained => "trained",
                Role::Buffer => "a buffer",
                _ => "a counter",
            },
            role.name()
        ))
    }
}

fn some(tensors: &[TensorSpec]) -> String {
    let few = tensors.iter().take(FEW);
    let names: Vec<String> = few.map(|tensor| format!("`{}`", tensor.name)).collect();
    match tensors.len().saturating_sub(FEW) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// `model = "FILE"`, or the table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawModel {
    pub(super) weights: PathBuf,
    trained: Option<Vec<String>>,
    #[serde(default)]
    buffer: Vec<String>,
    #[serde(default)]
    counter: Vec<String>,
    #[serde(default)]
    local: Vec<String>,
    #[serde(default)]
    frozen: Vec<String>,
    /// Whether clients without the frozen tensors fetch them from the server.
    #[serde(default)]
    pub(super) serve_base: bool,
    pub(super) snapshot: Option<RoundedVersions>,
    /// Whether the short form was used, for the names in errors.
    #[serde(skip)]
    is_short: bool,
}

impl RawModel {
    /// The key of the file.
    pub(super) fn key(&self) -> &'static str {
        if self.is_short { "model" } else { "model.weights" }
    }

    /// Checks what needs no file, and takes the roles.
    pub(super) fn checked(&mut self) -> Result<Roles, PlanError> {
        let file = self.weights.display().to_string();
        rule(!file.is_empty(), self.key(), &file, "must name a safetensors file")?;
        let roles = Roles {
            trained: self.trained.take(),
            buffer: std::mem::take(&mut self.buffer),
            counter: std::mem::take(&mut self.counter),
            local: std::mem::take(&mut self.local),
            frozen: std::mem::take(&mut self.frozen),
        };
        if roles.trained.as_ref().is_some_and(Vec::is_empty) {
            rule(
                false,
                "model.trained",
                &"[]",
                "names no tensor; list patterns such as \"*lora_*\", or remove the key to train every tensor",
            )?;
        }
        for (role, patterns) in roles.patterns() {
            let key = format!("model.{}", role.name());
            rule(
                !patterns.iter().any(String::is_empty),
                &key,
                &"\"\"",
                "matches no tensor; a pattern is a name, in which * matches any text",
            )?;
        }
        self.snapshot = self.snapshot.map(RoundedVersions::checked).transpose()?;
        Ok(roles)
    }
}

/// Reads the name of a file, or the table.
pub(super) fn file_or_table<'de, D: Deserializer<'de>>(from: D) -> Result<RawModel, D::Error> {
    from.deserialize_any(FileOrTable)
}

struct FileOrTable;

impl<'de> Visitor<'de> for FileOrTable {
    type Value = RawModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a safetensors file, or a table with `weights` and lists of patterns by role")
    }

    fn visit_str<E>(self, file: &str) -> Result<RawModel, E> {
        Ok(RawModel {
            weights: file.into(),
            is_short: true,
            ..RawModel::default()
        })
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RawModel, M::Error> {
        RawModel::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use fl_compress::Dtype;

    use super::*;

    const RESNET: [(&str, Dtype); 7] = [
        ("bn.bias", Dtype::F32),
        ("bn.num_batches_tracked", Dtype::I64),
        ("bn.running_mean", Dtype::F32),
        ("bn.running_var", Dtype::F32),
        ("conv.weight", Dtype::F32),
        ("fc.weight", Dtype::F16),
        ("mask", Dtype::Bool),
    ];

    fn roles(text: &str) -> Roles {
        let mut raw: RawModel = toml::from_str(&format!("weights = 'w'\n{text}")).unwrap();
        raw.checked().unwrap()
    }

    fn assigned(text: &str) -> Result<String, String> {
        let tensors = RESNET.map(|(name, dtype)| TensorSpec::new(name, &[2, 2], dtype, Role::Trained));
        let roles = roles(text).assign(&tensors, &Kinds::new())?;
        Ok(roles.iter().map(|role| &role.name()[..1]).collect())
    }

    #[test]
    fn batch_normalization_is_known_and_a_list_of_trained_tensors_freezes_the_others() {
        assert_eq!(assigned("").unwrap(), "tcbbttf");
        assert_eq!(assigned("trained = ['fc.*']").unwrap(), "fcbbftf");
        assert_eq!(assigned("trained = ['bn.*', 'm*']").unwrap(), "tcbbfff");
        assert_eq!(assigned("trained = ['bn.running_var']").unwrap(), "fcbtfff");
        assert_eq!(assigned("local = ['bn.*']").unwrap(), "llllttf");
        assert_eq!(assigned("buffer = ['bn.*']").unwrap(), "bcbbttf");
        let text = "trained = ['*.weight']\nfrozen = ['*running*']\ncounter = ['mask']";
        assert_eq!(assigned(text).unwrap(), "fcffttc");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_key_tensor_and_remedy() {
        for (text, expected) in [
            (
                "local = ['head.*']",
                "`model.local` has the pattern `head.*`, which matches no tensor; the file has `bn.bias`",
            ),
            (
                "local = ['fc.*']\nfrozen = ['*.weight']",
                "`fc.weight` matches both `fc.*` of `model.local` and `*.weight` of `model.frozen`; change one",
            ),
            (
                "trained = ['bn.num_batches_tracked']",
                "`bn.num_batches_tracked` is I64, an integer type, and cannot be trained (pattern `bn.num_batches_tracked` of `model.trained`); \
                 name it in `model.counter` or `model.frozen`",
            ),
            (
                "buffer = ['mask']",
                "`mask` is BOOL, an integer type, and cannot be a buffer",
            ),
            (
                "counter = ['conv.weight']",
                "`conv.weight` is F32, a floating-point type, and cannot be a counter",
            ),
            ("frozen = ['*']", "no tensor is trained; name some in `model.trained`"),
        ] {
            let why = assigned(text).unwrap_err();
            assert!(why.contains(expected), "{text}\n{why}");
        }
    }
}
