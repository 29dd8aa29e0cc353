//! The frozen tensors of a model, and the search for them in larger files.

use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::Metadata;

use crate::digest::Digest;
use crate::error::Error;
use crate::layout::{Layout, Role, TensorSpec};
use crate::weights::header::{self, own_type};
use crate::weights::notes::Notes;
use crate::weights::plan::FilePlan;

// Bytes that are read at once.
const BLOCK: usize = 1024 * 1024;
// Longest header of a file that is searched, in bytes: about 100,000 tensors.
const MAX_HEADER: u64 = 16 << 20;

/// The file of a model's frozen tensors: a safetensors file of them alone, without metadata texts. The digest of this file
/// is the identity of the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasePlan {
    plan: FilePlan,
    /// In the order of [`FilePlan::new`].
    tensors: Vec<TensorSpec>,
}

impl BasePlan {
    /// The file of the frozen ones of `tensors`; `None` if there are none.
    ///
    /// # Errors
    /// As [`FilePlan::new`].
    pub fn of(tensors: &[TensorSpec]) -> Result<Option<Self>, Error> {
        let frozen = tensors.iter().filter(|tensor| tensor.role == Role::Frozen);
        let tensors: Vec<TensorSpec> = frozen.cloned().collect();
        if tensors.is_empty() {
            return Ok(None);
        }
        let plan = FilePlan::new(&Layout::of([])?, &tensors, &Notes::new())?;
        Ok(Some(Self { plan, tensors }))
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.plan.len() as u64
    }

    /// The bytes of the file. `raw`: the bytes of each frozen tensor, in the order in which [`BasePlan::of`] got them.
    ///
    /// # Errors
    /// As [`FilePlan::write`].
    pub fn file<R: AsRef<[u8]>>(&self, raw: &[R]) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.plan.len()];
        self.plan.write(&[], raw, &mut bytes)?;
        Ok(bytes)
    }

    /// The digest of the frozen tensors in a safetensors file, which may have others beside them. The header is checked
    /// before a value is read; values are read in blocks.
    ///
    /// # Errors
    /// `InvalidData` if the file is no safetensors file, or lacks a tensor or has it in another type or shape; the error
    /// names the tensor. Errors of `file`.
    pub fn digest_in(&self, file: &mut (impl Read + Seek)) -> io::Result<Digest> {
        let (data, header) = read_header(file)?;
        let mut places = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let name = &tensor.name;
            let found = header
                .info(name)
                .ok_or_else(|| invalid(format!("tensor `{name}` is missing")))?;
            if own_type(found.dtype) != Some(tensor.dtype) || found.shape != tensor.shape {
                return Err(invalid(format!(
                    "tensor `{name}` is {} {:?}; {} {:?} is expected",
                    found.dtype,
                    found.shape,
                    tensor.dtype.name(),
                    tensor.shape
                )));
            }
            places.push(data + found.data_offsets.0 as u64);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.plan.head());
        let mut block = vec![0; BLOCK];
        for (at, len) in self.plan.raw() {
            file.seek(SeekFrom::Start(places[at]))?;
            let mut left = len;
            while left > 0 {
                let block = &mut block[..left.min(BLOCK)];
                file.read_exact(block)?;
                hasher.update(block);
                left -= block.len();
            }
        }
        Ok(Digest(*hasher.finalize().as_bytes()))
    }
}

/// The header of a complete safetensors file, and the offset of its values.
pub(crate) fn read_header(file: &mut (impl Read + Seek)) -> io::Result<(u64, Metadata)> {
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut front = [0; header::LENGTH];
    file.read_exact(&mut front)?;
    let head = u64::from_le_bytes(front);
    if head > MAX_HEADER || head > len {
        return Err(invalid(format!("not a safetensors file: a header of {head} bytes")));
    }
    let mut bytes = front.to_vec();
    file.take(head).read_to_end(&mut bytes)?;
    let header: Metadata = bytes
        .get(header::LENGTH..)
        .and_then(|text| serde_json::from_slice(text).ok())
        .ok_or_else(|| invalid("not a safetensors file: its header cannot be read"))?;
    header::expect_unique(&bytes).map_err(invalid)?;
    // The header is valid: its tensors follow each other without gaps.
    let data = header::LENGTH as u64 + head;
    if data + header.data_len() as u64 != len {
        return Err(invalid(
            "not a complete safetensors file: its length is not that of its tensors",
        ));
    }
    Ok((data, header))
}

pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::layout::Dtype;

    fn specs() -> Vec<TensorSpec> {
        vec![
            TensorSpec::new("embed.weight", &[3, 2], Dtype::F16, Role::Frozen),
            TensorSpec::new("head.bias", &[2], Dtype::F32, Role::Local),
            TensorSpec::new("ids", &[2], Dtype::I64, Role::Frozen),
        ]
    }

    fn raw() -> [Vec<u8>; 2] {
        [(0..12).collect(), (20..36).collect()]
    }

    /// A file with the frozen tensors of [`specs`] and others.
    fn larger() -> Vec<u8> {
        let layout = Layout::new([("fc.lora_a", vec![4])]).unwrap();
        let mut tensors = specs();
        tensors.push(TensorSpec::new("a.first", &[5], Dtype::U8, Role::Local));
        let notes = Notes::from([("format".to_owned(), "pt".to_owned())]);
        let plan = FilePlan::new(&layout, &tensors, &notes).unwrap();
        let [embed, ids] = raw();
        let mut bytes = vec![0; plan.len()];
        plan.write(&[1.0; 4], &[embed, vec![7; 8], ids, vec![9; 5]], &mut bytes)
            .unwrap();
        bytes
    }

    fn plan() -> BasePlan {
        BasePlan::of(&specs()).unwrap().unwrap()
    }

    fn digest_in(bytes: &[u8]) -> io::Result<Digest> {
        plan().digest_in(&mut Cursor::new(bytes))
    }

    #[test]
    fn a_base_has_one_digest_alone_and_among_others() {
        let alone = plan().file(&raw()).unwrap();
        assert_eq!(alone.len() as u64, plan().file_len());
        assert_eq!(digest_in(&alone).unwrap(), Digest::of(&alone));
        assert_eq!(digest_in(&larger()).unwrap(), Digest::of(&alone));
        let [embed, mut ids] = raw();
        ids[15] ^= 1;
        let other = plan().file(&[embed, ids]).unwrap();
        assert_ne!(digest_in(&other).unwrap(), Digest::of(&alone));
    }

    #[test]
    fn a_model_without_frozen_tensors_has_no_base() {
        assert_eq!(BasePlan::of(&specs()[1..2]).unwrap(), None);
    }

    #[test]
    fn files_without_the_tensors_are_refused_by_name() {
        let mut other = specs();
        other[2].shape = vec![1, 2];
        let file = BasePlan::of(&other).unwrap().unwrap().file(&raw()).unwrap();
        let why = digest_in(&file).unwrap_err().to_string();
        assert!(why.contains("`ids` is I64 [1, 2]; I64 [2] is expected"), "{why}");
        other.remove(2);
        let [embed, _] = raw();
        let file = BasePlan::of(&other).unwrap().unwrap().file(&[embed]).unwrap();
        let why = digest_in(&file).unwrap_err().to_string();
        assert!(why.contains("`ids` is missing"), "{why}");
    }

    #[test]
    fn broken_files_are_refused_and_nothing_is_allocated_for_their_claims() {
        let file = larger();
        for len in 0..file.len() {
            assert!(digest_in(&file[..len]).is_err(), "{len}");
        }
        assert!(digest_in(&[&file[..], &[0]].concat()).is_err());
        let mut huge = file.clone();
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let why = digest_in(&huge).unwrap_err().to_string();
        assert!(why.contains("a header of 18446744073709551615 bytes"), "{why}");
        let twice = br#"{"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}"#;
        let file = [&(twice.len() as u64).to_le_bytes(), &twice[..], &[0; 16]].concat();
        let why = digest_in(&file).unwrap_err().to_string();
        assert!(why.contains("`ids` occurs twice"), "{why}");
    }
}
