//! The way back through a model: which ops were applied to what, and the gradients that follow.
//!
//! candle's own `backward` fills every gradient with zeros and then adds to it, in separate threads; on a CPU that
//! costs small models more than their arithmetic. This tape passes each gradient on unchanged.

use std::collections::{HashMap, HashSet};

use candle_core::{CustomOp1, CustomOp3, Result, Tensor, TensorId, Var, bail};

/// The ops of one forward pass in their order. On other devices than the CPU it stays empty and candle's graph is
/// used.
#[derive(Default)]
pub struct Tape {
    nodes: Vec<Node>,
    outputs: HashSet<TensorId>,
}

enum Node {
    One {
        op: Box<dyn CustomOp1>,
        x: Tensor,
        out: Tensor,
    },
    Three {
        op: Box<dyn CustomOp3>,
        inputs: Box<[Tensor; 3]>,
        out: Tensor,
    },
    Reshape {
        x: Tensor,
        out: Tensor,
    },
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").field("nodes", &self.nodes.len()).finish()
    }
}

impl Tape {
    /// Whether `x` is an output of an op on this tape, so that a gradient must flow through it.
    pub(super) fn leads_to(&self, x: &Tensor) -> bool {
        self.outputs.contains(&x.id())
    }

    /// Applies `op` to one tensor on the CPU.
    pub(super) fn apply1(&mut self, x: &Tensor, op: impl CustomOp1 + 'static) -> Result<Tensor> {
        let out = x.contiguous()?.apply_op1_no_bwd(&op)?;
        self.push(
            Node::One {
                op: Box::new(op),
                x: x.clone(),
                out: out.clone(),
            },
            &out,
        );
        Ok(out)
    }

    /// Applies `op` to three tensors on the CPU.
    pub(super) fn apply3(
        &mut self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        op: impl CustomOp3 + 'static,
    ) -> Result<Tensor> {
        let out = x.apply_op3_no_bwd(w, b, &op)?;
        let inputs = Box::new([x.clone(), w.clone(), b.clone()]);
        self.push(
            Node::Three {
                op: Box::new(op),
                inputs,
                out: out.clone(),
            },
            &out,
        );
        Ok(out)
    }

    /// `x` in another shape of as many values.
    ///
    /// # Errors
    /// If the number of values differs.
    pub fn reshape(&mut self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let out = x.reshape(shape)?;
        if x.device().is_cpu() {
            self.push(
                Node::Reshape {
                    x: x.clone(),
                    out: out.clone(),
                },
                &out,
            );
        }
        Ok(out)
    }

    fn push(&mut self, node: Node, out: &Tensor) {
        self.outputs.insert(out.id());
        self.nodes.push(node);
    }

    /// Gradient of the scalar `loss` with respect to each of `vars`, in their order.
    ///
    /// # Errors
    /// If `loss` does not depend on a variable, or the device fails.
    pub fn backward(self, loss: &Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
        if !loss.device().is_cpu() {
            let mut grads = loss.backward()?;
            return vars
                .iter()
                .map(|var| found(grads.remove(var.as_tensor()))?.contiguous())
                .collect();
        }
        let mut grads = Grads(HashMap::from([(loss.id(), loss.ones_like()?)]));
        for node in self.nodes.iter().rev() {
            match node {
                Node::One { op, x, out } => {
                    let Some(grad) = grads.0.remove(&out.id()) else {
                        continue;
                    };
                    grads.add(x, op.bwd(x, out, &grad)?)?;
                }
                Node::Three { op, inputs, out } => {
                    let Some(grad) = grads.0.remove(&out.id()) else {
                        continue;
                    };
                    let [x, w, b] = inputs.as_ref();
                    let (dx, dw, db) = op.bwd(x, w, b, out, &grad)?;
                    grads.add(x, dx)?;
                    grads.add(w, dw)?;
                    grads.add(b, db)?;
                }
                Node::Reshape { x, out } => {
                    let Some(grad) = grads.0.remove(&out.id()) else {
                        continue;
                    };
                    grads.add(x, Some(grad.reshape(x.shape())?))?;
                }
            }
        }
        vars.iter()
            .map(|var| found(grads.0.remove(&var.as_tensor().id())))
            .collect()
    }
}

/// Looked up by id only, never walked: their order is of no consequence.
struct Grads(HashMap<TensorId, Tensor>);

impl Grads {
    fn add(&mut self, to: &Tensor, grad: Option<Tensor>) -> Result<()> {
        let Some(grad) = grad else { return Ok(()) };
        let sum = match self.0.remove(&to.id()) {
            Some(other) => (other + grad)?,
            None => grad,
        };
        self.0.insert(to.id(), sum);
        Ok(())
    }
}

fn found(grad: Option<Tensor>) -> Result<Tensor> {
    let Some(grad) = grad else {
        bail!("the loss does not depend on one of the variables")
    };
    Ok(grad)
}
