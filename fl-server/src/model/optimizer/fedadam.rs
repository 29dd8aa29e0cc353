//! FedAdam: the second moment is an exponential mean of squares, `v_t = beta2 * v_(t-1) + (1 - beta2) * D_t^2`.

use super::adaptive::{BETA2, TAU, adaptive, beta1, bound, rate};
use super::method::OptimizerMethod;
use crate::config::plan::{MethodInfo, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "fedadam",
        about: "Adam on the server, without bias correction (Reddi et al. 2021, algorithm 2)",
        keys: &[rate(0.01), beta1(0.9), BETA2, TAU],
        bound: |spec, _| bound(spec, 1.0),
        accepts: any_uplink,
    },
    build: |spec, len| {
        let beta2 = spec.number("beta2");
        adaptive(spec, len, move |v, square| beta2 * v + (1.0 - beta2) * square)
    },
};
