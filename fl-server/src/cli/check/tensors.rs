//! The tensors of a model as a table, with values and bytes per role.

use fl_cli::findings::aligned;
use fl_compress::{Role, TensorSpec};
use serde::Serialize;

use crate::storage::weights::FirstWeights;

#[derive(Debug, Serialize)]
pub(super) struct TensorLine {
    name: String,
    #[serde(rename = "type")]
    dtype: &'static str,
    shape: Vec<usize>,
    role: &'static str,
    values: usize,
    bytes: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct RoleSum {
    role: &'static str,
    tensors: usize,
    values: usize,
    bytes: usize,
    sent: &'static str,
}

/// Every tensor of `model`, sorted by name.
pub(super) fn tensor_lines(model: &FirstWeights) -> Vec<TensorLine> {
    let lines = tensors(model).into_iter().map(|tensor| {
        let values = tensor.values().unwrap_or_default();
        TensorLine {
            dtype: tensor.dtype.name(),
            role: tensor.role.name(),
            values,
            bytes: values * tensor.dtype.width(),
            name: tensor.name,
            shape: tensor.shape,
        }
    });
    lines.collect()
}

/// The roles that tensors of `model` have, with sums.
pub(super) fn role_sums(model: &FirstWeights) -> Vec<RoleSum> {
    let lines = tensor_lines(model);
    let sums = Role::ALL.into_iter().map(|role| {
        let of_role = lines.iter().filter(|line| line.role == role.name());
        RoleSum {
            role: role.name(),
            tensors: of_role.clone().count(),
            values: of_role.clone().map(|line| line.values).sum(),
            bytes: of_role.map(|line| line.bytes).sum(),
            sent: sent(role),
        }
    });
    sums.filter(|sum| sum.tensors > 0).collect()
}

/// Lines about the tensors of `model`; none if all are trained and of type F32.
pub(super) fn lines(model: &FirstWeights) -> Vec<String> {
    if tensors(model)
        .iter()
        .all(|tensor| (tensor.dtype, tensor.role) == Default::default())
    {
        return Vec::new();
    }
    let mut rows = vec![["tensor", "type", "shape", "role", "values", "bytes"].map(str::to_owned)];
    rows.extend(tensor_lines(model).into_iter().map(|line| {
        [
            line.name,
            line.dtype.to_owned(),
            format!("{:?}", line.shape),
            line.role.to_owned(),
            line.values.to_string(),
            line.bytes.to_string(),
        ]
    }));
    let mut sums = vec![["role", "tensors", "values", "bytes", "sent"].map(str::to_owned)];
    sums.extend(role_sums(model).into_iter().map(|sum| {
        [
            sum.role.to_owned(),
            sum.tensors.to_string(),
            sum.values.to_string(),
            sum.bytes.to_string(),
            sum.sent.to_owned(),
        ]
    }));
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

fn sent(role: Role) -> &'static str {
    match role {
        Role::Trained => "compressed",
        Role::Buffer => "whole, averaged",
        Role::Counter => "whole, the largest counts",
        Role::Local => "never",
        Role::Frozen => "not in rounds",
    }
}

fn tensors(model: &FirstWeights) -> Vec<TensorSpec> {
    let travelling = model.layout.tensors().iter().map(TensorSpec::from);
    let mut tensors: Vec<TensorSpec> = travelling.chain(model.aside.iter().cloned()).collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
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
            doubtful: String::new(),
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
