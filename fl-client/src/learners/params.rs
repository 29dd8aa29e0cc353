//! The trainable tensors of a model under construction.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor, Var};
use fl_compress::Layout;

/// Tensors by name, all on one device.
#[derive(Debug)]
pub(super) struct Params {
    device: Device,
    vars: BTreeMap<String, Var>,
}

impl Params {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            vars: BTreeMap::new(),
        }
    }

    /// A new tensor of zeros. Training changes it in place.
    ///
    /// # Errors
    /// If the name is taken or the device is out of memory.
    pub(super) fn tensor(&mut self, name: String, shape: &[usize]) -> candle_core::Result<Tensor> {
        let var = Var::zeros(shape, DType::F32, &self.device)?;
        let tensor = var.as_tensor().clone();
        if self.vars.contains_key(&name) {
            candle_core::bail!("tensor `{name}` is given twice");
        }
        self.vars.insert(name, var);
        Ok(tensor)
    }

    /// The layout of all tensors, and the tensors in its order.
    ///
    /// # Errors
    /// If the model passes a limit of [`Layout`].
    pub(super) fn finish(self) -> anyhow::Result<(Layout, Vec<Var>)> {
        let layout = Layout::new(self.vars.iter().map(|(name, var)| (name.as_str(), var.dims().to_vec())))?;
        Ok((layout, self.vars.into_values().collect()))
    }
}
