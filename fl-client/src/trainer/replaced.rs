//! Constants of this client, such as class weights, that a run replaces with those of its first weights.

use std::fs::File;
use std::io::{self, Cursor};
use std::path::PathBuf;

use fl_compress::weights::TensorReader;
use fl_compress::{Kind, Kinds, Layout};
use fl_proto::open_regular;

/// Longest tensor that is compared, in values. Constants of a site are short.
const MOST: usize = 4096;

/// The tensors of `layout`, other than parameters, in which the trainer's own first weights differ from the loaded ones, and which
/// training left as they were loaded. `files`: own and loaded weights; `result`: the bytes of the file of those trained.
pub(super) fn replaced(layout: &Layout, kinds: &Kinds, files: &[PathBuf; 2], result: &[u8]) -> io::Result<Vec<String>> {
    let open = |path| TensorReader::open(open_regular(File::options().read(true), path)?);
    let mut own = open(&files[0])?;
    let mut loaded = open(&files[1])?;
    let mut result = TensorReader::open(Cursor::new(result))?;
    let short = layout
        .tensors()
        .iter()
        .filter(|tensor| tensor.dtype.is_float() && tensor.len <= MOST);
    let mut names = Vec::new();
    for name in short
        .map(|tensor| &tensor.name)
        .filter(|name| kinds.get(*name) != Some(&Kind::Parameter))
    {
        let given = loaded.values(name)?;
        if own.values(name)? != given && result.values(name)? == given {
            names.push(name.clone());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use fl_compress::weights::to_safetensors;

    use super::*;

    #[test]
    fn constants_that_the_run_replaced_are_those_that_training_leaves_alone() {
        let names = ["bn.running_mean", "fc.weight", "frozen.bias", "pos_weight", "same"];
        let layout = Layout::new(names.map(|name| (name, vec![1]))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let files = ["own", "loaded"].map(|name| dir.path().join(name));
        let file = |values: [f32; 5]| to_safetensors(&layout, &values).unwrap();
        std::fs::write(&files[0], file([0.5, 1.0, 2.0, 3.0, 4.0])).unwrap();
        std::fs::write(&files[1], file([0.0, 0.1, 0.2, 0.3, 4.0])).unwrap();
        let result = file([0.7, 0.2, 0.2, 0.3, 4.0]);
        let kinds = Kinds::from([("frozen.bias".to_owned(), Kind::Parameter)]);
        let found = replaced(&layout, &kinds, &files, &result);
        assert_eq!(found.unwrap(), ["pos_weight"]);
        assert!(replaced(&layout, &kinds, &files, &result[..9]).is_err());
    }
}
