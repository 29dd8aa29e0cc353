//! The tensors of a model under construction.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor, Var, bail};
use fl_compress::{Dtype, Layout, MAX_VALUES, Role, TensorSpec};

use super::init::Init;

/// Tensors by name, all on one device.
#[derive(Debug)]
pub(super) struct Params {
    device: Device,
    values: usize,
    tensors: BTreeMap<String, Param>,
}

#[derive(Debug)]
struct Param {
    var: Var,
    role: Role,
    init: Init,
}

/// The tensors of a finished model, in the order of its layout.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) layout: Layout,
    /// One for each tensor of the layout; the first `trained` of them are trained.
    pub(super) vars: Vec<Var>,
    pub(super) trained: usize,
    pub(super) inits: Vec<Init>,
}

impl Params {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            values: 0,
            tensors: BTreeMap::new(),
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// A new trained tensor. It holds zeros until weights are loaded; training changes it in place.
    ///
    /// # Errors
    /// If the name is taken, the model is larger than a layout can be, or the device is out of memory.
    pub(super) fn tensor(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        init: Init,
    ) -> candle_core::Result<Tensor> {
        Ok(self.add(name.into(), shape, Role::Trained, init)?.as_tensor().clone())
    }

    /// A new buffer: a tensor that travels and is averaged, but that no gradient changes.
    ///
    /// # Errors
    /// As [`Params::tensor`].
    pub(super) fn buffer(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> candle_core::Result<Var> {
        self.add(name.into(), shape, Role::Buffer, init)
    }

    fn add(&mut self, name: String, shape: &[usize], role: Role, init: Init) -> candle_core::Result<Var> {
        if self.tensors.contains_key(&name) {
            bail!("tensor `{name}` is given twice");
        }
        let values = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        let total = values.and_then(|values| values.checked_add(self.values));
        let Some(total) = total.filter(|&total| total <= MAX_VALUES) else {
            bail!("tensor `{name}` of {shape:?} makes the model larger than {MAX_VALUES} values");
        };
        self.values = total;
        let var = Var::zeros(shape, DType::F32, &self.device)?;
        let param = Param {
            var: var.clone(),
            role,
            init,
        };
        self.tensors.insert(name, param);
        Ok(var)
    }

    /// # Errors
    /// If the model passes a limit of [`Layout`].
    pub(super) fn finish(self) -> anyhow::Result<Built> {
        let spec = |(name, param): (&String, &Param)| TensorSpec::new(name, param.var.dims(), Dtype::F32, param.role);
        let layout = Layout::of(self.tensors.iter().map(spec))?;
        let of = |name: &str| self.tensors.get(name);
        let params: Vec<&Param> = layout.tensors().iter().filter_map(|tensor| of(&tensor.name)).collect();
        let (vars, inits) = params.iter().map(|param| (param.var.clone(), param.init)).unzip();
        let trained = params.iter().filter(|param| param.role == Role::Trained).count();
        Ok(Built {
            layout,
            vars,
            trained,
            inits,
        })
    }
}
