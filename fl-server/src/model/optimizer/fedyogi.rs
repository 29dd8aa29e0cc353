//! FedYogi: the second moment moves towards the square by at most a part of the square,
//! `v_t = v_(t-1) - (1 - beta2) * D_t^2 * sign(v_(t-1) - D_t^2)`.

use super::adaptive::{BETA2, TAU, adaptive, beta1, bound, rate};
use super::method::OptimizerMethod;
use crate::config::plan::{MethodInfo, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "fedyogi",
        about: "Yogi on the server: a second moment that forgets slowly (Reddi et al. 2021, algorithm 2)",
        keys: &[rate(0.01), beta1(0.9), BETA2, TAU],
        // A second moment below the square grows by less than the square.
        bound: |spec, _| bound(spec, 2.0),
        accepts: any_uplink,
    },
    build: |spec, len| {
        let beta2 = spec.number("beta2");
        adaptive(spec, len, move |v, square| {
            let change = (1.0 - beta2) * square;
            if v > square {
                v - change
            } else if v < square {
                v + change
            } else {
                v
            }
        })
    },
};
