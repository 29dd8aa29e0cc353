//! Each op's values and gradients against candle's own and against finite differences.

use candle_core::{D, Device, Result, Tensor, Var};

use super::*;
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
    on(Tape::training(vars, 9), vars, forward)
}

fn on(mut tape: Tape, vars: &[Var], forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>) -> (Tensor, Vec<Tensor>) {
    let out = forward(&mut tape, vars).unwrap();
    let flat = tape.reshape(&out, &[1, out.elem_count()]).unwrap();
    let loss = cross_entropy(&mut tape, &flat, &[0]).unwrap();
    (loss.clone(), tape.backward(&loss, vars).unwrap())
}

/// Our own loops, what runs on a GPU, and the slopes of the loss agree.
fn agree(what: &str, vars: &[Var], forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>) {
    let grads = same_on_gpu(what, vars, 2e-6, forward);
    finite_differences(vars, &grads, forward);
}

/// Our own loops and what runs on a GPU agree. Returns the gradients.
fn same_on_gpu(
    what: &str,
    vars: &[Var],
    tolerance: f32,
    forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>,
) -> Vec<Tensor> {
    let (loss, grads) = ours(vars, forward);
    let (their_loss, their_grads) = on_gpu(|| on(Tape::training(vars, 9), vars, forward));
    close(&loss, &their_loss, tolerance, what);
    for (which, (have, want)) in grads.iter().zip(&their_grads).enumerate() {
        close(have, want, tolerance, &format!("{what}, gradient {which}"));
    }
    grads
}

/// Rows longer than a block of threads, sums of several blocks, and ends that no power of two divides.
#[test]
fn large_and_odd_sizes_are_the_same_on_a_gpu() {
    // Sums of thousands of values in another order.
    let same = |what: &str, vars: &[Var], forward: &dyn Fn(&mut Tape, &[Var]) -> Result<Tensor>| {
        same_on_gpu(what, vars, 2e-5, forward);
    };
    let vars = [random(&[131, 1000], 1), random(&[1000], 2), random(&[1000], 3)];
    same("layer norm", &vars, &|tape, v| {
        layer_norm(tape, &v[0], &v[1], &v[2], 1e-5)
    });
    same("rms norm", &vars[..2], &|tape, v| rms_norm(tape, &v[0], &v[1], 1e-5));
    same("gelu", &vars[..1], &|tape, v| gelu(tape, &v[0]));
    same("dropout", &vars[..1], &|tape, v| dropout(tape, &v[0], 0.3));
    let weights = [random(&[131, 37], 1), random(&[67, 37], 2), random(&[67], 3)];
    same("linear", &weights, &|tape, v| {
        linear(tape, &v[0], &v[1], Some(v[2].as_tensor()), true)
    });
    let images = [random(&[7, 6, 33, 29], 1), random(&[6], 2), random(&[6], 3)];
    same("group norm", &images, &|tape, v| {
        group_norm(tape, &v[0], &v[1], &v[2], 2, 1e-5, true)
    });
    same("batch norm", &images, &|tape, v| {
        batch_norm(tape, &v[0], &v[1], &v[2], &running(6), 1e-5, true)
    });
    same("pool", &images[..1], &|tape, v| max_pool(tape, &v[0], 3, 2, 1));
    let heads = Heads {
        batch: 2,
        len: 71,
        heads: 3,
        groups: 1,
        dim: 5,
    };
    let vars = [random(&[142, 15], 1), random(&[142, 5], 2), random(&[142, 5], 3)];
    same("attention", &vars, &|tape, v| {
        attention(tape, &v[0], &v[1], &v[2], heads)
    });
    let table = [random(&[90, 700], 1)];
    let ids: Vec<u32> = (0..301).map(|at| at * at % 89).collect();
    let ids = Tensor::new(ids, &Device::Cpu).unwrap();
    same("embedding", &table, &|tape, v| embedding(tape, &ids, &v[0]));
    let (inputs, hidden) = (9, 77);
    let vars = [
        random(&[5, 6, inputs], 1),
        random(&[4 * hidden, inputs], 2),
        random(&[4 * hidden, hidden], 3),
        random(&[4 * hidden], 4),
        random(&[4 * hidden], 5),
    ];
    same("lstm", &vars, &|tape, v| {
        let weights = LstmWeights {
            input: &v[1],
            hidden: &v[2],
            input_bias: &v[3],
            hidden_bias: &v[4],
        };
        lstm(tape, &v[0], weights)
    });
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
            conv_relu_pool(tape, v[0].as_tensor(), v[1].as_tensor(), v[2].as_tensor(), window)
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
        let (their_loss, their_grads) = on_gpu(|| on(Tape::training(&vars, 9), &vars, &forward));
        close(&loss, &their_loss, 1e-4, "loss, on a GPU");
        for (which, (have, want)) in grads.iter().zip(&their_grads).enumerate() {
            close(have, want, 1e-3, &format!("{x:?} * {w:?}, gradient {which}, on a GPU"));
        }
    }
}

/// What a GPU computes agrees with our own loops for whatever fits.
#[test]
fn convolutions_and_pools_of_any_shape_are_the_same_on_a_gpu() {
    let mut rng = Rng::new(11);
    let mut compared = 0;
    while compared < 60 {
        let mut below = |n: u64| rng.below(n) as usize;
        let (x, w) = (
            [1 + below(3), 1 + below(3), 1 + below(9), 1 + below(9)],
            [1 + below(3), 1 + below(4), 1 + below(4)],
        );
        let window = Window {
            stride: 1 + below(3),
            pad: [below(4), below(4)],
            pool: [1 + below(3), 1 + below(3)],
        };
        let (size, every, pad) = (1 + below(5), 1 + below(3), below(3));
        let vars = [
            random(&x, 1 + compared),
            random(&[w[0], x[1], w[1], w[2]], 2),
            random(&w[..1], 3),
        ];
        let what = format!("{x:?} * {w:?} by {window:?}; pool of {size} every {every}, pad {pad}");
        let forward = |tape: &mut Tape, v: &[Var]| {
            let out = conv_relu_pool(tape, &v[0], &v[1], &v[2], window)?;
            max_pool(tape, &out, size, every, pad)
        };
        if forward(&mut Tape::default(), &vars).is_err() {
            continue;
        }
        let (loss, grads) = ours(&vars, &forward);
        let (their_loss, their_grads) = on_gpu(|| on(Tape::training(&vars, 9), &vars, &forward));
        close(&their_loss, &loss, 1e-4, &what);
        for (have, want) in their_grads.iter().zip(&grads) {
            close(have, want, 1e-3, &what);
        }
        compared += 1;
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
    let forward =
        |tape: &mut Tape, v: &[Var]| conv_relu_pool(tape, v[0].as_tensor(), v[1].as_tensor(), v[2].as_tensor(), window);
    let (_, grads) = ours(&vars, &forward);
    finite_differences(&vars, &grads, &forward);
}

#[test]
fn linear_has_candles_gradients_and_agrees_with_finite_differences() {
    for relu in [false, true] {
        let vars = [random(&[5, 37], 7), random(&[11, 37], 8), random(&[11], 9)];
        let forward =
            |tape: &mut Tape, v: &[Var]| linear(tape, v[0].as_tensor(), v[1].as_tensor(), Some(v[2].as_tensor()), relu);
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
    let mut tape = Tape::training(std::slice::from_ref(&logits), 1);
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
    assert!(linear(tape, x.as_tensor(), w.as_tensor(), Some(b.as_tensor()), true).is_err());
    assert!(cross_entropy(tape, x.as_tensor(), &[0, 1, 2, 5]).is_err());
    assert!(cross_entropy(tape, x.as_tensor(), &[0]).is_err());
}

#[test]
fn wide_and_narrow_layers_with_and_without_bias() {
    // From 257 rows on the product is made as it is, below transposed.
    for rows in [3, 300] {
        let vars = [random(&[rows, 6], 1), random(&[4, 6], 2), random(&[4], 3)];
        agree("no bias", &vars[..2], &|tape, v| {
            linear(tape, &v[0], &v[1], None, false)
        });
        agree("relu", &vars, &|tape, v| {
            linear(tape, &v[0], &v[1], Some(v[2].as_tensor()), true)
        });
        let vars = [random(&[rows, 6], 1), random(&[6, 4], 2), random(&[4], 3)];
        agree("inputs first", &vars, &|tape, v| {
            linear_inputs_first(tape, &v[0], &v[1], Some(v[2].as_tensor()))
        });
    }
}

#[test]
fn plain_convolution() {
    for (x, w, stride, pad) in [
        ([2, 3, 6, 6], [4, 3, 3, 3], 1, 1),
        ([2, 2, 7, 7], [3, 2, 3, 3], 2, 1),
        ([2, 3, 5, 5], [4, 3, 1, 1], 1, 0),
        ([2, 3, 6, 6], [2, 3, 1, 1], 2, 0),
        ([2, 1, 9, 8], [3, 1, 2, 3], 3, 2),
        ([1, 2, 4, 4], [2, 2, 1, 2], 1, 2),
    ] {
        let vars = [random(&x, 1), random(&w, 2)];
        agree("conv2d", &vars, &|tape, v| conv2d(tape, &v[0], &v[1], stride, pad));
    }
}

#[test]
fn overlapping_max_pool() {
    let vars = [random(&[2, 2, 7, 8], 1)];
    agree("3 of 2", &vars, &|tape, v| max_pool(tape, &v[0], 3, 2, 1));
    agree("2 of 2", &vars, &|tape, v| max_pool(tape, &v[0], 2, 2, 0));
    assert!(max_pool(&mut Tape::default(), &vars[0], 9, 1, 0).is_err());
}

#[test]
fn elementwise_operations() {
    let vars = [random(&[3, 5], 1), random(&[3, 5], 2)];
    for with_relu in [false, true] {
        agree("add", &vars, &|tape, v| add(tape, &v[0], &v[1], with_relu));
    }
    agree("a sum with itself", &vars[..1], &|tape, v| {
        add(tape, &v[0], &v[0], false)
    });
    agree("scaled sum", &vars, &|tape, v| add_scaled(tape, &v[0], &v[1], 0.3));
    agree("gelu", &vars[..1], &|tape, v| gelu(tape, &v[0]));
    agree("gate", &vars, &|tape, v| silu_gate(tape, &v[0], &v[1]));
    agree("dropout", &vars[..1], &|tape, v| dropout(tape, &v[0], 0.4));
    let images = [random(&[2, 3, 4, 4], 3)];
    agree("mean", &images, &|tape, v| mean_of_positions(tape, &v[0]));
    let nan = Tensor::new(&[f32::NAN, 1.0], &Device::Cpu).unwrap();
    assert!(values(&add(&mut Tape::default(), &nan, &nan, true).unwrap())[0].is_nan());
}

#[test]
fn dropout_drops_its_share_and_keeps_the_mean() {
    let ones = Tensor::ones(100_000, candle_core::DType::F32, &Device::Cpu).unwrap();
    let dropped = |seed| values(&dropout(&mut Tape::training(&[], seed), &ones, 0.3).unwrap());
    let values_of_one = dropped(1);
    let zeros = values_of_one.iter().filter(|v| **v == 0.0).count();
    assert!((zeros as f64 / 1e5 - 0.3).abs() < 0.01, "{zeros}");
    assert!((values_of_one.iter().sum::<f32>() / 1e5 - 1.0).abs() < 0.01);
    assert_eq!(values_of_one, dropped(1));
    assert_ne!(values_of_one, dropped(2));
    assert_eq!(
        values(&dropout(&mut Tape::default(), &ones, 0.3).unwrap()),
        values(&ones)
    );
    assert!(dropout(&mut Tape::default(), &ones, 1.0).is_err());
}

#[test]
fn norms() {
    let vars = [random(&[4, 6], 1), random(&[6], 2), random(&[6], 3)];
    agree("layer norm", &vars, &|tape, v| {
        layer_norm(tape, &v[0], &v[1], &v[2], 1e-5)
    });
    agree("rms norm", &vars[..2], &|tape, v| rms_norm(tape, &v[0], &v[1], 1e-5));
    let vars = [random(&[3, 4, 3, 3], 1), random(&[4], 2), random(&[4], 3)];
    for groups in [1, 2, 4] {
        for with_relu in [false, true] {
            agree("group norm", &vars, &|tape, v| {
                group_norm(tape, &v[0], &v[1], &v[2], groups, 1e-5, with_relu)
            });
        }
    }
    assert!(group_norm(&mut Tape::default(), &vars[0], &vars[1], &vars[2], 3, 1e-5, false).is_err());
}

fn running(channels: usize) -> Running {
    let var = |value: f32| Var::from_tensor(&Tensor::full(value, channels, &Device::Cpu).unwrap()).unwrap();
    Running {
        mean: var(0.5),
        variance: var(2.0),
        momentum: 0.1,
    }
}

#[test]
fn batch_norm_trains_by_the_batch_and_moves_the_running_statistics() {
    let vars = [random(&[3, 4, 3, 3], 1), random(&[4], 2), random(&[4], 3)];
    for with_relu in [false, true] {
        let own = running(4);
        agree("batch norm", &vars, &|tape, v| {
            batch_norm(tape, &v[0], &v[1], &v[2], &own, 1e-5, with_relu)
        });
    }
    let of = || {
        let (mut tape, own) = (Tape::training(&vars, 1), running(4));
        let out = batch_norm(&mut tape, &vars[0], &vars[1], &vars[2], &own, 1e-5, false).unwrap();
        // A pass that fails before its end moves nothing.
        assert_eq!(values(&own.mean), [0.5; 4]);
        let flat = tape.reshape(&out, &[1, 108]).unwrap();
        let loss = cross_entropy(&mut tape, &flat, &[0]).unwrap();
        tape.backward(&loss, &vars).unwrap();
        own
    };
    let both = [of(), on_gpu(of)];
    close(&both[0].mean, &both[1].mean, 1e-5, "running mean");
    close(&both[0].variance, &both[1].variance, 1e-5, "running variance");
    // As `torch.nn.BatchNorm2d`: 0.9 of the old and 0.1 of the batch's, of divisor n - 1.
    let first: Vec<f32> = values(&vars[0])
        .chunks(36)
        .flat_map(|example| example[..9].to_vec())
        .collect();
    let mean = first.iter().sum::<f32>() / 27.0;
    let variance = first.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 26.0;
    assert!((values(&both[0].mean)[0] - (0.45 + 0.1 * mean)).abs() < 1e-5);
    assert!((values(&both[0].variance)[0] - (1.8 + 0.1 * variance)).abs() < 1e-5);
    // An evaluation takes the running ones and leaves them.
    let own = running(4);
    let out = batch_norm(&mut Tape::default(), &vars[0], &vars[1], &vars[2], &own, 1e-5, false).unwrap();
    let want = (values(&vars[0])[0] - 0.5) / 2.0f32.sqrt() * values(&vars[1])[0] + values(&vars[2])[0];
    assert!((values(&out)[0] - want).abs() < 1e-4);
    assert_eq!(values(&own.mean), [0.5; 4]);
}

/// candle-nn's functions have no gradient, but other authors.
#[test]
fn norms_positions_shares_and_losses_are_candle_nns() {
    let tape = &mut Tape::default();
    let (x, w, b) = (random(&[6, 8], 1), random(&[8], 2), random(&[8], 3));
    let theirs = candle_nn::ops::layer_norm(&x, &w, &b, 1e-5).unwrap();
    close(
        &layer_norm(tape, &x, &w, &b, 1e-5).unwrap(),
        &theirs,
        1e-5,
        "layer norm",
    );
    let theirs = candle_nn::ops::rms_norm(&x, &w, 1e-5).unwrap();
    close(&rms_norm(tape, &x, &w, 1e-5).unwrap(), &theirs, 1e-5, "rms norm");

    // Two texts of three tokens with two heads of four values.
    let by_head = |t: &Tensor, width: usize| t.reshape((2, 3, 2, width)).unwrap().transpose(1, 2).unwrap();
    let by_head = |t: &Tensor, width: usize| by_head(t, width).contiguous().unwrap();
    let by_token = |t: &Tensor| t.transpose(1, 2).unwrap().reshape((6, ())).unwrap();
    let angle = |at: usize| (at / 2) as f32 * 100.0f32.powi(-((at % 2) as i32));
    let table = |f: fn(f32) -> f32| {
        let values: Vec<f32> = (0..6).map(|at| f(angle(at))).collect();
        Tensor::from_vec(values, (3, 2), &Device::Cpu).unwrap()
    };
    let theirs = candle_nn::rotary_emb::rope(&by_head(&x, 4), &table(f32::cos), &table(f32::sin)).unwrap();
    let angles = Angles::new(3, &frequencies(4, 10_000.0));
    close(
        &rotary(tape, &x, &angles, 3).unwrap(),
        &by_token(&theirs),
        1e-5,
        "rotary",
    );

    let [q, k, v] = [4, 5, 6].map(|seed| random(&[6, 8], seed));
    let [heads_q, heads_k, heads_v] = [&q, &k, &v].map(|t| by_head(t, 4));
    let scores = (heads_q.matmul(&heads_k.t().unwrap()).unwrap() / 2.0).unwrap();
    let hidden = Tensor::new(&[[0.0f32, -1e30, -1e30], [0.0, 0.0, -1e30], [0.0; 3]], &Device::Cpu);
    let scores = scores.broadcast_add(&hidden.unwrap()).unwrap();
    let theirs = candle_nn::ops::softmax_last_dim(&scores)
        .unwrap()
        .matmul(&heads_v)
        .unwrap();
    let heads = Heads {
        batch: 2,
        len: 3,
        heads: 2,
        groups: 2,
        dim: 4,
    };
    let ours = attention(tape, &q, &k, &v, heads).unwrap();
    close(&ours, &by_token(&theirs), 1e-5, "attention");

    let labels = [0u32, 7, 3, 3, 5, 1];
    let theirs = candle_nn::loss::cross_entropy(&x, &Tensor::new(&labels, &Device::Cpu).unwrap()).unwrap();
    close(
        &cross_entropy(tape, &x, &labels).unwrap(),
        &theirs,
        1e-5,
        "cross-entropy",
    );
    let targets = values(&q);
    let theirs = candle_nn::loss::mse(&x, &q).unwrap();
    close(
        &squared_error(tape, &x, &targets).unwrap(),
        &theirs,
        1e-5,
        "squared error",
    );
}

#[test]
fn tokens_take_their_rows() {
    let vars = [random(&[5, 3], 1)];
    let ids = Tensor::new(&[4u32, 0, 4, 2], &Device::Cpu).unwrap();
    agree("embedding", &vars, &|tape, v| embedding(tape, &ids, &v[0]));
    let far = Tensor::new(&[5u32], &Device::Cpu).unwrap();
    let error = embedding(&mut Tape::default(), &far, &vars[0]).unwrap_err().to_string();
    assert!(error.contains("token 5 is not in a vocabulary of 5"), "{error}");
}

#[test]
fn causal_attention() {
    let heads = Heads {
        batch: 2,
        len: 5,
        heads: 4,
        groups: 2,
        dim: 3,
    };
    let vars = [random(&[10, 12], 1), random(&[10, 6], 2), random(&[10, 6], 3)];
    agree("attention", &vars, &|tape, v| {
        attention(tape, &v[0], &v[1], &v[2], heads)
    });
    let packed = [random(&[10, 36], 4)];
    let heads = Heads { groups: 4, ..heads };
    agree("packed", &packed, &|tape, v| attention_packed(tape, &v[0], heads));
    assert!(attention_packed(&mut Tape::default(), &vars[0], heads).is_err());
    // What hides later tokens is kept for the layers of a step, and differs by length.
    let short = Heads {
        batch: 5,
        len: 2,
        ..heads
    };
    agree("two lengths", &vars[..1], &|tape, v| {
        let once = attention(tape, &v[0], &v[0], &v[0], heads)?;
        let twice = attention(tape, &once, &v[0], &once, short)?;
        attention(tape, &twice, &once, &v[0], heads)
    });
}

#[test]
fn a_token_does_not_see_later_ones() {
    let heads = Heads {
        batch: 1,
        len: 6,
        heads: 2,
        groups: 2,
        dim: 4,
    };
    let qkv = values(random(&[6, 24], 1).as_tensor());
    let out = |values: Vec<f32>| {
        let qkv = Tensor::from_vec(values, (6, 24), &Device::Cpu).unwrap();
        self::values(&attention_packed(&mut Tape::default(), &qkv, heads).unwrap())
    };
    let mut changed = qkv.clone();
    changed[4 * 24..].iter_mut().for_each(|x| *x += 1.0);
    let (before, after) = (out(qkv), out(changed));
    assert_eq!(before[..4 * 8], after[..4 * 8]);
    assert_ne!(before[4 * 8..], after[4 * 8..]);
}

#[test]
fn rotary_positions() {
    let vars = [random(&[6, 8], 1)];
    let angles = Angles::new(3, &frequencies(4, 10_000.0));
    agree("rotary", &vars, &|tape, v| rotary(tape, &v[0], &angles, 3));
    let out = rotary(&mut Tape::default(), &vars[0], &angles, 3).unwrap();
    let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
    assert_eq!(values(&out)[..8], values(&vars[0])[..8], "position 0 is not turned");
    assert!((length(&values(&out)) - length(&values(&vars[0]))).abs() < 1e-3);
    assert!(rotary(&mut Tape::default(), &vars[0], &angles, 6).is_err());
}

#[test]
fn long_short_term_memory() {
    for len in [1, 4] {
        let hidden = 3;
        let vars = [
            random(&[2, len, 5], 1),
            random(&[4 * hidden, 5], 2),
            random(&[4 * hidden, hidden], 3),
            random(&[4 * hidden], 4),
            random(&[4 * hidden], 5),
        ];
        agree("lstm", &vars[..], &|tape, v| {
            let weights = LstmWeights {
                input: &v[1],
                hidden: &v[2],
                input_bias: &v[3],
                hidden_bias: &v[4],
            };
            lstm(tape, &v[0], weights)
        });
    }
}

#[test]
fn losses_of_many_classes_ignored_labels_and_numbers() {
    let vars = [random(&[4, 300], 1)];
    for labels in [[7u32, 299, 0, 3], [7, IGNORED, 0, IGNORED]] {
        let of = || {
            let mut tape = Tape::training(&vars, 1);
            let loss = cross_entropy(&mut tape, &vars[0], &labels).unwrap();
            (loss.clone(), tape.backward(&loss, &vars).unwrap())
        };
        let ((loss, grads), (their_loss, their_grads)) = (of(), on_gpu(of));
        close(&loss, &their_loss, 1e-5, "loss");
        close(&grads[0], &their_grads[0], 1e-4, "gradient");
        let evaluated = cross_entropy(&mut Tape::default(), &vars[0], &labels).unwrap();
        assert_eq!(values(&evaluated), values(&loss));
    }
    let vars = [random(&[3, 2], 1)];
    let targets = [0.5, -1.0, 2.0, 0.0, 1.0, 3.0];
    agree("squared error", &vars, &|tape, v| squared_error(tape, &v[0], &targets));
    assert!(squared_error(&mut Tape::default(), &vars[0], &targets[1..]).is_err());
}

#[test]
fn an_output_layer_with_its_loss_equals_the_two_apart() {
    let (x, w, b) = (random(&[5, 4], 1), random(&[300, 4], 2), random(&[300], 3));
    let labels = [7, IGNORED, 0, 299, 7];
    let vars = [x, w, b];
    for trained in [&vars[..], &vars[..1], &vars[1..2], &vars[2..]] {
        let of = |apart: bool| {
            let mut tape = Tape::training(trained, 1);
            let bias = Some(vars[2].as_tensor());
            let loss = if apart {
                let logits = linear(&mut tape, &vars[0], &vars[1], bias, false).unwrap();
                cross_entropy(&mut tape, &logits, &labels).unwrap()
            } else {
                linear_cross_entropy(&mut tape, &vars[0], &vars[1], bias, &labels).unwrap()
            };
            (loss.clone(), tape.backward(&loss, trained).unwrap())
        };
        let (loss, grads) = of(true);
        for (other, other_grads) in [of(false), on_gpu(|| of(false))] {
            close(&other, &loss, 1e-6, "loss");
            for (have, want) in other_grads.iter().zip(&grads) {
                close(have, want, 1e-6, "gradient");
            }
        }
    }
    let mut tape = Tape::default();
    let mut loss = |labels: &[u32]| linear_cross_entropy(&mut tape, &vars[0], &vars[1], None, labels);
    assert!(loss(&[0, 1]).is_err() && loss(&[0, 1, 2, 3, 300]).is_err());
    assert_eq!(values(&loss(&[IGNORED; 5]).unwrap()), [0.0]);
}

/// More logits than are in memory at once: the pieces add up.
#[test]
fn the_loss_of_many_rows_is_computed_in_pieces() {
    let classes = 1 << 20;
    let vars = [random(&[17, 1], 1), random(&[classes, 1], 2)];
    let labels: Vec<u32> = (0..17).collect();
    let mut tape = Tape::training(&vars, 1);
    let loss = linear_cross_entropy(&mut tape, &vars[0], &vars[1], None, &labels).unwrap();
    let grads = tape.backward(&loss, &vars).unwrap();
    let mut tape = Tape::training(&vars, 1);
    let logits = linear(&mut tape, &vars[0], &vars[1], None, false).unwrap();
    let apart = cross_entropy(&mut tape, &logits, &labels).unwrap();
    let apart_grads = tape.backward(&apart, &vars).unwrap();
    close(&loss, &apart, 1e-6, "loss");
    for (have, want) in grads.iter().zip(&apart_grads) {
        close(have, want, 1e-5, "gradient");
    }
}

#[test]
fn no_gradient_is_computed_for_frozen_tensors() {
    let (x, frozen, trained) = (random(&[3, 4], 1), random(&[5, 4], 2), random(&[2, 5], 3));
    let mut tape = Tape::training(std::slice::from_ref(&trained), 1);
    let h = linear(&mut tape, &x, &frozen, None, false).unwrap();
    assert!(!tape.wants(&h));
    let y = linear(&mut tape, &h, &trained, None, false).unwrap();
    let loss = cross_entropy(&mut tape, &y, &[0, 1, 0]).unwrap();
    assert!(format!("{tape:?}").contains("nodes: 2"), "{tape:?}");
    assert!(
        tape.backward(&loss, &[frozen]).is_err(),
        "a frozen tensor has no gradient"
    );
}
