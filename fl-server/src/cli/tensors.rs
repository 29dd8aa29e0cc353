//! The tensors of a model as a table, with values and bytes per role.

use fl_compress::{Role, TensorSpec};

use crate::storage::weights::FirstWeights;

/// Lines about the tensors of `model`; none if all are trained and of type F32.
pub(super) fn lines(model: &FirstWeights) -> Vec<String> {
    let tensors = tensors(model);
    if tensors
        .iter()
        .all(|tensor| (tensor.dtype, tensor.role) == Default::default())
    {
        return Vec::new();
    }
    let mut rows = vec![["tensor", "type", "shape", "role", "values", "bytes"].map(str::to_owned)];
    for tensor in &tensors {
        let values = tensor.values().unwrap_or_default();
        rows.push([
            tensor.name.clone(),
            tensor.dtype.name().to_owned(),
            format!("{:?}", tensor.shape),
            tensor.role.name().to_owned(),
            values.to_string(),
            (values * tensor.dtype.width()).to_string(),
        ]);
    }
    let mut sums = vec![["role", "tensors", "values", "bytes", "sent"].map(str::to_owned)];
    for role in Role::ALL {
        let of = || tensors.iter().filter(|tensor| tensor.role == role);
        if of().next().is_none() {
            continue;
        }
        let values = |tensor: &TensorSpec| tensor.values().unwrap_or_default();
        sums.push([
            role.name().to_owned(),
            of().count().to_string(),
            of().map(values).sum::<usize>().to_string(),
            of().map(|tensor| values(tensor) * tensor.dtype.width())
                .sum::<usize>()
                .to_string(),
            sent(role).to_owned(),
        ]);
    }
    let mut lines = aligned(&rows, &[4, 5]);
    lines.push(String::new());
    lines.extend(aligned(&sums, &[1, 2, 3]));
    lines.extend(
        model
            .base
            .as_ref()
            .map(|base| format!("frozen tensors: digest {}", base.digest)),
    );
    lines
}

/// How tensors of a role travel.
fn sent(role: Role) -> &'static str {
    match role {
        Role::Trained => "compressed",
        Role::Buffer => "whole, averaged",
        Role::Counter => "whole, the largest counts",
        Role::Local => "never",
        Role::Frozen => "not in rounds",
    }
}

/// All tensors, sorted by name.
fn tensors(model: &FirstWeights) -> Vec<TensorSpec> {
    let travelling = model.layout.tensors().iter().map(TensorSpec::from);
    let mut tensors: Vec<TensorSpec> = travelling.chain(model.aside.iter().cloned()).collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}

/// Rows with columns of equal width; those `to_the_right` are aligned on the right.
fn aligned<const N: usize>(rows: &[[String; N]], to_the_right: &[usize]) -> Vec<String> {
    let widths: Vec<usize> = (0..N)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
            if to_the_right.contains(&at) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use fl_compress::{Dtype, Layout};

    use super::*;
    use crate::storage::weights::Origin;

    fn model(tensors: &[(&str, &[usize], Dtype, Role)]) -> FirstWeights {
        let specs = tensors
            .iter()
            .map(|(name, shape, dtype, role)| TensorSpec::new(*name, shape, *dtype, *role));
        let (travelling, aside): (Vec<_>, Vec<_>) = specs.partition(|spec| spec.role.travels());
        let layout = Layout::of(travelling).unwrap();
        FirstWeights {
            values: vec![0.0; layout.len()],
            layout,
            aside,
            base: None,
            origin: Origin::default(),
        }
    }

    #[test]
    fn the_table_has_values_and_bytes_of_each_tensor_and_role() {
        let model = model(&[
            ("fc.weight", &[2, 3], Dtype::F16, Role::Trained),
            ("bn.running_mean", &[4], Dtype::F32, Role::Buffer),
            ("bn.num_batches_tracked", &[], Dtype::I64, Role::Counter),
            ("head.bias", &[5], Dtype::F32, Role::Local),
        ]);
        assert_eq!(
            lines(&model).join("\n"),
            "tensor                  type  shape   role     values  bytes\n\
             bn.num_batches_tracked  I64   []      counter       1      8\n\
             bn.running_mean         F32   [4]     buffer        4     16\n\
             fc.weight               F16   [2, 3]  trained       6     12\n\
             head.bias               F32   [5]     local         5     20\n\
             \n\
             role     tensors  values  bytes  sent\n\
             trained        1       6     12  compressed\n\
             buffer         1       4     16  whole, averaged\n\
             counter        1       1      8  whole, the largest counts\n\
             local          1       5     20  never"
        );
    }

    #[test]
    fn a_plain_model_needs_no_table() {
        assert!(lines(&model(&[("w", &[2], Dtype::F32, Role::Trained)])).is_empty());
    }
}
