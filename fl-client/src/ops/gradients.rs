//! Tests only: each op's gradients against candle's own and against finite differences.

use candle_core::{D, Device, Result, Tensor, Var};

use super::{Tape, Window, conv_relu_pool, cross_entropy, linear};
use crate::data::Rng;

fn random(shape: &[usize], seed: u64) -> Var {
    let mut rng = Rng::new(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn close(have: &Tensor, want: &Tensor, tolerance: f32, what: &str) {
    assert_eq!(have.dims(), want.dims(), "{what}");
    for (at, (have, want)) in values(have).iter().zip(values(want)).enumerate() {
        assert!(
            (have - want).abs() <= tolerance * (1.0 + want.abs()),
            "{what} [{at}]: {have}, expected {want}"
        );
    }
}

/// A loss in which every output counts differently, so that no error can hide in a sum; made by our own ops.
fn ours(vars: &[Var], forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>) -> (Tensor, Vec<Tensor>) {
    let mut tape = Tape::default();
    let out = forward(&mut tape, vars).unwrap();
    let flat = tape.reshape(&out, &[1, out.elem_count()]).unwrap();
    // Marks the inputs of the first op as wanted, as those of any later op are.
    let loss = cross_entropy(&mut tape, &flat, &[0]).unwrap();
    (loss.clone(), tape.backward(&loss, vars).unwrap())
}

fn candles(vars: &[Var], forward: &dyn Fn(&[Var]) -> Result<Tensor>) -> (Tensor, Vec<Tensor>) {
    let flat = forward(vars).unwrap().flatten_all().unwrap();
    let loss = (flat.exp().unwrap().sum_all().unwrap().log().unwrap() - flat.get(0).unwrap()).unwrap();
    let grads = loss.backward().unwrap();
    (loss, vars.iter().map(|var| grads.get(var).unwrap().clone()).collect())
}

/// Compares the loss's slope along each of some coordinates.
fn finite_differences(vars: &[Var], grads: &[Tensor], forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>) {
    for (which, (var, grad)) in vars.iter().zip(grads).enumerate() {
        let (start, grad, shape) = (values(var), values(grad), var.dims().to_vec());
        for at in (0..start.len()).step_by(start.len() / 7 + 1) {
            let step = 1e-2;
            let loss = |by: f32| {
                let mut moved = start.clone();
                moved[at] += by;
                var.set(&Tensor::from_vec(moved, shape.as_slice(), &Device::Cpu).unwrap())
                    .unwrap();
                f64::from(ours(vars, forward).0.to_scalar::<f32>().unwrap())
            };
            let slope = (loss(step) - loss(-step)) / f64::from(2.0 * step);
            loss(0.0);
            let have = f64::from(grad[at]);
            assert!(
                (have - slope).abs() < 2e-3 + 0.05 * slope.abs(),
                "input {which} [{at}]: {have}, slope {slope}"
            );
        }
    }
}

/// An input layer before the op makes its input one that a gradient is wanted for.
fn passed(tape: &mut Tape, x: &Var) -> Result<Tensor> {
    tape.reshape(x.as_tensor(), x.dims())
}

#[test]
fn convolution_has_candles_gradients() {
    for (x, w, stride, pad, pool) in [
        ([3, 2, 12, 12], [4, 2, 5, 5], 1, [0, 0], [2, 2]),
        ([2, 1, 9, 11], [3, 1, 3, 3], 1, [1, 1], [2, 2]),
        ([2, 3, 11, 11], [5, 3, 3, 3], 2, [0, 0], [1, 1]),
        ([4, 3, 1, 40], [6, 3, 1, 5], 1, [0, 0], [1, 2]),
        ([2, 3, 1, 40], [6, 3, 1, 5], 3, [0, 2], [1, 3]),
        ([1, 1, 7, 7], [1, 1, 2, 3], 1, [0, 0], [3, 2]),
    ] {
        let window = Window { stride, pad, pool };
        let vars = [random(&x, 1), random(&w, 2), random(&w[..1], 3)];
        let forward = |tape: &mut Tape, v: &[Var]| {
            let x = passed(tape, &v[0])?;
            conv_relu_pool(tape, &x, v[1].as_tensor(), v[2].as_tensor(), window)
        };
        let theirs = |v: &[Var]| {
            let x = v[0]
                .pad_with_zeros(2, pad[0], pad[0])?
                .pad_with_zeros(3, pad[1], pad[1])?;
            let z = x
                .conv2d(v[1].as_tensor(), 0, stride, 1, 1)?
                .broadcast_add(&v[2].reshape((1, (), 1, 1))?)?
                .relu()?;
            // candle's pool has no gradient where windows leave a rest, so the rest is cut off first.
            let (rows, columns) = (z.dim(2)? / pool[0], z.dim(3)? / pool[1]);
            let z = z.narrow(2, 0, rows * pool[0])?.narrow(3, 0, columns * pool[1])?;
            let (b, c) = (z.dim(0)?, z.dim(1)?);
            z.reshape((b, c, rows, pool[0], columns * pool[1]))?
                .max(3)?
                .reshape((b, c, rows, columns, pool[1]))?
                .max(D::Minus1)
        };
        let ((loss, grads), (their_loss, their_grads)) = (ours(&vars, &forward), candles(&vars, &theirs));
        close(&loss, &their_loss, 1e-4, "loss");
        for (which, (have, want)) in grads.iter().zip(&their_grads).enumerate() {
            close(have, want, 1e-3, &format!("{x:?} * {w:?}, gradient {which}"));
        }
    }
}

#[test]
fn convolution_agrees_with_finite_differences() {
    let vars = [random(&[2, 2, 8, 8], 4), random(&[3, 2, 3, 3], 5), random(&[3], 6)];
    let window = Window {
        stride: 1,
        pad: [1, 0],
        pool: [2, 2],
    };
    let forward = |tape: &mut Tape, v: &[Var]| {
        let x = passed(tape, &v[0])?;
        conv_relu_pool(tape, &x, v[1].as_tensor(), v[2].as_tensor(), window)
    };
    let (_, grads) = ours(&vars, &forward);
    finite_differences(&vars, &grads, &forward);
}

#[test]
fn linear_has_candles_gradients_and_agrees_with_finite_differences() {
    for relu in [false, true] {
        let vars = [random(&[5, 37], 7), random(&[11, 37], 8), random(&[11], 9)];
        let forward = |tape: &mut Tape, v: &[Var]| {
            let x = passed(tape, &v[0])?;
            linear(tape, &x, v[1].as_tensor(), v[2].as_tensor(), relu)
        };
        let theirs = |v: &[Var]| {
            let y = v[0].matmul(&v[1].t()?)?.broadcast_add(&v[2])?;
            if relu { y.relu() } else { Ok(y) }
        };
        let ((loss, grads), (their_loss, their_grads)) = (ours(&vars, &forward), candles(&vars, &theirs));
        close(&loss, &their_loss, 1e-4, "loss");
        grads
            .iter()
            .zip(&their_grads)
            .for_each(|(have, want)| close(have, want, 1e-3, "gradient"));
        let mild = [random(&[2, 6], 7), random(&[3, 6], 8), random(&[3], 9)];
        finite_differences(&mild, &ours(&mild, &forward).1, &forward);
    }
}

#[test]
fn cross_entropy_has_candles_gradient_and_survives_large_logits() {
    let logits = random(&[6, 10], 10);
    let labels = [0u32, 9, 3, 3, 7, 1];
    let mut tape = Tape::default();
    let loss = cross_entropy(&mut tape, logits.as_tensor(), &labels).unwrap();
    let grads = tape.backward(&loss, std::slice::from_ref(&logits)).unwrap();
    let log_sum = logits.exp().unwrap().sum_keepdim(1).unwrap().log().unwrap();
    let log_softmax = logits.broadcast_sub(&log_sum).unwrap();
    let at = Tensor::new(&labels, &Device::Cpu).unwrap().unsqueeze(1).unwrap();
    let theirs = log_softmax.gather(&at, 1).unwrap().mean_all().unwrap().neg().unwrap();
    close(&loss, &theirs, 1e-5, "loss");
    close(
        &grads[0],
        theirs.backward().unwrap().get(&logits).unwrap(),
        1e-4,
        "gradient",
    );

    let far = Tensor::new(&[[1e30f32, -1e30, 0.0]], &Device::Cpu).unwrap();
    let loss = cross_entropy(&mut Tape::default(), &far, &[0])
        .unwrap()
        .to_scalar::<f32>()
        .unwrap();
    assert_eq!(loss, 0.0);
}

#[test]
fn shapes_that_do_not_agree_are_errors() {
    let (x, w, b) = (random(&[1, 2, 8, 8], 1), random(&[3, 1, 3, 3], 1), random(&[3], 1));
    let window = Window {
        stride: 1,
        pad: [0, 0],
        pool: [2, 2],
    };
    let tape = &mut Tape::default();
    assert!(conv_relu_pool(tape, x.as_tensor(), w.as_tensor(), b.as_tensor(), window).is_err());
    let large = random(&[3, 2, 9, 9], 1);
    assert!(conv_relu_pool(tape, x.as_tensor(), large.as_tensor(), b.as_tensor(), window).is_err());
    let still = Window { stride: 0, ..window };
    let good = random(&[3, 2, 3, 3], 1);
    assert!(conv_relu_pool(tape, x.as_tensor(), good.as_tensor(), b.as_tensor(), still).is_err());
    let (x, w) = (random(&[4, 5], 1), random(&[3, 6], 1));
    assert!(linear(tape, x.as_tensor(), w.as_tensor(), b.as_tensor(), true).is_err());
    assert!(cross_entropy(tape, x.as_tensor(), &[0, 1, 2, 5]).is_err());
    assert!(cross_entropy(tape, x.as_tensor(), &[0]).is_err());
}
