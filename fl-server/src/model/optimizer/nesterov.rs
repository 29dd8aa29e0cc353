//! Nesterov momentum on the server, DiLoCo's outer optimizer (Douillard et al. 2023), in the form of PyTorch's SGD.
//!
//! ```text
//! m_t = momentum * m_(t-1) + D_t        D_t: aggregate of round t; m_0 = 0
//! x  += learning_rate * (D_t + momentum * m_t)
//! ```

use super::fedavgm::{MOMENTUM, Momentum};
use super::method::{OptimizerMethod, learning_rate};
use crate::config::plan::{MethodInfo, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "nesterov",
        about: "Nesterov momentum on the server, for many local steps (DiLoCo, Douillard et al. 2023)",
        keys: &[
            learning_rate(0.7, "factor of the aggregate and the momentum ahead of it"),
            MOMENTUM,
        ],
        // Of one aggregate: 1 at once, and the powers of the momentum from the first on.
        bound: |spec, _| Momentum::bound(spec),
        accepts: any_uplink,
    },
    build: |spec, len| Momentum::build(spec, len, true),
};
