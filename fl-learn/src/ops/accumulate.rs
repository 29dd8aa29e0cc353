//! Weighted sums of gradients, and of their squares, in place.

use candle_core::{Result, Tensor, Var};

use super::in_place;
use super::native::on_cpu;

/// `grad * weight`. On the CPU the values change in place.
pub(crate) fn weighted(grad: Tensor, weight: f32) -> Result<Tensor> {
    if on_cpu(&grad) {
        in_place::each(&grad, move |g| *g *= weight)?;
        return Ok(grad);
    }
    grad * f64::from(weight)
}

/// `sum + grad * weight`. On the CPU the values of `sum` change in place. Shapes: equal.
pub(crate) fn add_weighted(sum: Tensor, grad: &Tensor, weight: f32) -> Result<Tensor> {
    if on_cpu(grad) {
        in_place::each_by(&sum, grad, move |sum, g| *sum += weight * g)?;
        return Ok(sum);
    }
    sum + (grad * f64::from(weight))?
}

/// Mean over the steps of the squared gradient of each value: a diagonal of the empirical Fisher matrix, of batches instead
/// of examples.
#[derive(Debug)]
pub(crate) struct SquaredGradients {
    sums: Vec<Tensor>,
    steps: u64,
}

impl SquaredGradients {
    pub(crate) fn zeros(vars: &[Var]) -> Result<Self> {
        let sums = vars.iter().map(|var| var.as_tensor().detach().zeros_like());
        Ok(Self {
            sums: sums.collect::<Result<_>>()?,
            steps: 0,
        })
    }

    /// Adds one step. Shapes: one gradient per variable, in the same order and of the same shape.
    pub(crate) fn add(&mut self, grads: &[Tensor]) -> Result<()> {
        for (sum, grad) in self.sums.iter_mut().zip(grads) {
            if on_cpu(grad) {
                in_place::each_by(sum, grad, move |sum, g| *sum += g * g)?;
            } else {
                *sum = (&*sum + grad.sqr()?)?;
            }
        }
        self.steps += 1;
        Ok(())
    }

    /// The means, variable after variable; at most the largest finite value.
    pub(crate) fn means(&self) -> Result<Vec<f32>> {
        let steps = self.steps.max(1) as f32;
        let mut means = Vec::new();
        for sum in &self.sums {
            let sums = sum.flatten_all()?.to_vec1::<f32>()?;
            means.extend(sums.iter().map(|sum| (sum / steps).min(f32::MAX)));
        }
        Ok(means)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    #[test]
    fn gradients_of_pieces_add_up_by_weight() {
        let sum = weighted(tensor(&[1.0, -2.0]), 0.25).unwrap();
        let sum = add_weighted(sum, &tensor(&[3.0, 8.0]), 0.75).unwrap();
        assert_eq!(sum.to_vec1::<f32>().unwrap(), [2.5, 5.5]);
    }

    #[test]
    fn squared_gradients_are_means_over_steps_and_finite() {
        let vars = [
            Var::from_tensor(&tensor(&[0.0, 0.0])).unwrap(),
            Var::from_tensor(&tensor(&[0.0])).unwrap(),
        ];
        let mut squares = SquaredGradients::zeros(&vars).unwrap();
        assert_eq!(squares.means().unwrap(), [0.0; 3]);
        squares.add(&[tensor(&[1.0, -2.0]), tensor(&[1e30])]).unwrap();
        squares.add(&[tensor(&[3.0, 0.0]), tensor(&[0.0])]).unwrap();
        assert_eq!(squares.means().unwrap(), [5.0, 2.0, f32::MAX]);
    }
}
