//! The tensors of a model: what is behind the `VarBuilder` that a model is built with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result, Shape, Tensor, Var, bail};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use fl_compress::{Dtype, Layout, MAX_VALUES, Role, TensorSpec};

/// Tensors by name, all on one device. A model that is built first makes them, zero until weights are loaded; a later build must ask
/// for the same ones and gets them. Training changes them in place.
#[derive(Debug, Clone)]
pub(super) struct Params(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    device: Device,
    values: usize,
    tensors: BTreeMap<String, Param>,
    /// Names that the present build has asked for.
    asked: BTreeSet<String>,
    is_built: bool,
    /// Whether candle's graph knows what is computed from the tensors.
    is_tracked: bool,
}

#[derive(Debug)]
struct Param {
    var: Var,
    role: Role,
    init: Init,
}

#[derive(Debug)]
pub(super) struct ModelTensors {
    pub(super) layout: Arc<Layout>,
    /// One for each tensor of the layout; the first `trained` of them are trained.
    pub(super) vars: Vec<Var>,
    pub(super) trained: usize,
    pub(super) inits: Vec<Init>,
}

impl Params {
    pub(super) fn new(device: &Device) -> Self {
        Self(Arc::new(Mutex::new(State {
            device: device.clone(),
            values: 0,
            tensors: BTreeMap::new(),
            asked: BTreeSet::new(),
            is_built: false,
            is_tracked: true,
        })))
    }

    /// Builds a model: the one that makes the tensors, or a further one with them. One that is not tracked keeps nothing for a way
    /// back.
    pub(super) fn build<T>(
        &self,
        is_tracked: bool,
        make: impl FnOnce(VarBuilder<'static>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let device = {
            let mut state = self.state();
            state.asked.clear();
            state.is_tracked = is_tracked;
            state.device.clone()
        };
        let model = make(VarBuilder::from_backend(Box::new(self.clone()), DType::F32, device))?;
        let mut state = self.state();
        if let Some(missing) = state.tensors.keys().find(|name| !state.asked.contains(*name)) {
            anyhow::bail!("tensor `{missing}` is not asked for each time that the model is built; it must be");
        }
        state.is_built = true;
        Ok(model)
    }

    pub(super) fn finish(&self) -> anyhow::Result<ModelTensors> {
        let state = self.state();
        let tensors = state.tensors.iter();
        let layout =
            Layout::of(tensors.map(|(name, param)| TensorSpec::new(name, param.var.dims(), Dtype::F32, param.role)))?;
        let tensors = layout.tensors().iter();
        let params: Vec<&Param> = tensors.filter_map(|tensor| state.tensors.get(&tensor.name)).collect();
        let (vars, inits) = params.iter().map(|param| (param.var.clone(), param.init)).unzip();
        let trained = params.iter().filter(|param| param.role == Role::Trained).count();
        Ok(ModelTensors {
            layout: Arc::new(layout),
            vars,
            trained,
            inits,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A model that panicked while it was built has left whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimpleBackend for Params {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.state().get(&shape, name, init, dtype, device)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        bail!(
            "tensor `{name}` is asked for without a shape; the first build must give one, by `get` or `get_with_hints`"
        )
    }

    /// Whether the present build has it: some layers look for other names of a tensor first.
    fn contains_tensor(&self, name: &str) -> bool {
        self.state().asked.contains(name)
    }
}

impl State {
    fn get(&mut self, shape: &Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let dims = shape.dims();
        if !self.asked.insert(name.to_owned()) {
            bail!("tensor `{name}` is asked for twice; give each its own name, or ask once and clone it to share it");
        }
        if dtype != DType::F32 || !device.same_device(&self.device) {
            bail!(
                "tensor `{name}` is asked for as {dtype:?} on {device:?}; the tensors of a model are F32 on its device"
            );
        }
        match self.tensors.get(name) {
            Some(param) if param.var.dims() == dims => {
                return Ok(if self.is_tracked {
                    param.var.as_tensor().clone()
                } else {
                    param.var.as_detached_tensor()
                });
            }
            Some(param) => bail!(
                "tensor `{name}` was {:?} when the model was first built, and now is {dims:?}",
                param.var.dims()
            ),
            None if self.is_built => bail!("tensor `{name}` was not asked for when the model was first built"),
            None => {}
        }
        if dims.contains(&0) {
            bail!(
                "tensor `{name}` of {dims:?} has no value: the examples are too small for the model, or a setting is 0"
            );
        }
        let values = dims.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        let total = values.and_then(|values| values.checked_add(self.values));
        let Some(total) = total.filter(|&total| total <= MAX_VALUES) else {
            bail!("tensor `{name}` of {dims:?} makes the model larger than {MAX_VALUES} values");
        };
        self.values = total;
        let var = Var::zeros(dims, DType::F32, &self.device)?;
        let tensor = var.as_tensor().clone();
        let role = role_of(name);
        self.tensors.insert(name.to_owned(), Param { var, role, init });
        Ok(tensor)
    }
}

/// Running statistics, by the names that PyTorch and candle-nn give them, travel and are averaged, but no gradient changes them.
fn role_of(name: &str) -> Role {
    match name.rsplit('.').next() {
        Some("running_mean" | "running_var") => Role::Buffer,
        _ => Role::Trained,
    }
}

impl ModelTensors {
    /// Replaces the values of all tensors. Shapes: `weights: [layout.len()]`.
    pub(super) fn load(&self, weights: &[f32]) -> Result<()> {
        load(&self.vars, self.layout.tensors(), weights)
    }
}

/// Replaces the values of `vars`, which are those of `tensors`. Shapes: `weights`: of the whole layout.
pub(super) fn load(vars: &[Var], tensors: &[fl_compress::Tensor], weights: &[f32]) -> Result<()> {
    for (var, tensor) in vars.iter().zip(tensors) {
        let values = &weights[tensor.offset..][..tensor.len];
        var.set(&Tensor::from_slice(values, tensor.shape.as_slice(), var.device())?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a second build says after a first.
    fn twice(first: &[(&str, usize)], second: &[(&str, usize)]) -> String {
        let params = Params::new(&Device::Cpu);
        let make = |parts: &[(&str, usize)]| {
            params.build(true, |vb| {
                for (name, len) in parts {
                    vb.get(*len, name)?;
                }
                Ok(())
            })
        };
        make(first).unwrap();
        make(second).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_further_build_has_the_same_tensors_or_is_refused_by_name() {
        let both = [("a", 2), ("b", 3)];
        assert_eq!(twice(&both, &[("b", 3), ("a", 2)]), "");
        for (second, why) in [
            (&[("a", 2)][..], "tensor `b` is not asked for each time"),
            (
                &[("a", 2), ("b", 4)],
                "tensor `b` was [3] when the model was first built, and now is [4]",
            ),
            (&[("a", 2), ("b", 3), ("c", 1)], "tensor `c` was not asked for"),
            (&[("a", 2), ("a", 2)], "tensor `a` is asked for twice"),
        ] {
            let error = twice(&both, second);
            assert!(error.contains(why), "{second:?}: {error}");
        }
    }

    #[test]
    fn tensors_are_f32_with_a_shape_and_within_the_limits() {
        let params = Params::new(&Device::Cpu);
        let refused = |make: fn(VarBuilder<'static>) -> Result<Tensor>| {
            params.build(true, |vb| Ok(make(vb)?)).unwrap_err().to_string()
        };
        assert!(refused(|vb| vb.to_dtype(DType::BF16).get(1, "a")).contains("`a` is asked for as BF16"));
        assert!(refused(|vb| vb.get_unchecked("a")).contains("without a shape"));
        assert!(refused(|vb| vb.get((usize::MAX, 3), "a")).contains("larger than"));
    }

    #[test]
    fn running_statistics_are_buffers_and_values_are_shared() {
        let params = Params::new(&Device::Cpu);
        let norm = |vb: VarBuilder<'static>| Ok(candle_nn::batch_norm(2, 1e-5, vb.pp("bn"))?);
        let first = params.build(true, norm).unwrap();
        let built = params.finish().unwrap();
        let names: Vec<&str> = built.layout.tensors().iter().map(|tensor| &*tensor.name).collect();
        assert_eq!(
            (names, built.trained),
            (vec!["bn.bias", "bn.weight", "bn.running_mean", "bn.running_var"], 2)
        );
        let second = params.build(true, norm).unwrap();
        built.load(&[0.0, 0.0, 1.0, 1.0, 5.0, 6.0, 1.0, 1.0]).unwrap();
        for norm in [first, second] {
            assert_eq!(norm.running_mean().to_vec1::<f32>().unwrap(), [5.0, 6.0]);
        }
    }
}
