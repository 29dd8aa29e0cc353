//! FedAdagrad: the second moment is the sum of all squares, `v_t = v_(t-1) + D_t^2`.

use super::adaptive::{TAU, adaptive, beta1, bound, rate};
use super::method::OptimizerMethod;
use crate::config::plan::{MethodInfo, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "fedadagrad",
        about: "Adagrad on the server: changes shrink as squares add up (Reddi et al. 2021, algorithm 2)",
        keys: &[rate(0.1), beta1(0.0), TAU],
        bound: |spec, rounds| bound(spec, rounds.max(1) as f64),
        accepts: any_uplink,
    },
    build: |spec, len| adaptive(spec, len, |v, square| v + square),
};
