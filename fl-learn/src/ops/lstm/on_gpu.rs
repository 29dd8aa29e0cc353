//! The layer on a GPU: a product and a kernel for each token.

use candle_core::{DType, Result, Tensor};

use super::super::cuda::{Kernel, Products, Sums};
use super::super::tensors::as_f32;

pub(super) struct Pass {
    products: Products,
    /// `[len * batch, inputs]`, as the next two in the type of products.
    x: Tensor,
    input: Tensor,
    recurrent: Tensor,
    steps: Steps,
}

/// Of all tokens. Shapes: `[len, batch, ..]`.
struct Steps {
    /// `4 * hidden`.
    gates: Tensor,
    /// `hidden`, as the next.
    cells: Tensor,
    states: Tensor,
}

/// As [`super::lstm`], of its inputs. The tokens of all texts are made ready in one product.
pub(super) fn forward(
    [x, input, recurrent, input_bias, hidden_bias]: [Tensor; 5],
    products: Products,
) -> Result<(Tensor, Pass)> {
    let ((batch, len, inputs), hidden) = (x.dims3()?, recurrent.dim(1)?);
    let x = products.operand(&x)?.transpose(0, 1)?.reshape((len * batch, inputs))?;
    let input = products.operand(&input)?;
    let recurrent = products.operand(&recurrent)?;
    let sums = products
        .of(&x, &input.t()?)?
        .broadcast_add(&(input_bias + hidden_bias)?)?;
    let steps = Steps::new(&sums.reshape((len, batch, 4 * hidden))?, &recurrent, products)?;
    let out = steps.states.transpose(0, 1)?.contiguous()?;
    let pass = Pass {
        products,
        x,
        input,
        recurrent,
        steps,
    };
    Ok((out, pass))
}

impl Pass {
    /// Gradients of the inputs, as far as they are wanted, for that of the result.
    pub(super) fn backward(self, grad: &Tensor, wanted: [bool; 5]) -> Result<[Option<Tensor>; 5]> {
        let products = self.products;
        let (len, batch, _) = self.steps.states.dims3()?;
        let d_sums = self
            .steps
            .backward(&grad.transpose(0, 1)?.contiguous()?, &self.recurrent, products)?;
        let rows = |t: &Tensor, first, count| {
            let width = t.dim(2)?;
            t.narrow(0, first, count)?.reshape((count * batch, width))
        };
        let d = rows(&d_sums, 0, len)?;
        let bias = Sums::of_columns(&d).alone(&d)?;
        // Token `t` meets the state of token `t - 1`.
        let d_recurrent = || match len {
            1 => as_f32(&self.recurrent.zeros_like()?),
            _ => {
                let later = products.operand(&rows(&d_sums, 1, len - 1)?)?;
                let states = products.operand(&rows(&self.steps.states, 0, len - 1)?)?;
                products.of(&later.t()?, &states)
            }
        };
        let d_recurrent = wanted[2].then(d_recurrent).transpose()?;
        let d = products.operand(&d)?;
        let d_input = wanted[1].then(|| products.of(&d.t()?, &self.x)).transpose()?;
        let d_x = || {
            let d_x = products.of(&d, &self.input)?.reshape((len, batch, ()))?;
            d_x.transpose(0, 1)?.contiguous()
        };
        let d_x = wanted[0].then(d_x).transpose()?;
        Ok([d_x, d_input, d_recurrent, Some(bias.clone()), Some(bias)])
    }
}

impl Steps {
    /// Gates, cells and states, from what the gates' inputs are without the states. Shapes: `sums: [len, batch, 4 * hidden]`,
    /// `w: [4 * hidden, hidden]`.
    fn new(sums: &Tensor, w: &Tensor, products: Products) -> Result<Self> {
        let ((len, batch, _), hidden) = (sums.dims3()?, w.dim(1)?);
        let turned = w.t()?;
        let zeros = |width: usize| Tensor::zeros((len, batch, width), DType::F32, sums.device());
        let [gates, cells, states] = [zeros(4 * hidden)?, zeros(hidden)?, zeros(hidden)?];
        for at in 0..len {
            let last = |of: &Tensor| at.checked_sub(1).map(|last| of.get(last)).transpose();
            let last_cell = last(&cells)?;
            let last_state = last(&states)?;
            let from_state = last_state.map(|state| products.of(&products.operand(&state)?, &turned));
            let from_state = from_state.transpose()?;
            Kernel::of_each("lstm_cell", batch * hidden)
                .reads([&sums.get(at)?])
                .reads_some(from_state.as_ref())
                .reads_some(last_cell.as_ref())
                .ints(&[batch, hidden])
                .changes([&gates.get(at)?, &cells.get(at)?, &states.get(at)?])
                .launch::<0>()?;
        }
        Ok(Self { gates, cells, states })
    }

    /// Gradients of the gates' inputs, `[len, batch, 4 * hidden]`. Shapes: `grad: [len, batch, hidden]`, `w: [4 * hidden, hidden]`.
    fn backward(&self, grad: &Tensor, w: &Tensor, products: Products) -> Result<Tensor> {
        let (len, batch, hidden) = self.cells.dims3()?;
        let d_sums = self.gates.zeros_like()?;
        let d_cell = self.cells.get(0)?.zeros_like()?;
        for at in (0..len).rev() {
            let last_cell = at.checked_sub(1).map(|last| self.cells.get(last)).transpose()?;
            let from_next = (at + 1 < len).then(|| products.of(&products.operand(&d_sums.get(at + 1)?)?, w));
            let from_next = from_next.transpose()?;
            Kernel::of_each("lstm_cell_back", batch * hidden)
                .reads([&self.gates.get(at)?, &self.cells.get(at)?])
                .reads_some(last_cell.as_ref())
                .reads([&grad.get(at)?])
                .reads_some(from_next.as_ref())
                .ints(&[batch, hidden])
                .changes([&d_cell, &d_sums.get(at)?])
                .launch::<0>()?;
        }
        Ok(d_sums)
    }
}
