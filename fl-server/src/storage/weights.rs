//! Models as safetensors files: initial weights and exports.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fl_compress::weights::{self, BasePlan, Notes, TensorFile};
use fl_compress::{Digest, Error, Kinds, Layout, Role, TensorSpec, doubtful, kinds};

use crate::storage::disk::open_file;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FirstWeights {
    pub(crate) layout: Layout,
    /// `[layout.len()]`
    pub(crate) values: Vec<f32>,
    /// Local and frozen tensors, sorted by name.
    pub(crate) aside: Vec<TensorSpec>,
    /// The frozen tensors, if there are any.
    pub(crate) base: Option<Base>,
    pub(crate) origin: Origin,
    /// Names of trained tensors that may be running statistics.
    pub(crate) doubtful: String,
}

/// The frozen tensors of a model: a safetensors file of only them, whose digest is their identity.
#[derive(Clone, PartialEq)]
pub(crate) struct Base {
    pub(crate) digest: Digest,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base({}, {} bytes)", self.digest, self.bytes.len())
    }
}

/// The notes of a weights file about its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    /// Seed of `fl-client init`.
    pub(crate) seed: Option<u64>,
    /// Learner of `fl-client init`.
    pub(crate) learner: Option<String>,
}

impl Origin {
    fn of(notes: &Notes) -> Self {
        // A larger number cannot be written in a run.toml.
        let seed = notes.get(weights::SEED).and_then(|seed| seed.parse().ok());
        Self {
            seed: seed.filter(|&seed| i64::try_from(seed).is_ok()),
            learner: notes.get(weights::LEARNER).cloned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("model {} is not there; make it with `fl-client init --learner NAME -o {}`", .0.display(), .0.display())]
    Missing(PathBuf),
    #[error("model {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    /// The file is no safetensors file, holds a tensor of an unknown type or a value that is not finite, or the roles of the
    /// run.toml do not suit its tensors.
    #[error("model {}: {why}", path.display())]
    Invalid { path: PathBuf, why: String },
}

/// The role of each tensor, given those of the file and what their framework says of them; or which key of the run.toml and which
/// tensor do not fit.
pub(crate) type Assign<'a> = &'a dyn Fn(&[TensorSpec], &Kinds) -> Result<Vec<Role>, String>;

/// Reads the file at `path`. `assign` gives its tensors their roles.
///
/// # Errors
/// If the file cannot be read, is not a safetensors file, has a tensor of an unknown type or a value that is not finite, or
/// the roles do not suit its tensors; the text names the file and the tensor.
pub(crate) fn read(path: &Path, assign: Assign<'_>) -> Result<FirstWeights, WeightsError> {
    let mut bytes = Vec::new();
    let read = open_file(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|why| unreadable(path, why))?;
    from_bytes(&bytes, assign).map_err(|why| invalid(path, &why))
}

/// Reads the notes of the file at `path`, from its header only.
pub(crate) fn origin(path: &Path) -> Result<Origin, WeightsError> {
    let file = open_file(path).map_err(|why| unreadable(path, why))?;
    let notes = weights::read_notes(io::BufReader::new(file));
    let notes = notes.map_err(|why| invalid(path, &why))?;
    Ok(Origin::of(&notes))
}

fn unreadable(path: &Path, why: io::Error) -> WeightsError {
    let path = path.to_owned();
    match why.kind() {
        io::ErrorKind::NotFound => WeightsError::Missing(path),
        _ => WeightsError::Unreadable { path, why },
    }
}

pub(crate) fn invalid(path: &Path, why: &dyn fmt::Display) -> WeightsError {
    WeightsError::Invalid {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn from_bytes(bytes: &[u8], assign: Assign<'_>) -> anyhow::Result<FirstWeights> {
    let file = TensorFile::parse(bytes)?;
    let specs: Vec<TensorSpec> = file
        .tensors()
        .map(|(name, tensor)| TensorSpec::new(name, tensor.shape(), tensor.dtype, Role::default()))
        .collect();
    let kinds = kinds(file.notes())?;
    let roles = assign(&specs, &kinds).map_err(anyhow::Error::msg)?;
    let mut travelling = Vec::new();
    let mut aside = Vec::new();
    let mut frozen = Vec::new();
    let mut raw = Vec::new();
    for (((_, tensor), spec), role) in file.tensors().zip(specs).zip(roles) {
        let spec = TensorSpec { role, ..spec };
        spec.check()?;
        if role == Role::Frozen {
            frozen.push(spec.clone());
            raw.push(tensor.bytes);
        }
        if role.travels() {
            travelling.push(spec);
        } else {
            aside.push(spec);
        }
    }
    let layout = Layout::of(travelling)?;
    let doubtful = doubtful(&layout, &kinds);
    let mut values = vec![0.0; layout.len()];
    file.values(&layout, &mut values).map_err(|why| match why {
        Error::NotFinite(tensor) => anyhow::anyhow!(
            "{tensor} is not finite and cannot be trained; name the tensor of a mask in `model.frozen`, or in `model.local`"
        ),
        other => other.into(),
    })?;
    Ok(FirstWeights {
        layout,
        values,
        aside,
        base: base(&frozen, &raw)?,
        origin: Origin::of(file.notes()),
        doubtful,
    })
}

/// The file of frozen tensors, if there are any. `raw`: the bytes of each.
pub(crate) fn base<R: AsRef<[u8]>>(frozen: &[TensorSpec], raw: &[R]) -> Result<Option<Base>, Error> {
    let Some(plan) = BasePlan::of(frozen)? else {
        return Ok(None);
    };
    let bytes = plan.file(raw)?;
    Ok(Some(Base {
        digest: Digest::of(&bytes),
        bytes,
    }))
}

#[cfg(test)]
mod tests {
    use fl_compress::Dtype;
    use fl_compress::weights::FilePlan;

    use super::*;
    use crate::config::plan::Roles;

    #[test]
    fn a_header_that_two_readers_would_read_differently_is_refused() {
        let header = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 24]].concat();
        let why = from_bytes(&bytes, &trained).unwrap_err().to_string();
        assert!(why.contains("tensor `w` occurs twice"), "{why}");
    }

    fn trained(tensors: &[TensorSpec], _: &Kinds) -> Result<Vec<Role>, String> {
        Ok(vec![Role::Trained; tensors.len()])
    }

    #[test]
    fn a_type_that_does_not_suit_its_role_is_named() {
        let header = br#"{"seen":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[0; 8]].concat();
        let why = from_bytes(&bytes, &trained).unwrap_err().to_string();
        assert!(why.contains("`seen` is I64"), "{why}");
    }

    #[test]
    fn the_framework_that_wrote_the_file_decides_roles_and_what_is_doubtful() {
        let names = ["loss.pos_weight", "policy.log_std", "policy.mean", "w.var_of_site"];
        let specs = names.map(|name| TensorSpec::new(name, &[1], Dtype::F32, Role::Trained));
        let layout = Layout::of(specs).unwrap();
        let read = |notes: &Notes, roles: &Roles| {
            let plan = FilePlan::new(&layout, &[], notes).unwrap();
            let mut bytes = vec![0; plan.len()];
            plan.write(&[0.0; 4], &[] as &[Vec<u8>], &mut bytes).unwrap();
            let first = from_bytes(&bytes, &|tensors, kinds| roles.assign(tensors, kinds)).unwrap();
            let roles: Vec<Role> = names
                .map(|name| {
                    let tensor = first.layout.tensors().iter().find(|tensor| tensor.name == name);
                    tensor.unwrap().role
                })
                .to_vec();
            (roles, first.doubtful)
        };
        let (trained, buffer) = (Role::Trained, Role::Buffer);
        assert_eq!(
            read(&Notes::new(), &Roles::default()),
            (
                vec![trained, trained, buffer, trained],
                "`policy.log_std`, `w.var_of_site`".to_owned()
            )
        );
        let kinds = r#"{"loss.pos_weight":"buffer","policy.log_std":"parameter","policy.mean":"parameter"}"#;
        let notes = Notes::from([(weights::KINDS.to_owned(), kinds.to_owned())]);
        assert_eq!(
            read(&notes, &Roles::default()),
            (vec![buffer, trained, trained, trained], "`w.var_of_site`".to_owned())
        );
        let all = Roles {
            trained: Some(names.map(str::to_owned).to_vec()),
            ..Roles::default()
        };
        assert_eq!(read(&notes, &all).1, "`loss.pos_weight`, `w.var_of_site`");
    }

    #[test]
    fn tensors_go_where_their_roles_say_and_the_base_does_not_depend_on_the_others() {
        let spec = |name: &str, dtype, role| TensorSpec::new(name, &[2], dtype, role);
        let layout = Layout::of([
            spec("bn.num_batches_tracked", Dtype::I64, Role::Counter),
            spec("bn.running_var", Dtype::F32, Role::Buffer),
            spec("fc.lora_a", Dtype::Bf16, Role::Trained),
        ]);
        let layout = layout.unwrap();
        let aside = [
            spec("fc.weight", Dtype::F16, Role::Frozen),
            spec("head.weight", Dtype::F32, Role::Local),
        ];
        let raw = [vec![0, 60, 0, 60], [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat()];
        let of = |name: &str| match name {
            "fc.weight" => Role::Frozen,
            "head.weight" => Role::Local,
            name => layout.tensors().iter().find(|tensor| tensor.name == name).unwrap().role,
        };
        let roles = |tensors: &[TensorSpec], _: &Kinds| -> Result<Vec<Role>, String> {
            Ok(tensors.iter().map(|tensor| of(&tensor.name)).collect())
        };
        let read = |values: &[f32], raw: &[Vec<u8>]| {
            let plan = FilePlan::new(&layout, &aside, &Notes::new()).unwrap();
            let mut bytes = vec![0; plan.len()];
            plan.write(values, raw, &mut bytes).unwrap();
            from_bytes(&bytes, &roles).unwrap()
        };
        // Trained, buffer, counter.
        let first = read(&[0.5, -1.0, 3.0, 4.0, 7.0, 9.0], &raw);
        assert_eq!(
            (&first.layout, &first.values[..]),
            (&layout, &[0.5, -1.0, 3.0, 4.0, 7.0, 9.0][..])
        );
        assert_eq!(first.aside, aside);
        let base = first.base.unwrap();
        let file = TensorFile::parse(&base.bytes).unwrap();
        assert_eq!(file.tensors().map(|(name, _)| name).collect::<Vec<_>>(), ["fc.weight"]);
        assert_eq!(file.raw(&aside[0]).unwrap(), raw[0]);
        let other = [raw[0].clone(), vec![0; 8]];
        assert_eq!(read(&[0.0; 6], &other).base.unwrap().digest, base.digest);
        let other = [vec![0, 60, 0, 61], raw[1].clone()];
        assert_ne!(read(&[0.0; 6], &other).base.unwrap().digest, base.digest);
    }

    #[test]
    fn a_mask_of_minus_infinity_may_be_frozen_or_local_and_is_not_trained() {
        let mask = TensorSpec::new("mask", &[2], Dtype::F32, Role::Frozen);
        let plan = FilePlan::new(&Layout::new([("w", vec![1])]).unwrap(), &[mask], &Notes::new()).unwrap();
        let mut bytes = vec![0; plan.len()];
        let raw = [[0f32.to_le_bytes(), f32::NEG_INFINITY.to_le_bytes()].concat()];
        plan.write(&[1.0], &raw, &mut bytes).unwrap();
        let read = |role| {
            from_bytes(&bytes, &move |tensors, _| {
                let of = |tensor: &TensorSpec| if tensor.name == "w" { Role::Trained } else { role };
                Ok(tensors.iter().map(of).collect())
            })
        };
        assert_eq!(read(Role::Frozen).unwrap().aside.len(), 1);
        assert_eq!(read(Role::Local).unwrap().aside.len(), 1);
        let why = read(Role::Trained).unwrap_err().to_string();
        assert!(
            why.contains("tensor `mask`, value 1 is not finite") && why.contains("`model.frozen`"),
            "{why}"
        );
    }

    #[test]
    fn the_origin_is_what_the_notes_say_and_nothing_if_they_say_no_number() {
        let layout = Layout::new([("w", vec![2])]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("init.safetensors");
        for (text, seed) in [
            ("42", Some(42)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("-1", None),
            ("x", None),
        ] {
            let notes = Notes::from([(weights::SEED.to_owned(), text.to_owned())]);
            let bytes = weights::to_safetensors_with(&layout, &[1.0, 2.0], &[], &notes).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let origin = origin(&path).unwrap();
            assert_eq!((origin.seed, &origin.learner), (seed, &None), "{text}");
            assert_eq!(read(&path, &trained).unwrap().origin, origin);
        }
        std::fs::write(&path, weights::to_safetensors(&layout, &[1.0, 2.0]).unwrap()).unwrap();
        assert_eq!(origin(&path).unwrap(), Origin::default());
        for broken in [&b""[..], b"\xff\xff\xff\xff\xff\xff\xff\xff{}", b"\x09\0\0\0\0\0\0\0{}"] {
            std::fs::write(&path, broken).unwrap();
            assert!(
                origin(&path).unwrap_err().to_string().contains("safetensors"),
                "{broken:?}"
            );
        }
        let missing = origin(&dir.path().join("none.safetensors")).unwrap_err().to_string();
        assert!(
            missing.contains("none.safetensors is not there; make it with `fl-client init"),
            "{missing}"
        );
    }
}
